"""Fork: a new session from a prefix of another (spec L11), sharing nothing that can change."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workers.errors import LogError
from workers.log import read

from . import events as ev
from .repair import forked_turn_closers
from .session import Session, load_events

__all__ = ["fork", "own"]


def fork(source: Path, at: int, target: Session, *, source_attempt: int, attempt: int) -> None:
    """Fill an empty session with the first `at` events of `source`; an open turn is closed as `forked`.

    `at` is any boundary from 1 to the log's length. The source is only read. Nothing is flushed yet. Raises LogError
    for a boundary that is none, LogCorrupt.
    """
    records = read(source).records
    if not 1 <= at <= len(records):
        raise LogError(source, f"has events 0 to {len(records) - 1}: a fork at {at} is not possible")
    prefix = [event for event in load_events(source, records[:at]) if not isinstance(event, ev.Claim | ev.Torn)]
    origin = ev.SessionFork(source=source_attempt, at=at, attempt=attempt)
    target.append(*prefix, origin, *forked_turn_closers(prefix))


def own(history: Sequence[Any]) -> Sequence[Any]:
    """Return the events that the attempt itself wrote: those behind its fork, where it is one, else all.

    What was copied has been paid for, and counted, by the attempt that it came from.
    """
    forks = [index for index, event in enumerate(history) if isinstance(event, ev.SessionFork)]
    return history[forks[-1] + 1 :] if forks else history
