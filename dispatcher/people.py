"""People: what they may ask of a night, and what waits for them. Pure: commands and dispatcher say the same of both.

Whatever is asked twice changes nothing the second time.
"""

import copy
import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from dispatcher import dropbox, forks, moves
from dispatcher.journal import Asked
from dispatcher.ledger import Ledger, UnitFacts
from dispatcher.state import Bucket, State

__all__ = [
    "Events",
    "UsedUp",
    "Waiting",
    "foreseen",
    "is_repeated",
    "refusal",
    "shown",
    "superseded",
    "unneeded",
    "waiting",
    "without_deleted",
]

Events = Callable[[str, int], int]
"""Says how many events the session of a unit's attempt holds."""

UsedUp = Callable[[str, Ledger], str]
"""Says which of a unit's caps is used up, so that it would be blocked again at once; "": none."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One thing that waits for a person. `commands` are what to type, each whole but for a person's own words.

    `said` is what lies in the drop-box about it already, for the next run to take up.
    """

    unit: str
    what: Literal["question", "approval", "blocked"]
    words: str
    commands: tuple[str, ...]
    said: str = ""


def waiting(state: State, ledger: Ledger, dropped: Iterable[dropbox.Request] = ()) -> list[Waiting]:
    """Return everything that waits for a person: questions and approvals first, then what is blocked otherwise."""
    said = {getattr(request, "unit", ""): request.kind for request in dropped}
    found = [_asking(unit, facts, said.get(unit, "")) for unit, facts in ledger.units.items() if facts.question]
    asking = {one.unit for one in found}
    for entry in state.entries(Bucket.blocked):
        if entry.id not in asking and not ledger.unit(entry.id).is_cancelled:  # that was a person's own word
            commands = (f"overnight log {entry.id}", f"overnight retry {entry.id}")
            words = ledger.unit(entry.id).whole(entry.note)
            found.append(Waiting(entry.id, "blocked", words, commands, said.get(entry.id, "")))
    return found


def _asking(unit: str, facts: UnitFacts, said: str) -> Waiting:
    assert facts.question is not None
    name = shlex.quote(unit)
    if facts.question.approval is not None:
        commands = (f"overnight approve {name}", f'overnight deny {name} "why"')
        return Waiting(unit, "approval", facts.question.approval, commands, said)
    return Waiting(unit, "question", facts.question.question or "", (f'overnight answer {name} "…"',), said)


def refusal(
    request: dropbox.Request,
    state: State,
    ledger: Ledger,
    *,
    events: Events = lambda _unit, _attempt: 0,
    used_up: UsedUp = lambda _unit, _ledger: "",
    since: datetime | None = None,
    is_running: bool = True,
) -> str | None:
    """Return why a request cannot be obeyed as things are, None when it can.

    `since` is when the run's process started. Without a run nobody knows who is still at work: the next one does
    before it obeys.
    """
    if isinstance(request, dropbox.Stop):
        is_old = since is not None and request.at < since
        return "the run that it was meant for has ended" if is_old else None
    if isinstance(request, dropbox.Pause | dropbox.Resume):
        return None
    bucket, facts = _bucket(request.unit, state, ledger), ledger.unit(request.unit)
    if bucket is None:
        return "there is no such unit"
    if isinstance(request, dropbox.Answer | dropbox.Approve | dropbox.Deny):
        return _of_answer(request, facts)
    if isinstance(request, dropbox.Fork):
        stored = events(request.unit, request.attempt)
        return forks.refusal(request, bucket, facts, stored, in_flight=facts.in_flight and is_running)
    if bucket is Bucket.passed or facts.waiting is not None:
        return "it has passed"
    if isinstance(request, dropbox.Unblock):
        return _of_unblock(request, bucket, facts, used_up(request.unit, ledger))
    is_at_work = isinstance(request, dropbox.Retry) and facts.in_flight and is_running
    return "it is being worked on" if is_at_work else None


def unneeded(request: dropbox.Request, state: State, ledger: Ledger) -> str:
    """Return why a request that can be obeyed would change nothing, "" where it would."""
    if isinstance(request, dropbox.Pause | dropbox.Resume):
        if ledger.paused is isinstance(request, dropbox.Pause):
            return "the night is paused already" if ledger.paused else "the night is not paused"
        return ""
    if not isinstance(request, dropbox.Retry | dropbox.Cancel | dropbox.Block):
        return ""
    facts = ledger.unit(request.unit)
    match _bucket(request.unit, state, ledger), request:
        case Bucket.open, dropbox.Retry() if facts.is_fresh:
            return "it is open with all its attempts already: it keeps its place"
        case Bucket.blocked, dropbox.Cancel() if facts.is_cancelled:
            return "it is cancelled already"
        case Bucket.blocked, dropbox.Block(reason=""):
            return "it is blocked already"
    return ""


