"""Asking the dispatcher for something: drop a file, and say who will obey it."""

import click

from dispatcher import dropbox
from dispatcher.context import Context
from dispatcher.errors import BadInput
from worktrees.errors import LockBusy
from worktrees.files import FileLock

__all__ = ["request"]


def request(here: Context, wanted: dropbox.Request) -> None:
    """Drop a request and say when it will be done. Raises BadInput before the first run."""
    if not here.state.night:
        raise BadInput("no night has begun here yet; `overnight run` begins one")
    here.home.make()
    dropbox.drop(here.home.dropbox, wanted)
    click.echo("the running dispatcher does it" if is_running(here) else "will be done by the next `overnight run`")


def is_running(here: Context) -> bool:
    """Tell whether a run holds the writer's lock right now."""
    lock = FileLock(here.home.writer_lock)
    try:
        lock.acquire("looking")
    except LockBusy:
        return True
    lock.release()
    return False
