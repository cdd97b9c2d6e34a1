"""`overnight tell`: what a person says to a unit while it is at work, through the drop-box."""

from typing import get_args

import click

from dispatcher import dropbox
from dispatcher.cli.ask import request, worded
from dispatcher.config import Effort
from dispatcher.context import Context

__all__ = ["command"]


@click.command("tell")
@click.argument("unit")
@click.argument("text")
@click.option("--effort", type=click.Choice(get_args(Effort)), help="How hard it is to think for the rest of the turn.")
def command(unit: str, text: str, effort: Effort | None) -> None:
    """Say something to UNIT: at work it hears it between two steps, else when it is next handed out."""
    here = Context.here()
    request(here, dropbox.Tell(unit=here.known(unit), text=worded(text), effort=effort))
