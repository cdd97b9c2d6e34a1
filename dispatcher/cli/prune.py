"""`overnight prune`: the one command that deletes what nights have left, and only after it was told to."""

from datetime import UTC, datetime, timedelta

import click

from dispatcher.config import days
from dispatcher.context import Context
from dispatcher.errors import BadInput, WriterLocked
from dispatcher.opening import read_state
from dispatcher.upkeep import prune
from dispatcher.upkeep.remains import Remains, gather
from worktrees.errors import LockBusy
from worktrees.files import FileLock

__all__ = ["command"]


def _period(_ctx: click.Context, _param: click.Parameter, value: str | None) -> timedelta | None:
    try:
        return None if value is None else days(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("prune")
@click.option("--sessions-older-than", "sessions", callback=_period, metavar="30d", help="Else [keep] sessions.")
@click.option("--journals-older-than", "journals", callback=_period, metavar="180d", help="Else [keep] journals.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
def command(sessions: timedelta | None, journals: timedelta | None, *, yes: bool) -> None:
    """Compress the session logs of finished nights, list what is older than it must be kept, ask, and delete it."""
    here = Context.here()
    keep = here.config.keep
    sessions, journals = _or(sessions, keep.sessions), _or(journals, keep.journals)
    if journals < sessions:
        raise BadInput("a journal is never deleted before its sessions: they say nothing without it")
    lock = FileLock(here.home.writer_lock)
    over = _locked(here, lock)
    try:
        _compress(over)
    finally:
        lock.release()
    losses = prune.plan(over, datetime.now(UTC), sessions=sessions, journals=journals)
    if not losses:
        click.echo("nothing to prune")
        return
    _list(losses, over)
    if not yes:
        click.confirm("Delete this?", abort=True)
    still = {night.night for night in _locked(here, lock)}  # the question may have waited for long
    try:
        prune.prune([loss for loss in losses if loss.night in still])
    finally:
        lock.release()
    click.echo("deleted")


def _or(given: timedelta | None, configured: timedelta) -> timedelta:
    return configured if given is None else given


def _locked(here: Context, lock: FileLock) -> list[Remains]:
    """Take the writer's lock and return the nights that are over. Raises WriterLocked."""
    try:
        lock.acquire("overnight prune")
    except LockBusy as busy:
        raise WriterLocked(busy.path, busy.holder) from busy
    try:
        state = read_state(here.repository.root)
        nights = [gather(here.home, night) for night in here.home.all_nights()]
        return prune.finished(nights, state.night if state is not None else "")
    except BaseException:
        lock.release()
        raise


def _compress(over: list[Remains]) -> None:
    done = prune.compress_finished(over)
    if done.count:
        click.echo(f"compressed {done.count} session logs, which saves {done.saved:,} bytes")
    for why in done.refused:
        click.echo(f"not compressed: {why}", err=True)


def _list(losses: list[prune.Prunable], over: list[Remains]) -> None:
    titles = {night.night: prune.title_of(night) for night in over}
    counts = {night.night: len(night.sessions) for night in over}
    click.echo("would be lost:")
    for loss in losses:
        what = f"{counts[loss.night]} sessions" if loss.what == "sessions" else "the journal, and so the night"
        click.echo(f"  {titles[loss.night]}: {what}, idle for {loss.idle_days} days")
