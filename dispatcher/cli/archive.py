"""`overnight archive`: put a finished night away."""

import click

from dispatcher.archive import ARCHIVE_PATH, archive
from dispatcher.context import Context
from dispatcher.errors import BadInput, WriterLocked
from dispatcher.shown.counted import counted
from dispatcher.upkeep.prune import compress_archived
from worktrees.errors import LockBusy
from worktrees.files import FileLock

__all__ = ["command"]


@click.command("archive")
@click.option("--all", "everything", is_flag=True, help="Also a night that is not done: what is left is carried over.")
def command(*, everything: bool) -> None:
    """Put the night away in .overnight/archive, with its units' files; the next run begins a new one."""
    here = Context.here()
    night = here.state.night
    lock = FileLock(here.home.writer_lock)
    try:
        lock.acquire("overnight archive")
    except LockBusy as busy:
        raise WriterLocked(busy.path, busy.holder) from busy
    try:
        put_away = archive(here.repository, here.home, everything=everything)
        if put_away is None:
            raise BadInput("no night has begun here since the last one was archived")
        done = compress_archived(here.home, night)
    finally:
        lock.release()
    for why in done.refused:
        click.echo(f"not compressed: {why}", err=True)
    click.echo(f"night {night}: {counted(len(put_away.units), 'unit')} put away in {ARCHIVE_PATH}")
