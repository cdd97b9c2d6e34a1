"""The state file, rebuilt from the journal (rules 3, 19). Units that only the file knows go to `open`: none is lost."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from dispatcher import moves
from dispatcher.book import Book
from dispatcher.errors import BadInput, StateFileError
from dispatcher.home import Home
from dispatcher.journal import Written
from dispatcher.state import State, is_unit_id, parse, render
from dispatcher.upkeep.fsck import written_state
from worktrees.files import exchange_atomic, write_atomic

__all__ = ["Rebuilt", "rebuild", "units_in"]

_ENTRY = re.compile(r"^\s*[-*+]\s*(?P<id>[a-z0-9][a-z0-9-]*)(?::\s+(?P<goal>\S.*))?")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was written: units that only the old file had, and where that file's text is kept, if it said otherwise."""

    state: State
    only_in_file: tuple[str, ...]
    kept: Path | None


def units_in(text: str) -> dict[str, str]:
    """Return every unit that a state file names, however broken it is, with the goal typed behind it ("": none)."""
    try:
        state = parse(text)
    except StateFileError:
        lines = (_ENTRY.match(line) for line in text.splitlines())
        return {found["id"]: found["goal"] or "" for found in lines if found and is_unit_id(found["id"])}
    return {unit: state.typed_goals.get(unit, "") for unit in state.ids()}


def rebuild(home: Home, night: str, path: Path, attempts: Callable[[str], int] = lambda _: 0) -> Rebuilt:
    """Write the state file of a night anew, journal first. The caller holds the writer's lock.

    Raises BadInput where there is no journal, EngineError, DiskError: the file then is as it was.
    """
    if not home.journal(night).exists():
        raise BadInput(f"night {night} has no journal in {home.nights}, so there is nothing to rebuild from", path=path)
    old = path.read_bytes() if path.exists() else b""
    there = units_in(old.decode("utf-8", errors="replace"))
    book = Book.open(home.journal(night))
    try:
        state = written_state(book.ledger, attempts)
        only = tuple(unit for unit in there if state.bucket_of(unit) is None)
        state = _with(state, only, there).stamped(night, book.ledger.rev + 1)
        if old == render(state.stamped(night, book.ledger.rev)).encode():
            return Rebuilt(state, (), None)
        book.note(Written(rev=state.rev, text=render(state), moves=[f"{unit}: new → open" for unit in only]))
    finally:
        book.close()
    kept = _keep(home.night(night) / f"state-before-rev-{state.rev}.md", old)
    path.parent.mkdir(parents=True, exist_ok=True)
    replaced = exchange_atomic(path, render(state).encode())
    if replaced not in (b"", old):  # somebody wrote it at the last moment
        kept = _keep(home.night(night) / f"state-before-rev-{state.rev}-late.md", replaced)
    return Rebuilt(state, only, kept)


def _with(state: State, units: Iterable[str], goals: dict[str, str]) -> State:
    for unit in units:
        state = moves.add(state, (unit,), goal=goals[unit])
    return state


def _keep(path: Path, text: bytes) -> Path | None:
    if not text:
        return None
    write_atomic(path, text, mode=0o600)
    return path
