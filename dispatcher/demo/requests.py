"""Whether the log is the source: every request that was received, derived again from its session's events. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.rehearsal import Record
from workers.session import events as ev
from workers.session.surface import Surface, request

__all__ = ["Rebuilt", "asked_twice", "differences", "is_prefix", "rebuild"]

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A request as the log gives it; `answered` where the log holds the answer too."""

    body: dict[str, Any]
    answered: bool


def rebuild(history: Iterable[Any]) -> list[Rebuilt]:
    """Return the request of every `step/start` in a session, from nothing but the events before it (spec L2)."""
    view = Surface()
    found: list[Rebuilt] = []
    for event in history:
        if isinstance(event, ev.StepStart):
            found.append(Rebuilt(_body(event, view), answered=False))
        elif isinstance(event, ev.AssistantMessage):
            found[-1] = Rebuilt(found[-1].body, answered=True)
        view.add(event)
    return found


def _body(start: ev.StepStart, view: Surface) -> dict[str, Any]:
    made = request(view)
    optional = {"thinking": start.thinking, "output_config": start.output_config}
    return {
        "model": start.model,
        "max_tokens": start.max_tokens,
        "stream": True,
        "system": made.system,
        "tools": made.tools,
        "messages": made.messages,
        **{name: value for name, value in optional.items() if value is not None},
    }


def differences(rebuilt: Sequence[Rebuilt], received: Sequence[Body]) -> list[str]:
    """Return how the received requests differ from the log's, in order; none means that the log is the source.

    A step whose answer never came may have been cut off before its request went out, or have been asked again.
    """
    problems: list[str] = []
    at = 0
    for number, one in enumerate(rebuilt, 1):
        seen = at
        while at < len(received) and received[at] == one.body:
            at += 1
        if at == seen and one.answered:
            problems.append(f"step {number}: the request in the log was never received")
    if at < len(received):
        fields = [name for name in received[at] if all(received[at][name] != one.body.get(name) for one in rebuilt)]
        problems.append(f"request {at + 1} is not in the log ({', '.join(sorted(fields)) or 'another order'})")
    return problems


def is_prefix(earlier: Body, later: Body) -> bool:
    """Tell whether a request's messages, without `cache_control`, begin those of a later one (spec A8)."""
    first, second = _bare(earlier["messages"]), _bare(later["messages"])
    return bool(second[: len(first)] == first)


def _bare(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _bare(part) for name, part in value.items() if name != "cache_control"}
    return [_bare(part) for part in value] if isinstance(value, list) else value


def asked_twice(records: Iterable[Record]) -> int:
    """Return how many assistant messages were asked for again, whatever the question looked like by then."""
    asked = Counter((one.unit, one.attempt, one.step) for one in records)
    return sum(count - 1 for count in asked.values())
