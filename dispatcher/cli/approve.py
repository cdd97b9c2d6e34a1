"""`overnight approve`: a person's yes to the call that a unit is blocked on, through the drop-box."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import request
from dispatcher.context import Context

__all__ = ["command"]


@click.command("approve")
@click.argument("unit")
def command(unit: str) -> None:
    """Let the call run that UNIT waits with, exactly as it is stored, once; its turn then goes on."""
    here = Context.here()
    request(here, dropbox.Approve(unit=here.known(unit)))
