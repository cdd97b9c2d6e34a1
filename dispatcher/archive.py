"""Finished nights put away, so that the state file stays one screen long (spec S7), and found again.

`.overnight/archive/<night>.md` has the four buckets as they ended, the commit of every unit, and the morning report;
the unit files go to `.overnight/archive/units/<night>/`. The journal has the whole text first: whatever a crash left
undone is done again.
"""

import errno
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dispatcher import moves
from dispatcher.book import Book
from dispatcher.errors import BadInput
from dispatcher.home import Home
from dispatcher.journal import Archived, RunStarted, read_journal
from dispatcher.ledger import Ledger
from dispatcher.opening import ARCHIVE_PATH, STATE_PATH, read_state, refuse_lost
from dispatcher.shown.morning import as_facts, as_text
from dispatcher.state import Bucket, State, parse, render
from dispatcher.train import merged_ref
from dispatcher.units import UNITS_PATH
from worktrees.files import disk_error, exchange_atomic, sync_directory, write_atomic
from worktrees.repository import Repository

__all__ = [
    "ARCHIVE_PATH",
    "Ending",
    "archive",
    "archived_units",
    "finish",
    "is_over",
    "landed",
    "parse_night",
    "text_of",
]


_COMMIT = re.compile(r"- (?P<id>[a-z0-9][a-z0-9-]{0,59})  (?P<commit>[0-9a-f]{40}(?:[0-9a-f]{24})?|waived)")
_COMMITS = "## commits"


@dataclass(frozen=True)
class Ending:
    """A night that is about to be archived, for its report."""

    repository: Repository
    home: Home
    state: State

    @cached_property
    def entries(self) -> Sequence[tuple[str, object]]:
        """The journal as (time, entry) pairs."""
        return read_journal(self.home.journal(self.state.night))

    @cached_property
    def ledger(self) -> Ledger:
        """What the journal says."""
        return Ledger().extend(entry for _, entry in self.entries)


def archived_units(root: Path) -> dict[str, tuple[str | None, ...]]:
    """Return the units of all archived nights, with the commits they were merged as; None: waived by a person.

    Raises BadInput for a file that cannot be read: what it holds would be done again.
    """
    found: dict[str, tuple[str | None, ...]] = {}
    for path in sorted((root / ARCHIVE_PATH).glob("*.md")):
        for unit, commit in _commits(_text(path)):
            found[unit] = (*found.get(unit, ()), commit)
    return found


def _text(path: Path) -> str:
    """Read a file of the archive; what is none (a folder, a FIFO that would hold us) has nothing to say."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", path=path) from error


def _commits(text: str) -> Iterable[tuple[str, str | None]]:
    """Read the section of commits; every other text is on lines that do not begin like one of its entries."""
    lines = text.partition(f"\n{_COMMITS}\n")[2].split("\n\n")[0].splitlines()
    matches = (_COMMIT.fullmatch(line) for line in lines)
    return [(found["id"], None if found["commit"] == "waived" else found["commit"]) for found in matches if found]


def is_over(state: State, ledger: Ledger, units: Iterable[str]) -> bool:
    """Tell whether the next start puts the night away: all have passed, and there is a unit that is not of it.

    Until there is something new to do, the file goes on showing the result.
    """
    new = (unit for unit in units if state.bucket_of(unit) is None and unit not in ledger.cancelled)
    return state.all_passed() and not ledger.due and any(True for _ in new)


def archive(
    repository: Repository,
    home: Home,
    *,
    everything: bool = False,
    wanted: Callable[[State, Ledger], bool] = lambda _state, _ledger: True,
) -> Archived | None:
    """Put the state file's night away; None where there is none, or it is not `wanted`.

    With `everything` also one with units that are not done: they are carried over. The caller holds the writer's lock.
    Raises BadInput for a night that is not done, StateFileError, EngineError, DiskError: then the next call goes on.
    """
    state = read_state(repository.root)
    refuse_lost(repository.root, home, state)
    if state is None or not state.night or not home.journal(state.night).exists():
        return None
    book = Book.open(home.journal(state.night))
    try:
        entry = book.ledger.archived
        if entry is None:
            if not wanted(state, book.ledger):
                return None
            _refuse_unfinished(state, book, everything=everything)
            entry = _entry(Ending(repository, home, state))
            book.note(entry)
    finally:
        book.close()
    finish(repository.root, entry)
    return entry


def _refuse_unfinished(state: State, book: Book, *, everything: bool) -> None:
    left = [unit for bucket in Bucket if bucket is not Bucket.passed for unit in state.ids(bucket)]
    if left and not everything:
        names = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        raise BadInput(f"night {state.night} is not done: {names}; `overnight archive --all` carries them over")
    ledger = book.ledger
    if ledger.due or any(facts.waiting is not None for facts in ledger.units.values()):
        raise BadInput(f"night {state.night} has a unit that passed and is not merged yet; `overnight run` finishes it")
    runs = [entry for entry in book.journal.entries if isinstance(entry, RunStarted)]
    flying = [unit for unit, facts in ledger.units.items() if facts.in_flight]
    if flying and not runs[-1].embedded:  # embedded workers are dead: their dispatcher is
        raise BadInput(f"{flying[0]} is at work on your broker; `overnight run` takes in what it did")


def _entry(ending: Ending) -> Archived:
    state, ledger = ending.state, ending.ledger
    gone = [*state.ids(Bucket.passed), *sorted(ledger.cancelled - set(state.ids()))]
    left = State(state.title)
    for bucket in (Bucket.tried, Bucket.open, Bucket.blocked):
        for one in state.entries(bucket):
            left = moves.add(left, (one.id,), bucket, one.note, goal=state.typed_goals.get(one.id, ""))
    return Archived(text=text_of(ending), units=gone, left=render(left))


def text_of(ending: Ending) -> str:
    """Return the archive file's text. Only the four buckets and the commits have lines that begin with `- `."""
    state, ledger = ending.state, ending.ledger
    ref = merged_ref(state.night)
    tip = ending.repository.read_ref(ref)
    merged = f"{ref.removeprefix('refs/heads/')} at {tip}" if tip else "nothing was merged"
    commits = [f"- {unit}  {ledger.unit(unit).merged or 'waived'}" for unit in state.ids(Bucket.passed)]
    report = [f"    {line}" for line in as_text(as_facts(ending)).splitlines()]
    parts = [
        render(state).rstrip("\n"),
        "\n".join([_COMMITS, *commits]),
        f"## merged\n\n    {merged}",
        "\n".join(["## report", "", *report]),
    ]
    return "\n\n".join(parts) + "\n"


