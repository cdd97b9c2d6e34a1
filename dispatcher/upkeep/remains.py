"""The remains: everything that a night has left on this host, read once for whoever compares it. Changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from dispatcher.errors import EngineError
from dispatcher.home import Home
from dispatcher.journal import Ordered, read_journal
from dispatcher.ledger import Ledger
from workers import places
from workers.closed import packed, read_either
from workers.errors import LogCorrupt, LogError
from workers.log import read
from workers.orders import UnitReport
from workers.session import events as ev
from workers.session.costs import spent
from workers.session.fork import own
from workers.session.session import load_events

__all__ = ["PRUNED", "Fault", "Remains", "SessionLog", "gather"]

PRUNED = "sessions-pruned"
"""A file in a night's folder: its sessions were deleted on purpose, so nobody misses them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is not as it should be. `unreadable`: there was no telling."""

    path: Path
    what: str
    unreadable: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass(frozen=True, slots=True)
class SessionLog:
    """One attempt's log, as far as it could be read; `torn` bytes stand behind its last event."""

    unit: str
    attempt: int
    path: Path
    events: tuple[Any, ...]
    torn: int

    @property
    def cost(self) -> Decimal | None:
        """Dollars of the attempt's own model calls; None where a price is unknown."""
        return spent(self.events)

    @property
    def verdicts(self) -> list[UnitReport]:
        """The verdicts that it holds, oldest first."""
        found = [event.report for event in own(self.events) if isinstance(event, ev.Report)]
        return [UnitReport.model_validate(report) for report in found]


@dataclass(frozen=True)
class Remains:
    """One night: its journal with what it says, and the sessions that can be read. `faults`: what cannot be.

    `moving` are the attempts (unit, number) that were at work while this was read.
    """

    night: str
    folder: Path
    journal: Path
    times: tuple[str, ...]
    entries: tuple[Any, ...]
    ledger: Ledger
    torn: int
    sessions: tuple[SessionLog, ...]
    moving: frozenset[tuple[str, int]]
    is_pruned: bool
    faults: tuple[Fault, ...]

    @property
    def units(self) -> Path:
        """The folder of all its units."""
        return places.units(self.folder)

    def session(self, unit: str, attempt: int) -> Path:
        """Return where an attempt's session log is, or would be."""
        return places.session(self.units / unit, attempt)

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal that could be read."""
        return bool(self.entries)


def gather(home: Home, night: str) -> Remains:
    """Read a night. What cannot be read is a fault, and never an error."""
    before, faults, _ = _journal(home.journal(night))
    sessions = []
    for unit in home.all_units(night):
        for attempt, path in home.sessions(night, unit).items():
            try:
                sessions.append(_session(unit, attempt, path))
            except (LogError, ValueError) as error:
                faults.append(_fault(path, error))
    pairs, _, torn = _journal(home.journal(night))  # again: what is in the sessions by now is in it, too
    entries = [entry for _, entry in pairs]
    return Remains(
        night=night,
        folder=home.night(night),
        journal=home.journal(night),
        times=tuple(time for time, _ in pairs),
        entries=tuple(entries),
        ledger=Ledger().extend(entries),
        torn=torn,
        sessions=tuple(sessions),
        moving=_moving(entries, len(before)),
        is_pruned=(home.night(night) / PRUNED).exists(),
        faults=tuple(faults),
    )


def _journal(path: Path) -> tuple[list[tuple[str, Any]], list[Fault], int]:
    try:
        return read_journal(path), [], len(read(path).tail)
    except EngineError as error:
        return [], [_fault(path, error.__cause__ or error)], 0
    except LogError as error:
        return [], [_fault(path, error)], 0


def _moving(entries: Sequence[Any], count: int) -> frozenset[tuple[str, int]]:
    """Return who was in flight after `count` entries, or was handed out since."""
    facts = Ledger().extend(entries[:count]).units
    flying = {(unit, one.attempt) for unit, one in facts.items() if one.in_flight}
    return frozenset(flying | {(one.unit, one.attempt) for one in entries[count:] if isinstance(one, Ordered)})


def _session(unit: str, attempt: int, path: Path) -> SessionLog:
    contents = read_either(path)
    where = path if path.exists() else packed(path)
    log = SessionLog(unit, attempt, where, tuple(load_events(path, contents.records)), len(contents.tail))
    _ = log.verdicts  # a report that is none is a fault of the log
    return log


def _fault(path: Path, error: BaseException) -> Fault:
    if isinstance(error, LogCorrupt):
        return Fault(path, f"line {error.line} (byte {error.offset}) {error.reason}", unreadable=True)
    return Fault(path, str(error).removeprefix(f"{path}: "), unreadable=True)
