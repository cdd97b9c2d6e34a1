"""`overnight retry`: put a unit back into `open`, with its attempts."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import request
from dispatcher.context import Context

__all__ = ["command"]


@click.command("retry")
@click.argument("unit")
def command(unit: str) -> None:
    """Put UNIT back into `open`: a new attempt in a fresh context, with all its attempts again."""
    here = Context.here()
    request(here, dropbox.Retry(unit=here.known(unit)))
