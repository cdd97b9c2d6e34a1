"""What may be pruned: finished nights alone, their sessions before their journals, each after a period of its own.

`plan` is pure. Nothing here asks; whoever calls it has asked. Compressing loses nothing, pruning does.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dispatcher.errors import StateFileError
from dispatcher.home import Home
from dispatcher.upkeep.fsck import written_state
from dispatcher.upkeep.remains import PRUNED, Remains
from workers.closed import compress, packed
from workers.errors import LogError
from workers.places import units
from worktrees.files import disk_error, left_over, sync_directory, write_atomic

__all__ = ["Compressed", "Prunable", "compress_archived", "compress_finished", "finished", "plan", "prune", "title_of"]


@dataclass(frozen=True, slots=True)
class Prunable:
    """What pruning a night would delete: its sessions (scratch folders and notes, too), or all that is left of it."""

    night: str
    folder: Path
    what: str  # "sessions" or "journal"
    idle_days: int


@dataclass(frozen=True, slots=True)
class Compressed:
    """How many session logs were compressed, the bytes that this saved, and what could not be."""

    count: int
    saved: int
    refused: tuple[str, ...]


def finished(nights: Iterable[Remains], current: str) -> list[Remains]:
    """Return the nights that are over: not the state file's, readable, and archived or with all units passed."""
    return [night for night in nights if night.night != current and _is_finished(night)]


def _is_finished(night: Remains) -> bool:
    """Whatever cannot be read is not finished: somebody should look at it first."""
    if not night.has_journal or night.torn or night.faults:
        return False
    if night.ledger.archived is not None:  # nobody was at work, and what had not passed was carried over
        return True
    try:
        state = written_state(night.ledger)
    except StateFileError:
        return False
    facts = night.ledger.units.values()
    return state.all_passed() and not any(one.in_flight or one.waiting is not None for one in facts)


def plan(over: Iterable[Remains], now: datetime, *, sessions: timedelta, journals: timedelta) -> list[Prunable]:
    """Return what is older than its period, the night that ended first at the top; `over` comes from `finished`."""
    found: list[Prunable] = []
    for night in sorted(over, key=lambda one: one.times[-1]):
        idle = now - datetime.fromisoformat(night.times[-1])
        has_sessions = bool(night.sessions) or night.units.exists()
        if has_sessions and idle >= sessions:
            found.append(Prunable(night.night, night.folder, "sessions", idle.days))
        if idle >= journals and (not has_sessions or idle >= sessions):
            found.append(Prunable(night.night, night.folder, "journal", idle.days))
    return found


def title_of(night: Remains) -> str:
    """Return a line that tells a person which night it is."""
    units = sum(facts.merged is not None for facts in night.ledger.units.values())
    return f"{night.night}  {night.ledger.title}  {units} units passed, ended {night.times[-1][:10]}"


def compress_finished(over: Iterable[Remains]) -> Compressed:
    """Compress every session log of nights that are over."""
    return _compress(night.session(log.unit, log.attempt) for night in over for log in night.sessions)


def compress_archived(home: Home, night: str) -> Compressed:
    """Compress every session log of a night that was archived. What a crash leaves plain, `overnight prune` compresses.

    Raises DiskError.
    """
    return _compress(log for unit in home.all_units(night) for log in home.sessions(night, unit).values())


def _compress(logs: Iterable[Path]) -> Compressed:
    """Compress logs; one that cannot be is named and left alone."""
    count = saved = 0
    refused: list[str] = []
    for plain in logs:
        if not plain.exists():
            continue
        try:
            for half in left_over(packed(plain)):  # of a run that was killed: only one process compresses
                half.unlink(missing_ok=True)
            saved += compress(plain)
            count += 1
        except LogError as error:
            refused.append(str(error))
        except OSError as error:
            raise disk_error("compress", packed(plain), error) from error
    return Compressed(count, saved, tuple(refused))


def prune(losses: Sequence[Prunable]) -> None:
    """Delete what was listed; what will be missing is written down first, for `overnight fsck`. Raises DiskError."""
    for loss in losses:
        try:
            if loss.what == "sessions":
                note = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "idle_days": loss.idle_days}
                write_atomic(loss.folder / PRUNED, json.dumps(note).encode() + b"\n", mode=0o600)
                _delete(units(loss.folder))
            else:
                _delete(loss.folder)
        except OSError as error:
            raise disk_error("delete", loss.folder, error) from error


def _delete(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
        sync_directory(folder.parent)
