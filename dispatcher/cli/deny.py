"""`overnight deny`: a person's no to the call that a unit is blocked on, through the drop-box."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import passable, request
from dispatcher.context import Context

__all__ = ["command"]


@click.command("deny")
@click.argument("unit")
@click.argument("why", default="")
def command(unit: str, why: str) -> None:
    """Refuse the call that UNIT waits with; its turn then goes on, and the model is told WHY."""
    here = Context.here()
    request(here, dropbox.Deny(unit=here.known(unit), reason=passable(why)))
