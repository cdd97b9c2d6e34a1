"""Every request rebuilt from the log: the same hash as when it was sent, and no reasoning shown."""

import json
from typing import Any

from histories import START, histories, says, step_start, user
from hypothesis import given

from workers.session import events as ev
from workers.session.replay import HIDDEN, replay, request_of
from workers.session.surface import Surface, surface

THINKING = [
    {"type": "thinking", "thinking": "secret thoughts", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "b3BhcXVl"},
    {"type": "text", "text": "Done."},
]


def recorded(history: list[Any]) -> list[Any]:
    """A history whose steps hold the hash that the loop would have recorded."""
    view, made = Surface(), []
    for event in history:
        if isinstance(event, ev.StepStart):
            event = event.model_copy(update={"request": view.digest})  # noqa: PLW2901
        view.add(event)
        made.append(event)
    return made


@given(histories())
def test_an_untouched_log_gives_every_request(history: list[Any]) -> None:
    """One row for each step, in order, with its place in the log."""
    told = recorded(history)
    rows = replay(told)
    assert all(row.ok for row in rows)
    assert [row.seq for row in rows] == [seq for seq, event in enumerate(told) if isinstance(event, ev.StepStart)]


@given(histories())
def test_another_past_gives_other_requests(history: list[Any]) -> None:
    """A changed first message changes every request behind it."""
    told = recorded(history)
    changed = [user("something else") if isinstance(event, ev.UserMessage) else event for event in told]
    assert not any(row.ok for row in replay(changed))


def test_a_request_is_shown_without_the_reasoning() -> None:
    """A note stands in its place, its signature is gone too; the log itself still has it. No such step is None."""
    history = [START, ev.TurnStart(turn=1), user("go"), step_start(1), says(*THINKING), step_start(2)]
    shown = request_of(history, 2)
    assert shown is not None
    text = json.dumps(shown)
    assert "secret thoughts" not in text
    assert "c2ln" not in text
    assert "b3BhcXVl" not in text
    assert [block.get("note") for block in shown["messages"][1]["content"]] == [HIDDEN, HIDDEN, None]
    assert surface(history).messages[1]["content"] == THINKING
    assert request_of(history, 1) is not None
    assert request_of(history, 3) is None
