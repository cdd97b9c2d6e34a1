"""`overnight stop`: ask the run to end after the current steps."""

import time

import click

from dispatcher import dropbox
from dispatcher.cli.ask import is_running, request
from dispatcher.context import Context
from dispatcher.errors import BadInput
from dispatcher.unattended.detached import goes_on

__all__ = ["command"]

# A run that waits for its time looks once a second.
_PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 0.05


@click.command("stop")
def command() -> None:
    """Let the running dispatcher finish the current steps, checkpoint and stop; one that waits for its time leaves."""
    here = Context.here()
    if is_running(here):
        request(here, dropbox.Stop())
    elif goes_on(here.home):
        _call_off(here)
    else:
        raise BadInput("nothing is running here")


def _call_off(here: Context) -> None:
    """Ask a run that has no night in hand yet: it answers by taking the request away, whether it waits or begins."""
    wanted = dropbox.Stop()
    path = dropbox.drop(here.home.dropbox, wanted)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while path.exists() and time.monotonic() < deadline:
        if not goes_on(here.home):
            dropbox.withdraw(here.home.dropbox, wanted)
            raise BadInput("nothing is running here any more")
        time.sleep(_POLL_SECONDS)
    click.echo("the running dispatcher does it at its next look" if path.exists() else "done")
