"""Opening a night: the journal that the state file names, or a new night with an identity of its own (rule 1)."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dispatcher.book import Book
from dispatcher.config import Config
from dispatcher.errors import BadInput, StateFileError
from dispatcher.home import Home
from dispatcher.journal import Archived, NightStarted, RunStarted, Written, read_journal
from dispatcher.keeper import Keeper
from dispatcher.state import NOTED, State, mint_night, parse, read, render
from workers.log import decode
from worktrees.errors import RepositoryError
from worktrees.files import write_atomic
from worktrees.repository import Repository

__all__ = ["ARCHIVE_PATH", "STATE_PATH", "Opened", "going_on", "look", "open_night", "read_state", "refuse_lost"]

STATE_PATH = Path(".overnight/state.md")
ARCHIVE_PATH = Path(".overnight/archive")
"""Relative to the checkout."""


@dataclass(frozen=True)
class Opened:
    """A night that its one writer has in hand."""

    book: Book
    keeper: Keeper


def read_state(root: Path) -> State | None:
    """Return what the state file says, None while there is none. Raises StateFileError."""
    path = root / STATE_PATH
    return read(path)[0] if path.exists() else None


def look(repository: Repository, home: Home, config: Config) -> State:
    """Return the state that a run begins with, and change nothing.

    Raises StateFileError (unreadable, gone, of a night whose journal is not here), BadInput (no such base),
    EngineError.
    """
    path = repository.root / STATE_PATH
    read_now = read_state(repository.root)
    refuse_lost(repository.root, home, read_now)
    found = read_now or State(repository.root.name)
    if not found.night:
        _base(repository, config)
    elif not home.journal(found.night).exists():
        message = (
            f"names night {found.night}, whose journal is not in {home.nights}; bring it along, or cut the comment "
            "line off before 'Night' to start a new night with these units"
        )
        raise StateFileError(message, path=path, line=2)
    return found


def going_on(root: Path, home: Home, named: str = "") -> str:
    """Return the night that a checkout's state file has to be of, where that is not the night that it has `named`.

    That is the checkout's newest one, where a run took place in it and it was not archived; "": none is. A night in
    which no run began holds nothing, and those of another checkout have a state file of their own: their journals, and
    those of nights that are in the archive, are not even read. Raises EngineError for a journal that cannot be read.
    """
    nights = {night: _first_line(home.journal(night)) for night in home.all_nights() if home.journal(night).exists()}
    for night in sorted(nights, key=lambda one: nights[one].began, reverse=True):
        if night == named:
            return ""
        if nights[night].checkout not in ("", str(root)):
            continue
        if (root / ARCHIVE_PATH / f"{night}.md").exists():
            return ""
        entries = [entry for _, entry in read_journal(home.journal(night))]
        if any(isinstance(entry, RunStarted) for entry in entries):
            return "" if any(isinstance(entry, Archived) for entry in entries) else night
    return ""


@dataclass(frozen=True, slots=True)
class _FirstLine:
    """What a journal's first line says: when the night began, and whose it is ("": older ones do not say)."""

    began: datetime
    checkout: str


def _first_line(journal: Path) -> _FirstLine:
    """Read a journal's first line; where it cannot be read, the night began when the journal was last written."""
    try:
        with journal.open("rb") as file:
            first = decode(file.readline().rstrip(b"\n"))
        return _FirstLine(datetime.fromisoformat(first.time), str(first.data.get("checkout", "")))
    except (ValueError, KeyError, TypeError):
        return _FirstLine(datetime.fromtimestamp(journal.stat().st_mtime, UTC), "")


def refuse_lost(root: Path, home: Home, found: State | None) -> None:
    """Raise StateFileError where the state file is gone, or another one, while the night that it was of goes on.

    A new night would do again what has passed in that one.
    """
    night = going_on(root, home, found.night if found is not None else "")
    if not night:
        return
    if found is None:
        what = f"is gone, and night {night} goes on"
    elif found.night:
        what = f"is of night {found.night}, and night {night}, which began later, goes on"
    else:
        what = f"names no night, and night {night} goes on"
    raise StateFileError(
        f"{what}: put the file of that night back, or write it anew with `overnight fsck --rebuild-state`; to begin a "
        "new night instead, do that, and then `overnight archive --all`",
        path=root / STATE_PATH,
    )


def open_night(repository: Repository, home: Home, config: Config) -> Opened:
    """Open the night that the state file names, or start a new one. Raises what `look` raises, EngineError."""
    path = repository.root / STATE_PATH
    found = look(repository, home, config)
    if not found.night:
        return _start(repository, home, config, found, path)
    book = Book.open(home.journal(found.night))
    written = parse(book.ledger.texts[book.ledger.rev], path)
    keeper = Keeper(path, book, written)
    keeper.take_left_over()
    return Opened(book, keeper)


def _notes(first: State) -> dict[str, list[str]]:
    """Return what an earlier night learned of units that were carried over, for their next attempt."""
    noted = [entry for bucket in NOTED for entry in first.entries(bucket) if entry.note]
    return {entry.id: [f"in an earlier night: {entry.note}"] for entry in noted}


def _base(repository: Repository, config: Config) -> tuple[str, str]:
    """Return what a new night begins on: its name, and the commit. Raises BadInput."""
    name = config.base or "HEAD"
    try:
        return name, repository.resolve(name)
    except RepositoryError as error:
        raise BadInput(f"the base {name!r} is no commit here: {error}", field="base") from error


def _start(repository: Repository, home: Home, config: Config, first: State, path: Path) -> Opened:
    name, base = _base(repository, config)
    night = mint_night(datetime.now().astimezone(), random.SystemRandom())
    while home.journal(night).exists():
        night = mint_night(datetime.now().astimezone(), random.SystemRandom())
    book = Book.open(home.journal(night))
    stamped = first.stamped(night, 1)
    text = render(stamped)
    book.note(
        NightStarted(
            night=night,
            title=first.title,
            base=base,
            base_name=name,
            notes=_notes(first),
            checkout=str(repository.root),
        ),
        Written(rev=1, text=text, moves=[f"{unit}: new → {first.bucket_of(unit)}" for unit in first.ids()]),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode())
    return Opened(book, Keeper(path, book, stamped))
