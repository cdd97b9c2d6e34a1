"""The table of legal moves between buckets: every move anywhere goes through `move`, `add` or `remove`. Pure.

What passed stays passed, nothing is lost, and only a person's word takes a unit out of the night. A move that the
table does not have changes nothing: a verdict that comes after a person blocked the unit does not unblock it.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from dispatcher.state import Bucket, State

__all__ = ["LEGAL", "Cause", "add", "may", "move", "remove"]


class Cause(StrEnum):
    """Why a unit moves."""

    adopted = "adopted"  # a unit file or a typed line that no bucket listed
    failed = "failed"  # a verdict of fail, a merge conflict, a merged tree that is red
    stuck = "stuck"  # a verdict of block: a question, policy, a failed setup
    merged = "merged"  # the merged branch holds it
    capped = "capped"  # attempts, money, losses used up; never handed out in many runs
    asked = "asked"  # answer, retry, fork and the like, through the drop-box
    typed = "typed"  # a person's edit of the state file
    waived = "waived"  # a person's edit of a unit that stands in `passed` by a person's word alone
    cancelled = "cancelled"  # a person took it away


_UNFINISHED = frozenset({Bucket.open, Bucket.tried, Bucket.blocked})
_READY = frozenset({Bucket.open, Bucket.tried})
_ANY = frozenset(Bucket)

LEGAL: Mapping[Cause, tuple[frozenset[Bucket | None], frozenset[Bucket | None]]] = {
    Cause.adopted: (frozenset({None}), _ANY),
    Cause.failed: (_READY, frozenset({Bucket.tried})),
    Cause.stuck: (_UNFINISHED, frozenset({Bucket.blocked})),
    Cause.merged: (_ANY, frozenset({Bucket.passed})),
    Cause.capped: (_READY, frozenset({Bucket.blocked})),
    Cause.asked: (_UNFINISHED, frozenset({Bucket.open, Bucket.blocked})),
    Cause.typed: (_UNFINISHED, _ANY),
    Cause.waived: (_ANY, _ANY),
    Cause.cancelled: (_UNFINISHED, frozenset({None})),
}
"""For each cause: from where, to where. None is "no bucket"."""


def may(was: Bucket | None, bucket: Bucket | None, cause: Cause) -> bool:
    """Say whether the table has this move."""
    sources, targets = LEGAL[cause]
    return was in sources and bucket in targets


def move(state: State, unit: str, bucket: Bucket, cause: Cause, note: str = "", *, first: bool = False) -> State:
    """Return the state with `unit` moved, or as it is where the table has no such move (an unknown unit, too)."""
    if not may(state.bucket_of(unit), bucket, cause):
        return state
    return state.move(unit, bucket, note, first=first)


def add(state: State, units: Iterable[str], bucket: Bucket = Bucket.open, note: str = "", *, goal: str = "") -> State:
    """Return the state with those of `units` that no bucket lists at the end of `bucket`, in their order."""
    new = [unit for unit in dict.fromkeys(units) if may(state.bucket_of(unit), bucket, Cause.adopted)]
    return state.add_all(new, bucket, note, goal=goal) if new else state


def remove(state: State, unit: str, cause: Cause = Cause.cancelled) -> State:
    """Return the state without `unit`, or as it is where the table has no such move."""
    return state.remove(unit) if cause is Cause.waived or may(state.bucket_of(unit), None, cause) else state