def _bucket(unit: str, state: State, ledger: Ledger) -> Bucket | None:
    """Return where a unit stands, or will with the next write of the state."""
    bucket, due = state.bucket_of(unit), ledger.due.get(unit)
    return due.bucket if due is not None and moves.may(bucket, due.bucket, due.cause) else bucket


def foreseen(
    dropped: Iterable[dropbox.Request],
    request: dropbox.Request,
    state: State,
    ledger: Ledger,
    *,
    events: Events = lambda _unit, _attempt: 0,
    used_up: UsedUp = lambda _unit, _ledger: "",
) -> Ledger:
    """Return the ledger as it will be once a run has taken up what lies in the drop-box before `request`.

    Oldest first; what the request takes the place of counts no more.
    """
    before = [one for one in dropped if one.id not in ledger.asked]
    replaced = superseded([*before, request])
    if not before:
        return ledger
    then = copy.deepcopy(ledger)
    for one in before:
        why_not = refusal(one, state, then, events=events, used_up=used_up, is_running=False)
        if one.id not in replaced and why_not is None and not unneeded(one, state, then):
            then.add(Asked(request=one.model_dump(mode="json"), obeyed=True))
    return then


def is_repeated(request: dropbox.Request, dropped: Iterable[dropbox.Request]) -> bool:
    """Say whether this very thing lies in the drop-box already, as the last word about the unit or the night.

    What somebody wants to be told twice, it is told twice.
    """
    if isinstance(request, dropbox.Tell):
        return False
    unit = getattr(request, "unit", None)
    about = [one for one in dropped if getattr(one, "unit", None) == unit and not isinstance(one, dropbox.Tell)]
    return bool(about) and _words(about[-1]) == _words(request)


def shown(request: dropbox.Request, ledger: Ledger) -> dropbox.Request:
    """Return a person's decision bound to what the unit waits with now: a yes to one call is none to the next."""
    if not isinstance(request, dropbox.Answer | dropbox.Approve | dropbox.Deny):
        return request
    question = ledger.unit(request.unit).question
    return request if question is None else request.model_copy(update={"call": question.pause_call})


def superseded(requests: Iterable[dropbox.Request]) -> set[str]:
    """Return the ids of those that a later one takes the place of: until it is taken up, a person's last word counts.

    That is so of answers to a unit's question, and of a yes or a no to its call; saying the same again replaces
    nothing. Oldest first.
    """
    last: dict[tuple[str, str, bool], list[dropbox.Request]] = {}
    replaced: set[str] = set()
    for request in requests:
        if isinstance(request, dropbox.Answer | dropbox.Approve | dropbox.Deny):
            said = last.setdefault((request.unit, request.call, isinstance(request, dropbox.Answer)), [])
            if said and _words(said[-1]) != _words(request):
                replaced.update(one.id for one in said)
                said.clear()
            said.append(request)
    return replaced


def _words(request: dropbox.Request) -> str:
    """Return what is asked, whenever it was."""
    return request.model_dump_json(exclude={"id", "at"})


def _of_answer(request: dropbox.Answer | dropbox.Approve | dropbox.Deny, facts: UnitFacts) -> str | None:
    """An answer needs a question, a yes or no an approval that is pending; each is taken once."""
    unit, wants_approval = request.unit, not isinstance(request, dropbox.Answer)
    if facts.question is None:
        has_answer = ", or has its answer already"
        return f"it waits for no approval{has_answer}" if wants_approval else f"it has asked nothing{has_answer}"
    if request.call not in ("", facts.question.pause_call):
        return "it asks something else by now; `overnight inbox` shows what"
    if wants_approval and facts.question.approval is None:
        return f'it waits for an answer: `overnight answer {unit} "…"`'
    if not wants_approval and facts.question.approval is not None:
        return f'it waits for a yes or a no: `overnight approve {unit}`, or `overnight deny {unit} "why"`'
    return None


def _of_unblock(request: dropbox.Unblock, bucket: Bucket, facts: UnitFacts, used_up: str) -> str | None:
    """As it was, it must be able to go on."""
    retry = f"`overnight retry {request.unit}`"
    if bucket is not Bucket.blocked:
        return "it is not blocked"
    if facts.question is not None:
        return f"it waits for an answer: {' or '.join(_asking(request.unit, facts, '').commands)}"
    if facts.is_cancelled:
        return f"it was cancelled; {retry} brings it back"
    return f"it would be blocked again at once ({used_up}); {retry} counts anew" if used_up else None


def without_deleted(state: State, ledger: Ledger, has_file: Callable[[str], bool]) -> State:
    """Return the state without the units that a person cancelled and whose files they have deleted."""
    cancelled: Collection[str] = [unit for unit, facts in ledger.units.items() if facts.is_cancelled]
    for unit in cancelled:
        if state.bucket_of(unit) is Bucket.blocked and not has_file(unit):
            state = moves.remove(state, unit)
    return state
