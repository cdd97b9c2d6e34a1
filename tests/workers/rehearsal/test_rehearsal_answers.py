"""What the real SDK gets to see of the steps of a script."""

import asyncio
import json
import time
from typing import Any

import pytest
from pictures import picture
from rehearsal_stand import Raise, answered, call, result, script, text, user

from workers.images import prepared
from workers.rehearsal import Script

SHOWN = {"type": "adaptive", "display": "summarized"}


async def test_every_kind_of_block_arrives_in_order(stand: Raise) -> None:
    """Thinking, redacted thinking, text and a tool call come as the SDK's typed blocks, in the script's order."""
    blocks = [
        {"thinking": "let me see"},
        {"redacted": True},
        {"text": "first"},
        {"tool": "bash", "input": {"command": "ls"}},
    ]
    at = await stand({"blocks": blocks})
    message = await at.stream(thinking=SHOWN)
    assert [block.type for block in message.content] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert message.content[0].thinking == "let me see"
    assert message.content[0].signature
    assert message.content[2].text == "first"
    assert message.content[3].input == {"command": "ls"}
    assert message.stop_reason == "tool_use"


async def test_raw_events_are_the_documented_ones(stand: Raise) -> None:
    """The events of one stream stand in the order that the API documents."""
    at = await stand({"blocks": [{"text": "abcdef"}], "chunk": 3})
    events = [event.type for event in await at.events()]
    assert events == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_frames_have_event_lines_and_a_ping(stand: Raise) -> None:
    """On the wire each frame names its event, and a ping follows the start."""
    at = await stand({"blocks": [{"text": "hi"}]})
    async with at.client.messages.with_streaming_response.create(stream=True, **at.request()) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line async for line in response.iter_lines()]
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert names[:2] == ["message_start", "ping"]
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [item["type"] for item in data] == names


async def test_answer_without_a_stream(stand: Raise) -> None:
    """`messages.create` without a stream gets the same blocks in one body."""
    at = await stand({"blocks": [{"text": "hi"}, {"tool": "bash", "input": {"command": "ls"}}]})
    message = await at.client.messages.create(**at.request())
    assert message.content[0].text == "hi"
    assert message.content[1].input == {"command": "ls"}
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize("stop", ["end_turn", "max_tokens", "pause_turn", "refusal", "brand_new", None])
async def test_any_stop_reason_can_be_played(stand: Raise, stop: str | None) -> None:
    """A step's stop reason is passed on as it is, the unknown and the missing too."""
    at = await stand({"blocks": [{"text": "hi"}], "stop": stop})
    assert (await at.stream()).stop_reason == stop


async def test_refusal_carries_stop_details(stand: Raise) -> None:
    """A refusal has the `stop_details` that a client reads."""
    at = await stand({"blocks": [], "stop": "refusal"})
    message = await at.stream()
    assert message.stop_details.type == "refusal"
    assert message.content == []


async def test_raw_arguments_go_out_untouched(stand: Raise) -> None:
    """`raw` is the argument text, cut short where the script cuts it; the SDK makes of it what it makes."""
    raw = '{"command":"rm -rf build","cwd":"/srv/onl'
    at = await stand({"blocks": [{"tool": "bash", "raw": raw}], "stop": "max_tokens", "chunk": 5})
    events = await at.events()
    sent = [event.delta.partial_json for event in events if event.type == "content_block_delta"]
    assert "".join(sent) == raw
    message = await at.stream()
    assert message.content[0].input == {"command": "rm -rf build"}
    assert message.stop_reason == "max_tokens"


async def test_arguments_that_are_no_json_fail_in_the_sdk(stand: Raise) -> None:
    """Raw text that never becomes JSON makes the accumulating stream raise ValueError."""
    at = await stand({"blocks": [{"tool": "bash", "raw": '{"command": nonsense'}]})
    with pytest.raises(ValueError, match="parse tool parameter"):
        await at.stream()