def finish(root: Path, entry: Archived) -> None:
    """Write the archive file, move the unit files, and leave a state file without a night. Raises DiskError."""
    night = parse_night(entry.text)
    folder = root / ARCHIVE_PATH
    _make(folder / "units" / night)
    write_atomic(folder / f"{night}.md", entry.text.encode())
    for unit in entry.units:
        _move(root / UNITS_PATH / f"{unit}.md", folder / "units" / night / f"{unit}.md")
    for touched in (folder / "units" / night, root / UNITS_PATH):
        if touched.exists():
            sync_directory(touched)
    _leave(root / STATE_PATH, entry, night)


def parse_night(text: str) -> str:
    """Return the night that an archive file is of."""
    return parse(text.partition(f"\n{_COMMITS}\n")[0]).night


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error("make", folder, error) from error


def _move(source: Path, target: Path) -> None:
    """Move a unit's file, unless that was done: one that is there again is a new unit of that name."""
    try:
        if source.exists() and (not target.exists() or _is_half_moved(source, target)):
            _rename(source, target)
    except OSError as error:
        raise disk_error("move", source, error) from error


def _rename(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        write_atomic(target, source.read_bytes())  # the archive lies on another file system
        source.unlink()


def _is_half_moved(source: Path, target: Path) -> bool:
    """Tell whether a crash came between the copy and the deletion, on two file systems."""
    is_elsewhere = source.stat().st_dev != target.stat().st_dev
    return is_elsewhere and source.read_bytes() == target.read_bytes()


def _leave(path: Path, entry: Archived, night: str) -> None:
    """Replace the old night's state file, unless that was done; what somebody typed into it meanwhile is kept."""
    there = read_state(path.parent.parent)
    if there is not None and there.night != night:
        return
    left = parse(entry.left)
    if there is not None:
        left = _with_new(left, there, entry.units)
    replaced = exchange_atomic(path, render(left).encode())
    late = parse(replaced.decode()) if replaced else None  # an edit at the last moment
    if late is not None and (more := _with_new(left, late, entry.units)) != left:
        exchange_atomic(path, render(more).encode())


def _with_new(left: State, there: State, gone: Iterable[str]) -> State:
    known = {*left.ids(), *gone}
    for unit in (unit for unit in there.ids() if unit not in known):
        left = moves.add(left, (unit,), goal=there.typed_goals.get(unit, ""))
    return left


def is_landed(commits: Iterable[str | None], holds: Callable[[str], bool]) -> bool:
    """Tell whether an archived unit counts for those that come after it: waived, or in the history of the base."""
    return any(commit is None or holds(commit) for commit in commits)


def landed(
    units: Mapping[str, tuple[str | None, ...]], needed: Iterable[str], holds: Callable[[str], bool]
) -> dict[str, bool]:
    """Return which of the archived `units` that are `needed` count."""
    return {unit: is_landed(units[unit], holds) for unit in needed if unit in units}
