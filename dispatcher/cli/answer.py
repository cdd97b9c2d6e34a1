"""`overnight answer`: what a person says to a unit's question, through the drop-box."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import request, worded
from dispatcher.context import Context

__all__ = ["command"]


@click.command("answer")
@click.argument("unit")
@click.argument("text")
def command(unit: str, text: str) -> None:
    """Answer the question that UNIT is blocked on; its turn then goes on."""
    here = Context.here()
    request(here, dropbox.Answer(unit=here.known(unit), text=worded(text)))
