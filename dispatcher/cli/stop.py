"""`overnight stop`: ask the run to end after the current steps."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import is_running, request
from dispatcher.context import Context
from dispatcher.errors import BadInput

__all__ = ["command"]


@click.command("stop")
def command() -> None:
    """Let the running dispatcher finish the current steps, checkpoint and stop."""
    here = Context.here()
    if not is_running(here):
        raise BadInput("nothing is running here")
    request(here, dropbox.Stop())
