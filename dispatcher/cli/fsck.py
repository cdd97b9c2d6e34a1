"""`overnight fsck`: every log, the journals, the state file and the merged branches, checked against each other."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import click

from dispatcher.cli.ask import is_running
from dispatcher.context import Context
from dispatcher.errors import BadInput, EngineError, StateFileError, WriterLocked
from dispatcher.ledger import Ledger
from dispatcher.listed import unworkable
from dispatcher.opening import STATE_PATH, going_on, read_state, refuse_lost
from dispatcher.shown.counted import counted
from dispatcher.state import State
from dispatcher.train import merged_ref
from dispatcher.upkeep import fsck
from dispatcher.upkeep.rebuild import rebuild
from dispatcher.upkeep.remains import Fault, Remains, gather
from worktrees.errors import LockBusy
from worktrees.files import FileLock

__all__ = ["command"]


@click.command("fsck")
@click.option("--rebuild-state", is_flag=True, help="Write the state file anew from the journal; no run may be going.")
@click.pass_context
def command(ctx: click.Context, *, rebuild_state: bool) -> None:
    """Check what all nights have left here. Exit 0: all agree; 1: some things do not, a line each; 2: unreadable."""
    look = _Look(Context.here())
    faults = list(look.faults())
    for fault in faults:
        click.echo(str(fault))
    is_wrong = "is not as it should be" if len(faults) == 1 else "are not as they should be"
    count = f"{counted(len(faults), 'thing')} {is_wrong}" if faults else "all agree"
    sessions = sum(len(night.sessions) for night in look.nights)
    click.echo(f"{counted(len(look.nights), 'night')}, {counted(sessions, 'session')}: {count}")
    if rebuild_state:
        _rebuild(look)
    ctx.exit(2 if any(fault.unreadable for fault in faults) else int(bool(faults)))


@dataclass
class _Look:
    """One look at everything."""

    here: Context
    nights: list[Remains] = field(default_factory=list)
    state: State | None = None

    def faults(self) -> Iterator[Fault]:
        running = is_running(self.here)
        self.nights = [gather(self.here.home, night) for night in self.here.home.all_nights()]
        yield from self._state(is_running=running)
        for night in self.nights:
            yield from fsck.check_night(night, is_running=running)
            yield from self._merges(night)
        if not running:
            yield from self._listed()
            ledgers = {night.night: night.ledger for night in self.nights}
            yield from fsck.check_outbox(self.here.home.outbox, ledgers)

    def _state(self, *, is_running: bool) -> Iterator[Fault]:
        path = self.here.repository.root / STATE_PATH
        try:
            self.state = read_state(self.here.repository.root)
        except StateFileError as error:
            where = f"line {error.line}: " if error.line is not None else ""
            yield Fault(path, f"{where}{error.message}", unreadable=True)
            return
        if is_running:  # then it is about to be written
            return
        try:
            refuse_lost(self.here.repository.root, self.here.home, self.state)
        except StateFileError as error:
            yield Fault(path, error.message)
            return
        except EngineError:  # a journal that cannot be read, which is told with its night
            return
        if self.state is None or not self.state.night:
            return
        night = next((one for one in self.nights if one.night == self.state.night), None)
        if night is None or not (night.has_journal or night.sessions or night.faults):
            yield Fault(path, f"names night {self.state.night}, of which there is nothing in {self.here.home.nights}")
        elif night.has_journal:
            yield from fsck.check_state(self.state, path, night)

    def _listed(self) -> Iterator[Fault]:
        """Yield units that the state file lists and that have no file."""
        if self.state is None:
            return
        here, night = self.here, self.state.night
        ledger = next((one.ledger for one in self.nights if one.night == night), Ledger())
        for error in unworkable(here.repository.root, self.state, ledger, {}, here.config).values():
            if isinstance(error, StateFileError):
                where = f"line {error.line}: " if error.line is not None else ""
                yield Fault(here.repository.root / STATE_PATH, f"{where}{error.message}")

    def _merges(self, night: Remains) -> Iterator[Fault]:
        repository, ref = self.here.repository, merged_ref(night.night)
        tip = repository.read_ref(ref)
        is_current = self.state is not None and self.state.night == night.night

        def lacks(commit: str) -> str:
            if not repository.has_commit(commit):
                return "the commit is not here" if tip is not None else f"{ref} is gone, and the commit is not here"
            if tip is None:
                back = f"`git update-ref {ref} {night.ledger.tip}` brings it back"
                return f"{ref} is gone, while its night goes on; {back}" if is_current else ""
            return "" if repository.is_ancestor(commit, tip) else f"{ref} does not hold it"

        yield from fsck.check_merges(night, lacks)

    def newest(self) -> str:
        """Return the night that the state file is of, or has to be of: else the one that was at work last.

        Raises BadInput where none goes on, EngineError.
        """
        named = self.state.night if self.state is not None else ""
        if night := going_on(self.here.repository.root, self.here.home, named) or named:
            return night
        nights = [night for night in self.nights if night.has_journal and night.ledger.archived is None]
        if not nights:
            raise BadInput("there is no journal of a night that goes on, from which the state file could be rebuilt")
        return max(nights, key=lambda night: night.times[-1]).night


def _rebuild(look: _Look) -> None:
    here, night = look.here, look.newest()
    lock = FileLock(here.home.writer_lock)
    try:
        lock.acquire("overnight fsck --rebuild-state")
    except LockBusy as busy:
        raise WriterLocked(busy.path, busy.holder) from busy
    try:
        done = rebuild(here.home, night, here.repository.root / STATE_PATH, lambda unit: _attempts(here, unit))
    finally:
        lock.release()
    click.echo(f"{STATE_PATH} is that of night {night}, rev {done.state.rev}")
    for unit in done.only_in_file:
        click.echo(f"  {unit} stood only in the file: it is in open now")
    if done.kept is not None:
        click.echo(f"  what it said before is in {done.kept}")


def _attempts(here: Context, unit: str) -> int:
    try:
        own = here.units[unit].limits.attempts if unit in here.units else None
    except BadInput:  # a unit file that is broken has its say at the next run
        own = None
    return own or here.config.limits.attempts
