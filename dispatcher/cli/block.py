"""`overnight block`: put a unit aside for a person, through the drop-box."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import passable, request
from dispatcher.context import Context

__all__ = ["command"]


@click.command("block")
@click.argument("unit")
@click.argument("why", default="")
def command(unit: str, why: str) -> None:
    """Put UNIT into `blocked` with WHY as its note; at work it stops after its step, and keeps what it has done."""
    here = Context.here()
    request(here, dropbox.Block(unit=here.known(unit), reason=passable(why)))