async def test_step_is_the_number_of_assistant_messages(stand: Raise) -> None:
    """The conversation moves the script on, and after its last step it says that it has ended."""
    at = await stand({"blocks": [{"tool": "bash", "input": {}}]}, {"blocks": [{"text": "done"}]})
    messages = [user("go")]
    first = await at.stream(messages)
    messages += [answered(first), user([result(first.content[0].id)])]
    second = await at.stream(messages)
    assert second.content[0].text == "done"
    messages += [answered(second), user("more")]
    third = await at.stream(messages)
    assert (third.content[0].text, third.stop_reason) == ("(script ended)", "end_turn")


async def test_restarted_server_goes_on(stand: Raise) -> None:
    """A server that never saw the session plays the step that the request is at, and checks its thinking."""
    steps = (
        {"blocks": [{"thinking": "hm"}, {"tool": "bash", "input": {}}]},
        {"blocks": [{"text": "second"}]},
    )
    before, after = await stand(*steps), await stand(*steps)
    first = await before.stream()
    second = await after.stream([user("go"), answered(first), user([result(first.content[1].id)])])
    assert second.content[0].text == "second"


async def test_repeat_plays_a_step_many_times(stand: Raise) -> None:
    """`repeat: 2` covers two steps; the next step follows."""
    played = script({"blocks": [{"text": "again {{step}}"}], "repeat": 2}, {"blocks": [{"text": "last"}]})
    at = await stand(played)
    messages: list[Any] = [user("go")]
    said = []
    for _ in range(3):
        message = await at.stream(messages)
        said.append(message.content[0].text)
        messages += [answered(message), user("on")]
    assert said == ["again 0", "again 1", "last"]


async def test_templates_are_filled_in_everywhere(stand: Raise) -> None:
    """{{unit}}, {{attempt}} and {{step}} are replaced in text, in inputs however deep, and in raw arguments."""
    blocks = [
        {"text": "{{unit}}/{{attempt}}/{{step}}"},
        {"tool": "bash", "input": {"list": [{"command": "echo {{unit}}"}]}},
        {"tool": "bash", "raw": '{"command": "{{attempt}}"}'},
    ]
    at = await stand({"blocks": blocks})
    message = await at.stream(system="unit: a\nattempt: 2")
    assert message.content[0].text == "a/2/0"
    assert message.content[1].input == {"list": [{"command": "echo a"}]}
    assert message.content[2].input == {"command": "2"}


async def test_attempts_have_steps_of_their_own(stand: Raise) -> None:
    """An attempt that the script names gets its own steps, all others the unit's."""
    unit = {"steps": [{"blocks": [{"text": "usual"}]}], "attempts": {2: [{"blocks": [{"text": "second"}]}]}}
    at = await stand(Script.parse({"units": {"a": unit}}))
    said = [(await at.stream(system=f"unit: a\nattempt: {n}")).content[0].text for n in (1, 2, 3)]
    assert said == ["usual", "second", "usual"]


async def test_unit_may_be_named_in_the_first_user_message(stand: Raise) -> None:
    """Without a system prompt the first user message says who asks; the attempt is 1 by default."""
    at = await stand({"blocks": [{"text": "{{unit}} {{attempt}}"}]})
    message = await at.stream([user([text("Do it.\nunit: a\n")])], system=None)
    assert message.content[0].text == "a 1"


async def test_unknown_unit_is_refused_by_name(stand: Raise) -> None:
    """A unit that the script does not know is an error that names it and those that are known."""
    at = await stand({"blocks": [{"text": "hi"}]})
    await at.refused("the script has no unit b", "units of the script: a", system="unit: b")
    await at.refused("no default", "unit: <id>", system="nobody")


async def test_default_plays_for_unknown_units(stand: Raise) -> None:
    """With `default` every other unit is answered by it."""
    at = await stand(Script.parse({"default": [{"blocks": [{"text": "hello {{unit}}"}]}]}))
    assert (await at.stream(system="unit: other")).content[0].text == "hello other"


async def test_cue_answers_other_requests(stand: Raise) -> None:
    """A cue whose expression is found answers instead of the step, whatever the step is."""
    cues = [{"last": "(?i)summari[sz]e", "answer": {"blocks": [{"text": "so far: {{step}}"}]}}]
    at = await stand(script({"blocks": [{"text": "step"}]}, cues=cues))
    first = await at.stream()
    assert first.content[0].text == "step"
    summary = await at.stream([user("go"), answered(first), user("Summarise this.")])
    assert summary.content[0].text == "so far: 1"


