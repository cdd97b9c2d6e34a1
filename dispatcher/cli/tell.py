"""`overnight tell`: what a person says to a unit while it is at work, through the drop-box."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import request, worded
from dispatcher.context import Context

__all__ = ["command"]


@click.command("tell")
@click.argument("unit")
@click.argument("text")
def command(unit: str, text: str) -> None:
    """Say something to UNIT: at work it hears it between two steps, else when it is next handed out."""
    here = Context.here()
    request(here, dropbox.Tell(unit=here.known(unit), text=worded(text)))
