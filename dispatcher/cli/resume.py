"""`overnight resume`: end a pause, through the drop-box."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import request
from dispatcher.context import Context

__all__ = ["command"]


@click.command("resume")
def command() -> None:
    """Hand out units again after `overnight pause`."""
    request(Context.here(), dropbox.Resume())