async def test_step_line_goes_on_after_a_compaction(stand: Raise) -> None:
    """A new context that says `step: 2` is answered by step 2, and is no broken prefix."""
    at = await stand(*({"blocks": [{"text": f"number {n}"}]} for n in range(3)), strict_prefix=True)
    system = "unit: a\nsession: s1"
    first = await at.stream(system=system)
    await at.stream([user("go"), answered(first), user("on")], system=system)
    compacted = await at.stream([user("step: 2\nSummary: much was done")], system=system)
    assert compacted.content[0].text == "number 2"


async def test_same_request_gets_the_same_answer(stand: Raise) -> None:
    """Ids and signatures follow from the request: asked twice, the answers are equal; ids differ within one."""
    blocks = [{"thinking": "x"}, {"tool": "bash", "input": {}}, {"tool": "bash", "input": {}}]
    at = await stand({"blocks": blocks})
    first, second = await at.stream(), await at.stream()
    assert first.to_dict() | {"usage": 0} == second.to_dict() | {"usage": 0}
    assert first.content[1].id.startswith("toolu_")
    assert first.content[1].id != first.content[2].id


@pytest.mark.parametrize(
    ("model", "thinking", "expected"),
    [
        ("claude-sonnet-5-5", None, [""]),
        ("claude-sonnet-5-5", SHOWN, ["x"]),
        ("claude-sonnet-5-5", {"type": "disabled"}, []),
        ("claude-haiku-4-5", None, []),
        ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 1024}, ["x"]),
        ("rehearsal-plain", None, []),
        ("rehearsal-always", {"type": "adaptive"}, [""]),
    ],
)
async def test_thinking_follows_request_and_model(stand: Raise, model: str, thinking: Any, expected: list[str]) -> None:
    """Thinking is left out where it is off, and its text is empty, but signed, where it is omitted."""
    at = await stand({"blocks": [{"thinking": "x"}, {"text": "hi"}]})
    message = await at.stream(model=model, thinking=thinking)
    thoughts = [block for block in message.content if block.type == "thinking"]
    assert [block.thinking for block in thoughts] == expected
    assert all(block.signature for block in thoughts)


async def test_latency_think_time_and_pace_take_their_time(stand: Raise) -> None:
    """The first byte waits for `latency`, the first block for `think_time`, each delta for `pace`."""
    step = {"blocks": [{"text": "abcd"}], "chunk": 1, "latency": 0.1, "think_time": 0.1, "pace": 0.03}
    at = await stand(step)
    began = time.monotonic()
    stream = await at.client.messages.create(stream=True, **at.request())
    at_first = time.monotonic() - began
    kinds = [(event.type, time.monotonic() - began) async for event in stream]
    assert at_first >= 0.1
    assert dict(kinds)["content_block_start"] - dict(kinds)["message_start"] >= 0.08
    assert dict(kinds)["message_stop"] >= 0.2 + 6 * 0.03


async def test_units_are_answered_side_by_side(stand: Raise) -> None:
    """Slow answers do not wait for each other."""
    at = await stand({"blocks": [{"text": "hi"}], "latency": 0.3})
    began = time.monotonic()
    await asyncio.gather(*(at.stream(system=f"unit: a\nattempt: {n}") for n in range(1, 6)))
    assert time.monotonic() - began < 1.4


async def test_tools_and_results_of_every_shape_are_taken(stand: Raise) -> None:
    """What an honest client sends passes: string and list results, images, errors, text after the results."""
    at = await stand({"blocks": [{"text": "hi"}], "repeat": 9})
    image = prepared(picture()).block
    messages = [
        user("go"),
        assistant_calls := {"role": "assistant", "content": [text("running"), call("t1"), call("t2"), call("t3")]},
        user([result("t1"), result("t2", [text("x"), image]), result("t3", is_error=True), text("and go on")]),
    ]
    assert assistant_calls["role"] == "assistant"
    assert (await at.stream(messages)).content[0].text == "hi"
