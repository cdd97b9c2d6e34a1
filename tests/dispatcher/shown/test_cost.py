"""Cost, call by call: nothing is counted twice, nothing unknown is called nothing, and the journal must agree."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from entries import NIGHT, lost, ordered, reported, verdict

from dispatcher.ledger import Ledger
from dispatcher.shown.cost import Sum, calls_of, calls_of_night, differences, grouped
from dispatcher.upkeep.remains import Remains, SessionLog
from workers.session import events as ev


def usage(output: int = 10) -> ev.Usage:
    return ev.Usage(input_tokens=1, output_tokens=output, cache_creation_input_tokens=2, cache_read_input_tokens=3)


def step(cost: str | None, model: str = "m", number: int = 1) -> Iterator[Any]:
    yield ev.StepStart(step=number, model=model, max_tokens=9, request="r")
    price = None if cost is None else Decimal(cost)
    yield ev.AssistantMessage(content=[], stop_reason="end_turn", usage=usage(), cost=price, request_id=f"req-{number}")


def paid(kind: Any, cost: str, **more: Any) -> Any:
    return kind(model="small", usage=usage(1), cost=Decimal(cost), request_id="req-s", **more)


HISTORY = [
    ev.TurnStart(turn=1),
    *step("0.10"),
    paid(ev.Compaction, "0.02", summary="s", steps=1),
    ev.Compaction(summary="by version 1", steps=1),
    *step("0.20", number=2),
    ev.TurnStart(turn=2),
    *step("0.30", "other", 3),
    paid(ev.ThinkingSummary, "0.01", turn=2, text="t"),
]


def night(*logs: tuple[str, int, list[Any]], entries: list[Any] | None = None) -> Remains:
    ledger = Ledger().extend(entries or [])
    sessions = tuple(SessionLog(unit, attempt, Path("s"), tuple(history), 0) for unit, attempt, history in logs)
    places: dict[str, Any] = {"folder": Path("f"), "journal": Path("j"), "times": (), "entries": (), "torn": 0}
    return Remains(NIGHT, ledger=ledger, sessions=sessions, moving=frozenset(), is_pruned=False, faults=(), **places)


def booked(cost: str | None, unit: str = "a", attempt: int = 1) -> list[Any]:
    price = None if cost is None else Decimal(cost)
    return [ordered(unit, attempt), reported(verdict(unit, "fail", attempt, cost=price))]


def test_every_call_that_was_paid_for_is_one() -> None:
    """Answers under the model of their step, compactions and summaries under their own; each in its turn."""
    calls = list(calls_of(HISTORY, NIGHT, "a", 1))
    assert [(call.turn, call.what, call.model, str(call.cost), call.request_id) for call in calls] == [
        (1, "answer", "m", "0.10", "req-1"),
        (1, "compaction", "small", "0.02", "req-s"),
        (1, "answer", "m", "0.20", "req-2"),
        (2, "answer", "other", "0.30", "req-3"),
        (2, "thinking summary", "small", "0.01", "req-s"),
    ]


def test_calls_that_broke_off_are_among_them() -> None:
    """They are paid for like those that were answered."""
    history = [ev.TurnStart(turn=1), *step("0.10"), paid(ev.CallBroken, "0.20", why="cut")]
    calls = list(calls_of(history, NIGHT, "a", 1))
    assert [(call.what, call.model, str(call.cost)) for call in calls] == [
        ("answer", "m", "0.10"),
        ("broken call", "small", "0.20"),
    ]
    assert differences(night(("a", 1, history), entries=booked("0.30"))) == []


def test_what_a_fork_copied_was_paid_for_already() -> None:
    """Only what stands behind the fork is the attempt's own, under its own turns."""
    history = [*HISTORY, ev.SessionFork(source=1, at=len(HISTORY), attempt=2), ev.TurnStart(turn=3), *step("0.40")]
    assert [(call.turn, call.cost) for call in calls_of(history, NIGHT, "a", 2)] == [(3, Decimal("0.40"))]


def test_sums_by_unit_turn_model_and_night() -> None:
    """All of them add up to the same; tokens are kept apart by kind."""
    calls = calls_of_night(night(("a", 1, HISTORY), ("a", 2, list(step("1"))), ("b", 1, list(step("2")))))
    assert {name: str(one.cost) for name, one in grouped(calls, "unit").items()} == {"a": "1.63", "b": "2"}
    assert list(grouped(calls, "turn"))[:2] == ["a attempt 1 turn 1", "a attempt 1 turn 2"]
    assert {name: str(one.cost) for name, one in grouped(calls, "model").items()} == {
        "m": "3.30",
        "small": "0.03",
        "other": "0.30",
    }
    (whole,) = grouped(calls, "night").values()
    assert whole == Sum(7, input=7, cache_read=21, cache_write=14, output=52, cost=Decimal("3.63"))
    assert [call.unit for call in calls_of_night(night(("a", 1, HISTORY), ("b", 1, HISTORY)), "b")] == ["b"] * 5


def test_an_unknown_price_is_counted_as_unknown() -> None:
    """Beside what is known, never as nothing."""
    calls = list(calls_of([*step("0.10"), *step(None)], NIGHT, "a", 1))
    assert grouped(calls, "unit")["a"].unpriced == 1
    assert grouped(calls, "unit")["a"].cost == Decimal("0.10")


@pytest.mark.parametrize(
    ("logs", "entries", "why"),
    [
        ([("a", 1, HISTORY)], booked("0.63"), None),
        ([("a", 1, HISTORY), ("a", 2, list(step("1")))], [*booked("0.63"), *booked("1", attempt=2)], None),
        ([("a", 1, HISTORY)], [], "its worker ended without a report"),
        ([("a", 1, HISTORY)], [ordered("a"), lost("a", cost=Decimal("0.33"))], "booked $0.3300: its worker ended"),
        ([("a", 1, HISTORY)], [ordered("a")], "it is at work"),
        ([("a", 1, HISTORY[:3])], booked("0.63"), "its session has lost its end"),
        ([], booked("0.63"), "its session is not here"),
        ([("a", 1, [*step("0.10"), *step(None)])], booked(None), "a price is unknown"),
    ],
)
def test_where_sessions_and_journal_differ_it_is_said_why(logs: list[Any], entries: list[Any], why: str | None) -> None:
    """Equal to the last digit, or a line for the attempt that is not."""
    found = differences(night(*logs, entries=entries))
    assert len(found) == (why is not None)
    assert (why or "") in "".join(found)


def test_differences_of_one_unit_are_its_own() -> None:
    """Another unit's are not shown with it."""
    other = night(("b", 1, HISTORY), entries=booked("0.63"))
    assert len(differences(other)) == 2
    assert len(differences(other, "a")) == 1
