"""The surface: a pure fold whose messages only ever grow, and a request that never touches it."""

import copy
import hashlib
import json
from typing import Any

from histories import START, calls, histories, says, user
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.session import events as ev
from workers.session.repair import interrupted_turn_closers
from workers.session.surface import Surface, request, surface

SLOW = settings(max_examples=60, deadline=None)
LOOK_BACK = 20


def is_answered_at_once(messages: list[dict[str, Any]]) -> None:
    """Every tool_use has exactly one result, in order, first in the very next message; and no result is a stranger."""
    asked: list[str] = []
    for message in messages:
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert results == asked
        assert [block["type"] for block in message["content"][: len(results)]] == ["tool_result"] * len(results)
        asked = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        assert not asked or message["role"] == "assistant"
    assert asked == []


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


def marked(blocks: list[dict[str, Any]]) -> list[int]:
    return [index for index, block in enumerate(blocks) if "cache_control" in block]


def all_blocks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for message in messages for block in message["content"]]


@SLOW
@given(histories())
def test_a_longer_log_extends_a_shorter_ones_messages(told: list[Any]) -> None:
    """The messages of every prefix of a log are a prefix of the whole log's (spec A8)."""
    whole = surface(told)
    for cut in range(1, len(told) + 1):
        part = surface(told[:cut])
        assert part.messages == whole.messages[: len(part.messages)]
        assert (part.system, part.tools) == (whole.system, whole.tools)


@SLOW
@given(histories())
def test_every_call_is_answered_once_in_the_next_message(told: list[Any]) -> None:
    """Cut anywhere and repaired, the messages are what the API takes; only a suspended call waits outside of them."""
    for cut in range(len(told) + 1):
        history = told[:cut]
        view = surface(history + interrupted_turn_closers(history))
        messages = view.messages[:-1] if view.unanswered else view.messages
        is_answered_at_once(messages)


@SLOW
@given(histories(), st.integers(1, 9))
def test_following_event_by_event_is_folding_from_scratch(told: list[Any], stride: int) -> None:
    """The kept-up surface equals the fold of the whole log, and the digest equals a hash computed anew."""
    followed = Surface()
    for start in range(0, len(told), stride):
        followed.extend(told[start : start + stride])
    folded = surface(told)
    assert (followed.system, followed.tools, followed.messages) == (folded.system, folded.tools, folded.messages)
    parts = [[folded.system, folded.tools], *folded.messages]
    lines = "".join(json.dumps(part, separators=(",", ":"), sort_keys=True) + "\n" for part in parts)
    assert followed.digest == folded.digest == hashlib.sha256(lines.encode()).hexdigest()


@SLOW
@given(histories())
def test_a_request_only_adds_breakpoints(told: list[Any]) -> None:
    """A request is the surface with at most four `cache_control` marks; the surface itself stays as it was."""
    view = surface(told)
    before = copy.deepcopy((view.system, view.tools, view.messages, view.digest))
    sent = request(view)
    assert (view.system, view.tools, view.messages, view.digest) == before
    assert [without_marks(part) for part in (sent.system, sent.tools, sent.messages)] == list(before[:3])
    marks = [*marked(sent.system), *marked(sent.tools), *marked(all_blocks(sent.messages))]
    assert len(marks) <= 4
    if view.messages:
        assert marked(sent.system) == [len(view.system) - 1]
        assert marked(sent.tools) == []  # they come before the system prompt
        last_user = [message for message in sent.messages if message["role"] == "user"][-1]
        assert marked(last_user["content"]) == [len(last_user["content"]) - 1]


