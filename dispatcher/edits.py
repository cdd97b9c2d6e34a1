"""What a person asked for by editing the state file: compared, then obeyed or refused. Pure.

The comparison is with the revision that the person's file names (protocol, rule 20), so a file that an editor or
`git stash` put back asks for nothing by being old. Nothing here reads a file or knows the journal.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from dispatcher import moves
from dispatcher.moves import Cause
from dispatcher.state import NOTED, Bucket, State

__all__ = [
    "Added",
    "Adopted",
    "Applied",
    "Cancelled",
    "Effect",
    "Move",
    "Moved",
    "Refused",
    "Regoaled",
    "Removed",
    "Renamed",
    "Renoted",
    "Reordered",
    "Request",
    "Requeued",
    "Retitled",
    "Retried",
    "Waived",
    "apply",
    "requests",
]


@dataclass(frozen=True)
class Move:
    """The unit stands in another bucket now, or in the same one with another note."""

    id: str
    was: Bucket
    bucket: Bucket
    note: str = ""


@dataclass(frozen=True)
class Added:
    """A new line; `goal` is "" when only an id was typed (a unit file may hold the goal)."""

    id: str
    bucket: Bucket
    goal: str = ""
    note: str = ""


@dataclass(frozen=True)
class Removed:
    """The unit's line is gone."""

    id: str


@dataclass(frozen=True)
class Regoaled:
    """A goal was typed behind a unit that exists."""

    id: str
    goal: str


@dataclass(frozen=True)
class Reordered:
    """The lines of `open` follow each other in another order: the queue as the person wants it."""

    ids: tuple[str, ...]


@dataclass(frozen=True)
class Retitled:
    """The title line is another."""

    title: str


Request = Move | Added | Removed | Regoaled | Reordered | Retitled


@dataclass(frozen=True)
class Waived:
    """Obeyed: the unit counts as passed because a person says so; there is nothing of it to merge."""

    id: str


@dataclass(frozen=True)
class Retried:
    """Obeyed: the unit is in `open` again and gets its attempts back."""

    id: str


@dataclass(frozen=True)
class Cancelled:
    """Obeyed: no bucket holds the unit. The caller retires its unit file, else it is adopted again."""

    id: str


@dataclass(frozen=True)
class Adopted:
    """Obeyed: a new unit. The caller writes its unit file from `goal`; "" means that one must exist."""

    id: str
    bucket: Bucket
    goal: str = ""


@dataclass(frozen=True)
class Moved:
    """Obeyed: the unit was put in `tried` or `blocked` by hand."""

    id: str
    bucket: Bucket
    note: str = ""


@dataclass(frozen=True)
class Renoted:
    """Obeyed: a note for people is another."""

    id: str
    note: str


@dataclass(frozen=True)
class Requeued:
    """Obeyed: `open` has another order."""

    ids: tuple[str, ...]


@dataclass(frozen=True)
class Renamed:
    """Obeyed: the title is another."""

    title: str


Effect = Waived | Retried | Cancelled | Adopted | Moved | Renoted | Requeued | Renamed


@dataclass(frozen=True)
class Refused:
    """A request that was not obeyed, and why, in a sentence for the person."""

    request: Request
    reason: str


@dataclass(frozen=True)
class Applied:
    """What is to be written, what was obeyed and what was not. Every request left an effect or a refusal."""

    state: State
    obeyed: tuple[Effect, ...] = ()
    refused: tuple[Refused, ...] = ()


def requests(base: State, theirs: State) -> list[Request]:
    """Return what the person changed between `base` and `theirs`, unit by unit, in the order of their file.

    `base` is the state as we wrote it under the night and revision that `theirs` names; anything else raises
    ValueError, because the comparison would invent requests.
    """
    if (base.night, base.rev) != (theirs.night, theirs.rev):
        both = f"{base.night!r} rev {base.rev} and {theirs.night!r} rev {theirs.rev}"
        raise ValueError(f"two revisions cannot be compared: {both}")
    found: list[Request] = []
    if theirs.title != base.title:
        found.append(Retitled(theirs.title))
    for bucket in Bucket:
        for entry in theirs.entries(bucket):
            found.extend(_of_unit(base, theirs, entry.id, bucket))
    kept = set(theirs.ids())
    found.extend(Removed(unit) for unit in base.ids() if unit not in kept)
    found.extend(_of_queue(base, theirs))
    return found


