"""`overnight answer`: what a person says to a unit's question, through the drop-box."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import request
from dispatcher.context import Context
from dispatcher.errors import BadInput

__all__ = ["command"]


@click.command("answer")
@click.argument("unit")
@click.argument("text")
def command(unit: str, text: str) -> None:
    """Answer the question that UNIT is blocked on; its turn then goes on."""
    here = Context.here()
    if here.ledger.unit(here.known(unit)).question is None:
        raise BadInput(f"{unit} has asked nothing, or has its answer already")
    request(here, dropbox.Answer(unit=unit, text=text))