@SLOW
@given(histories())
def test_the_bytes_sent_are_the_request(told: list[Any]) -> None:
    """Whatever was encoded at an earlier step, and replaced or marked since: the JSON says the same as the lists."""
    view = Surface()
    for event in told:
        view.add(event)
        if isinstance(event, ev.StepStart | ev.ToolResult | ev.Compaction | ev.ImagesDropped | ev.AgentLoaded):
            asked = request(view)
            sent = json.loads(asked.body(model="m", stream=True))
            assert (sent.pop("model"), sent.pop("stream")) == ("m", True)
            assert sent == {"system": asked.system, "tools": asked.tools, "messages": asked.messages}
    assert view.digest == surface(told).digest


def test_arguments_trimmed_after_a_look() -> None:
    """A look between two results of one answer does not keep the untrimmed arguments alive."""
    begun = [START, user("go"), says(calls("a"), calls("b"))]
    first = ev.ToolResult(call_id="a", content="ok", trimmed={"command": "short a"})
    second = ev.ToolResult(call_id="b", content="ok", trimmed={"command": "short b"})
    view = surface([*begun, first])
    request(view).body()
    view.add(second)
    sent = json.loads(request(view).body())["messages"]
    assert [block["input"]["command"] for block in sent[1]["content"]] == ["short a", "short b"]
    assert view.digest == surface([*begun, first, second]).digest


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_the_next_request_finds_the_last_ones_prefix(widths: list[int]) -> None:
    """However many calls a step makes, a breakpoint of the next request is at most 20 blocks behind the last one's."""
    view = surface([START, user("go")])
    last = marked(all_blocks(request(view).messages))[-1]
    for step, width in enumerate(widths):
        names = [f"{step}-{number}" for number in range(width)]
        view.extend([says({"type": "text", "text": "Now."}, *map(calls, names))])
        view.extend(ev.ToolResult(call_id=name, content="ok") for name in names)
        if not names:
            view.extend([user("on")])
        marks = marked(all_blocks(request(view).messages))
        assert any(last <= mark <= last + LOOK_BACK for mark in marks)
        last = marks[-1]


def test_results_go_out_together_in_the_order_of_the_calls() -> None:
    """Results that come in another order, twice, or for no call at all make one clean message when the last is in."""
    view = surface([START, user("go"), says(calls("a"), calls("b"))])
    view.add(ev.ToolResult(call_id="b", content="second"))
    view.add(ev.ToolResult(call_id="b", content="again"))
    view.add(ev.ToolResult(call_id="stranger", content="?"))
    assert len(view.messages) == 2
    assert view.unanswered == ["a"]
    view.add(ev.ToolResult(call_id="a", content="", is_error=True))
    assert view.messages[-1] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "(no output)", "is_error": True},
            {"type": "tool_result", "tool_use_id": "b", "content": "second"},
        ],
    }


def test_an_empty_answer_is_no_message() -> None:
    """The API takes no message without content: an answer of which nothing was kept is left out."""
    assert surface([START, user("go"), says(stop="pause_turn")]).messages == surface([START, user("go")]).messages


def test_an_old_id_in_a_new_step() -> None:
    """Ids are matched within their step: a result for an id of an earlier step answers only the newer call."""
    told = [START, user("go"), says(calls("a")), ev.ToolResult(call_id="a", content="1")]
    view = surface([*told, says(calls("a")), ev.ToolResult(call_id="a", content="2")])
    assert [block["content"] for block in all_blocks(view.messages) if block["type"] == "tool_result"] == ["1", "2"]


def test_what_is_said_beside_running_calls_waits_for_their_results() -> None:
    """A message that arrives while calls are open stands behind their results: the API takes it nowhere else."""
    view = surface([START, user("go"), says(calls("a"), calls("b")), ev.ToolResult(call_id="a", content="1")])
    sent = list(view.messages)
    view.add(user("Mind the gap.", "person"))
    assert view.messages == sent
    view.add(ev.ToolResult(call_id="b", content="2"))
    assert view.messages[: len(sent)] == sent
    assert [message["content"][0]["type"] for message in view.messages[len(sent) :]] == ["tool_result", "text"]
    assert view.messages[-1]["content"][0]["text"] == "Mind the gap."
