"""What a night has cost, call by call, from the session logs, and whether the journal has booked the same. Pure.

Answers, compactions, thinking summaries and calls that broke off are calls alike (spec A7). What a fork copied was
paid for by the attempt that it came from. A price that nobody knows is counted as unknown, never as nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from dispatcher.ledger import UnitFacts
from dispatcher.upkeep.remains import Remains
from workers.session import events as ev
from workers.session.costs import PAID
from workers.session.fork import own

__all__ = ["BY", "By", "Call", "Sum", "calls_of", "calls_of_night", "differences", "grouped"]

What = Literal["answer", "compaction", "thinking summary", "broken call"]
By = Literal["unit", "turn", "model", "night"]


@dataclass(frozen=True, slots=True)
class Call:
    """One paid call. `cost` in dollars; None where the price is unknown."""

    night: str
    unit: str
    attempt: int
    turn: int
    what: What
    model: str
    usage: ev.Usage
    cost: Decimal | None
    request_id: str


@dataclass(frozen=True, slots=True)
class Sum:
    """Several calls: tokens by kind, dollars as far as prices are known, and how many calls have none."""

    calls: int = 0
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0

    def plus(self, call: Call) -> "Sum":
        """Return the sum with one more call."""
        usage = call.usage
        return Sum(
            calls=self.calls + 1,
            input=self.input + usage.input_tokens,
            cache_read=self.cache_read + usage.cache_read_input_tokens,
            cache_write=self.cache_write + usage.cache_creation_input_tokens,
            output=self.output + usage.output_tokens,
            cost=self.cost + (call.cost or 0),
            unpriced=self.unpriced + (call.cost is None),
        )


BY: Mapping[By, Callable[[Call], str]] = {
    "unit": lambda call: call.unit,
    "turn": lambda call: f"{call.unit} attempt {call.attempt} turn {call.turn}",
    "model": lambda call: call.model,
    "night": lambda call: call.night,
}
"""What a call is counted under."""


def grouped(calls: Iterable[Call], by: By) -> dict[str, Sum]:
    """Return the sums, in the order in which their first calls come."""
    sums: dict[str, Sum] = {}
    for call in calls:
        name = BY[by](call)
        sums[name] = sums.get(name, Sum()).plus(call)
    return sums


def calls_of_night(night: Remains, unit: str | None = None) -> list[Call]:
    """Return the calls of all sessions that are here and can be read, or those of one unit."""
    logs = [log for log in night.sessions if unit in (None, log.unit)]
    return [call for log in logs for call in calls_of(log.events, night.night, log.unit, log.attempt)]


def calls_of(history: Sequence[Any], night: str, unit: str, attempt: int) -> Iterator[Call]:
    """Yield the calls that an attempt itself paid for."""
    turn, model, copied = 0, "", len(history) - len(own(history))
    for at, event in enumerate(history):
        if isinstance(event, ev.TurnStart):
            turn = event.turn
        elif isinstance(event, ev.StepStart):
            model = event.model
        elif at >= copied and isinstance(event, PAID) and (what := _what(event)) is not None:
            named = model if isinstance(event, ev.AssistantMessage) else event.model
            yield Call(night, unit, attempt, turn, what, named, event.usage, event.cost, event.request_id)


def _what(event: Any) -> What | None:
    match event:
        case ev.AssistantMessage():
            return "answer"
        case ev.Compaction():  # one of version 1 has no model: it was no call
            return "compaction" if event.model else None
        case ev.CallBroken():
            return "broken call"
        case _:
            return "thinking summary"


def differences(night: Remains, unit: str | None = None) -> list[str]:
    """Return in words where sessions and journal do not say the same, and why. Empty: equal to the last digit."""
    spent: dict[tuple[str, int], Sum] = {}
    for call in calls_of_night(night, unit):
        key = (call.unit, call.attempt)
        spent[key] = spent.get(key, Sum()).plus(call)
    here = {(log.unit, log.attempt) for log in night.sessions}
    units = {one: facts for one, facts in night.ledger.units.items() if unit in (None, one)}
    booked = {(one, attempt): cost for one, facts in units.items() for attempt, cost in facts.costs.items()}
    found = []
    for key in sorted({*spent, *booked}):
        in_session, in_journal = spent.get(key, Sum()), booked.get(key, Decimal(0))
        if in_session.cost != in_journal:
            why = _why(key, in_session, in_journal, night.ledger.unit(key[0]), is_here=key in here)
            found.append(f"{key[0]} attempt {key[1]}: ${in_session.cost:.4f}, booked ${in_journal:.4f}: {why}")
    return found


def _why(key: tuple[str, int], spent: Sum, booked: Decimal, facts: UnitFacts, *, is_here: bool) -> str:
    if not is_here:
        return "its session is not here (pruned, unreadable, or on another host)"
    if facts.in_flight and facts.attempt == key[1]:
        return "it is at work, and its report is yet to come"
    if spent.unpriced:
        return "a price is unknown, and what is partly known is not booked"
    if spent.cost > booked:
        return "its worker ended without a report; booked when it goes on"
    return "its session has lost its end"
