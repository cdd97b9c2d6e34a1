"""`overnight pause`: hand out nothing for a while, through the drop-box."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import request
from dispatcher.context import Context

__all__ = ["command"]


@click.command("pause")
def command() -> None:
    """Hand out nothing until `overnight resume`; units at work go on. It holds across restarts."""
    request(Context.here(), dropbox.Pause())