def _of_unit(base: State, theirs: State, unit: str, bucket: Bucket) -> Iterable[Request]:
    was, note, goal = base.bucket_of(unit), theirs.note_of(unit), theirs.typed_goals.get(unit, "")
    if was is None:
        yield Added(unit, bucket, goal, note)
        return
    typed_over_note = bool(goal) and bucket in NOTED  # the line lost its note to the goal, not to a wish
    if was != bucket or (note != base.note_of(unit) and not typed_over_note):
        yield Move(unit, was, bucket, note)
    if goal and goal != base.typed_goals.get(unit):
        yield Regoaled(unit, goal)


def _of_queue(base: State, theirs: State) -> Iterable[Request]:
    """Ask for an order only where the lines themselves do not explain it (newcomers go to the end)."""
    before, now = base.ids(Bucket.open), theirs.ids(Bucket.open)
    stayed = [unit for unit in before if theirs.bucket_of(unit) is Bucket.open]
    came = [unit for unit in now if base.bucket_of(unit) is not Bucket.open]
    if now != (*stayed, *came):
        yield Reordered(now)


def apply(asked: Sequence[Request], current: State, *, waived: AbstractSet[str] = frozenset()) -> Applied:
    """Obey `asked` on the state as it is now, which may be newer than what the person saw.

    A unit that we passed never leaves `passed` (design, "A night", 7); one in `waived` (passed by a person's word
    alone) may. A unit in flight is moved like any other; what becomes of its order is the caller's business.
    """
    outcome = Applied(current)
    for request in asked:
        outcome = _obey(request, outcome, waived)
    return outcome


def _obey(request: Request, done: Applied, waived: AbstractSet[str]) -> Applied:
    match request:
        case Retitled(title):
            return _did(done, _retitle(done.state, title), Renamed(title))
        case Reordered(ids):
            return _did(done, done.state.reorder(Bucket.open, ids), Requeued(ids))
        case Added():
            return _obey_added(request, done)
        case Move() | Removed() | Regoaled():
            return _obey_known(request, done, waived)


def _retitle(state: State, title: str) -> State:
    return replace(state, title=title)


def _obey_added(request: Added, done: Applied) -> Applied:
    unit, bucket = request.id, request.bucket
    there = done.state.bucket_of(unit)
    if there is not None:
        return _refuse(done, request, f"{unit} is there already, in {there}")
    state = moves.add(done.state, (unit,), bucket, request.note, goal=request.goal)
    effects: tuple[Effect, ...] = (Adopted(unit, bucket, request.goal),)
    return _did(done, state, *effects, *((Waived(unit),) if bucket is Bucket.passed else ()))


def _obey_known(request: Move | Removed | Regoaled, done: Applied, waived: AbstractSet[str]) -> Applied:
    unit = request.id
    there = done.state.bucket_of(unit)
    if there is None:
        return _refuse(done, request, f"{unit} is no longer in the file")
    if isinstance(request, Regoaled):
        return _refuse(done, request, f"the goal of {unit} is in .overnight/units/{unit}.md; change it there")
    cause = Cause.waived if unit in waived else Cause.typed
    if not moves.may(there, there, cause):
        return _refuse(done, request, f"{unit} has passed, and what passed stays passed")
    if isinstance(request, Removed):
        gone = Cause.waived if unit in waived else Cause.cancelled
        return _did(done, moves.remove(done.state, unit, gone), Cancelled(unit))
    return _obey_move(request, there, done, cause)


def _obey_move(request: Move, there: Bucket, done: Applied, cause: Cause) -> Applied:
    unit, bucket, note = request.id, request.bucket, request.note
    if request.was == bucket:
        if there != bucket:
            return _refuse(done, request, f"{unit} is in {there} by now, with a note of its own")
        return _did(done, done.state.renote(unit, note), Renoted(unit, note))
    effects: dict[Bucket, Callable[[], Effect]] = {
        Bucket.passed: lambda: Waived(unit),
        Bucket.open: lambda: Retried(unit),
    }
    effect = effects.get(bucket, lambda: Moved(unit, bucket, note))()
    return _did(done, moves.move(done.state, unit, bucket, cause, note), effect)


def _did(done: Applied, state: State, *effects: Effect) -> Applied:
    return Applied(state, (*done.obeyed, *effects), done.refused)


def _refuse(done: Applied, request: Request, reason: str) -> Applied:
    return Applied(done.state, done.obeyed, (*done.refused, Refused(request, reason)))
