"""What a stop reason decides: every one has a row, strangers included."""

from typing import Any

import pytest

from workers.turn.stops import Next, after, calls_of, named, text_of


@pytest.mark.parametrize(
    ("reason", "with_calls", "without"),
    [
        ("tool_use", Next.RUN_TOOLS, Next.BROKEN),
        ("end_turn", Next.REJECT_CALLS, Next.DONE),
        ("stop_sequence", Next.REJECT_CALLS, Next.DONE),
        ("pause_turn", Next.REJECT_CALLS, Next.CALL_AGAIN),
        ("max_tokens", Next.REJECT_CALLS, Next.CUT_SHORT),
        ("model_context_window_exceeded", Next.SHRINK, Next.SHRINK),
        ("refusal", Next.REFUSED, Next.REFUSED),
        ("tomorrow's reason", Next.BROKEN, Next.BROKEN),
        ("", Next.BROKEN, Next.BROKEN),
    ],
)
def test_every_reason(reason: str, with_calls: Next, without: Next) -> None:
    """Calls run after `tool_use` alone; an answer is done only when it ended by itself and asked for nothing."""
    assert after(reason, has_calls=True) is with_calls
    assert after(reason, has_calls=False) is without


CONTENT = [
    {"type": "thinking", "thinking": "secret", "signature": "s"},
    {"type": "text", "text": " One. "},
    {"type": "tool_use", "id": "a", "name": "bash", "input": {}},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "text", "text": "Two."},
    {"type": "tool_use", "id": "b", "name": "bash", "input": {}},
]


def test_calls_in_order() -> None:
    """The calls of an answer, in its order."""
    assert [block["id"] for block in calls_of(CONTENT)] == ["a", "b"]


@pytest.mark.parametrize("lacking", [{"name": ""}, {"id": ""}, {"id": None, "name": None}])
def test_a_call_without_a_name(lacking: dict[str, Any]) -> None:
    """A call that no result could name is not kept: it could neither run nor go back."""
    nameless = {"type": "tool_use", "id": "c", "name": "bash", "input": {}, **lacking}
    assert named([*CONTENT, nameless]) == CONTENT


def test_people_never_see_thinking() -> None:
    """People see the text blocks, apart from each other, and no thinking of any kind (spec A5)."""
    assert text_of(CONTENT) == "One.\n\nTwo."
    assert text_of([]) == ""
