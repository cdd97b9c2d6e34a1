"""`overnight cancel`: take a unit out of the night, through the drop-box."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import request
from dispatcher.context import Context

__all__ = ["command"]


@click.command("cancel")
@click.argument("unit")
def command(unit: str) -> None:
    """Take UNIT out of the night, at once: it goes to `blocked`, or away if its unit file is deleted.

    `overnight retry` brings it back.
    """
    here = Context.here()
    request(here, dropbox.Cancel(unit=here.known(unit)))
