"""Opening a night: the journal that the state file names, or a new night with an identity of its own (rule 1)."""

import random
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dispatcher.book import Book
from dispatcher.config import Config
from dispatcher.errors import BadInput, StateFileError
from dispatcher.home import Home
from dispatcher.journal import NightStarted, Written
from dispatcher.keeper import Keeper
from dispatcher.state import NOTED, State, mint_night, parse, read, render
from worktrees.errors import RepositoryError
from worktrees.files import write_atomic
from worktrees.repository import Repository

__all__ = ["STATE_PATH", "Opened", "open_night", "read_state"]

STATE_PATH = Path(".overnight/state.md")
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


def open_night(repository: Repository, home: Home, config: Config) -> Opened:
    """Open the night that the state file names, or start a new one.

    Raises StateFileError (unreadable, or a night whose journal is not here), BadInput (no such base), EngineError.
    """
    path = repository.root / STATE_PATH
    found = read_state(repository.root)
    if found is None or not found.night:
        return _start(repository, home, config, found or State(repository.root.name), path)
    if not home.journal(found.night).exists():
        message = (
            f"names night {found.night}, whose journal is not in {home.nights}; bring it along, or cut the comment "
            "line off before 'Night' to start a new night with these units"
        )
        raise StateFileError(message, path=path, line=2)
    book = Book.open(home.journal(found.night))
    written = parse(book.ledger.texts[book.ledger.rev], path)
    keeper = Keeper(path, book, written)
    keeper.take_left_over()
    return Opened(book, keeper)


def _notes(first: State) -> dict[str, list[str]]:
    """Return what an earlier night learned of units that were carried over, for their next attempt."""
    noted = [entry for bucket in NOTED for entry in first.entries(bucket) if entry.note]
    return {entry.id: [f"in an earlier night: {entry.note}"] for entry in noted}


def _start(repository: Repository, home: Home, config: Config, first: State, path: Path) -> Opened:
    name = config.base or "HEAD"
    try:
        base = repository.resolve(name)
    except RepositoryError as error:
        raise BadInput(f"the base {name!r} is no commit here: {error}", field="base") from error
    night = mint_night(datetime.now().astimezone(), random.SystemRandom())
    while home.journal(night).exists():
        night = mint_night(datetime.now().astimezone(), random.SystemRandom())
    book = Book.open(home.journal(night))
    stamped = first.stamped(night, 1)
    text = render(stamped)
    book.note(
        NightStarted(night=night, title=first.title, base=base, base_name=name, notes=_notes(first)),
        Written(rev=1, text=text, moves=[f"{unit}: new → {first.bucket_of(unit)}" for unit in first.ids()]),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode())
    return Opened(book, Keeper(path, book, stamped))
