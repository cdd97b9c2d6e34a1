"""`overnight unblock`: put a unit back into `open` as it was, through the drop-box."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import request
from dispatcher.context import Context

__all__ = ["command"]


@click.command("unblock")
@click.argument("unit")
def command(unit: str) -> None:
    """Put UNIT back into `open`, first in line; unlike after `retry` its attempts go on counting."""
    here = Context.here()
    request(here, dropbox.Unblock(unit=here.known(unit)))
