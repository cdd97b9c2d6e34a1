"""When a session may rewrite its past: text for images of tool results, and no thinking comes along."""

from typing import Any

import pytest

from workers.rehearsal.history import History, build
from workers.rehearsal.renewal import is_renewal

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
NOTE = {"type": "text", "text": "(gone)"}
SAID = {"type": "text", "text": "a look"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
GOAL = {"type": "text", "text": "unit: a"}
CALL = {"type": "tool_use", "id": "c", "name": "bash", "input": {}}


def history(
    *, picture: Any = IMAGE, attached: Any = IMAGE, goal: Any = GOAL, thinking: bool = False, **more: Any
) -> History:
    result = {"type": "tool_result", "tool_use_id": "c", "content": [SAID, picture], **more}
    answer = [THINKING, CALL] if thinking else [CALL]
    contents = [[goal, attached], answer, [result]]
    messages = [{"role": ("user", "assistant")[at % 2], "content": blocks} for at, blocks in enumerate(contents)]
    return build({"system": "s", "tools": [], "messages": messages})


LAST = history(thinking=True)


def test_images_that_gave_way() -> None:
    """Text for the image, and the thinking gone: the past may be rewritten so."""
    assert is_renewal(history(picture=NOTE), LAST)


@pytest.mark.parametrize(
    "changed",
    [
        history(),
        history(picture=NOTE, thinking=True),
        history(picture=NOTE, attached=NOTE),
        history(picture=NOTE, goal={"type": "text", "text": "unit: b"}),
        history(picture=NOTE, is_error=True),
        history(picture={**IMAGE, "source": {"type": "base64", "media_type": "image/png", "data": "bbbb"}}),
        build({"system": "t", "tools": [], "messages": []}),
    ],
    ids=["no image", "thinking", "attached", "goal", "result", "another image", "less"],
)
def test_whatever_else_changes(changed: History) -> None:
    """Any other change of the past is a rewritten prefix."""
    assert not is_renewal(changed, LAST)


def later(*, thinking: bool = False) -> History:
    """The session at the beginning of its next turn."""
    answer = [THINKING, CALL] if thinking else [CALL]
    result = {"type": "tool_result", "tool_use_id": "c", "content": [SAID, IMAGE]}
    contents = [[GOAL, IMAGE], answer, [result], [SAID], [GOAL]]
    messages = [{"role": ("user", "assistant")[at % 2], "content": blocks} for at, blocks in enumerate(contents)]
    return build({"system": "s", "tools": [], "messages": messages})


def test_another_model_reads_no_thinking() -> None:
    """A turn under another model may leave all thinking out; under the same one the past stays as it was sent."""
    assert is_renewal(later(), LAST, is_new_model=True)
    assert not is_renewal(later(), LAST)
    assert not is_renewal(history(), LAST, is_new_model=True)  # in the midst of a turn
