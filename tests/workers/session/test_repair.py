"""Repair: a log that was cut off anywhere becomes whole, by three kinds of events and nothing else."""

from typing import Any

import pytest
from histories import START, calls, histories, is_suspended, says, step_start, user
from hypothesis import given, settings

from workers.session import events as ev
from workers.session.repair import NEVER_STARTED, UNKNOWN_OUTCOME, interrupted_turn_closers

SLOW = settings(max_examples=60, deadline=None)


def open_things(history: list[Any]) -> tuple[set[str], bool, bool]:
    """Calls without a result, whether a step is open, whether a turn is open: counted, not folded."""
    asked = {
        block["id"]
        for event in history
        if isinstance(event, ev.AssistantMessage)
        for block in event.content
        if block["type"] == "tool_use"
    }
    answered = {event.call_id for event in history if isinstance(event, ev.ToolResult)}

    def more(start: type, end: type) -> bool:
        return sum(isinstance(e, start) for e in history) > sum(isinstance(e, end) for e in history)

    return asked - answered, more(ev.StepStart, ev.StepEnd), more(ev.TurnStart, ev.TurnEnd)


@SLOW
@given(histories())
def test_cut_anywhere_and_repaired_is_whole(told: list[Any]) -> None:
    """After the repair nothing is open, every call has one result, and only the three kinds were added, in order."""
    for cut in range(len(told) + 1):
        history = told[:cut]
        closers = interrupted_turn_closers(history)
        if is_suspended(history):
            assert closers == []
            continue
        orphans, step, turn = open_things(history)
        kinds = [type(event) for event in closers]
        assert kinds == [ev.ToolResult] * len(orphans) + [ev.StepEnd] * step + [ev.TurnEnd] * turn
        assert {event.call_id for event in closers if isinstance(event, ev.ToolResult)} == orphans
        assert open_things(history + closers) == (set(), False, False)
        assert interrupted_turn_closers(history + closers) == []


@SLOW
@given(histories())
def test_closers_say_what_is_known(told: list[Any]) -> None:
    """A call without `tool/call` never started; one with it has an unknown outcome; the turn was interrupted."""
    for cut in range(len(told) + 1):
        started = {event.call_id for event in told[:cut] if isinstance(event, ev.ToolCall)}
        for event in interrupted_turn_closers(told[:cut]):
            match event:
                case ev.ToolResult():
                    assert event.is_error
                    assert event.content == (UNKNOWN_OUTCOME if event.call_id in started else NEVER_STARTED)
                case ev.StepEnd():
                    assert event.error == "interrupted"
                case ev.TurnEnd():
                    assert event.reason == "interrupted"


def test_numbers_are_those_of_what_was_open() -> None:
    """Closers name the step and turn that they close."""
    history = [START, ev.TurnStart(turn=1), ev.TurnEnd(turn=1, reason="completed"), ev.TurnStart(turn=2), step_start(7)]
    assert interrupted_turn_closers(history) == [
        ev.StepEnd(step=7, error="interrupted"),
        ev.TurnEnd(turn=2, reason="interrupted"),
    ]


@pytest.mark.parametrize("answered", [False, True])
def test_a_suspended_turn_is_no_orphan(answered: bool) -> None:
    """A stored question leaves its turn as it is; once answered, a cut-off turn is an orphan like any other."""
    history = [
        *(START, ev.TurnStart(turn=1), user("go"), step_start(1), says(calls("a"), calls("q"))),
        *(ev.ToolResult(call_id="a", content="ok"), ev.Pause(call_id="q", question="Which?")),
    ]
    if answered:
        history += [ev.Resume(call_id="q", text="This."), ev.ToolResult(call_id="q", content="This.")]
    kinds = [type(event) for event in interrupted_turn_closers(history)]
    assert kinds == ([ev.StepEnd, ev.TurnEnd] if answered else [])


def test_strangers_close_nothing_and_open_nothing() -> None:
    """An unknown event, and an unknown ending of a turn, are valid strangers (spec L8)."""
    history = [
        *(START, ev.TurnStart(turn=1), user("go"), ev.Unknown(name="x/y", payload={})),
        ev.TurnEnd(turn=1, reason="eaten-by-a-whale"),
    ]
    assert interrupted_turn_closers(history) == []
