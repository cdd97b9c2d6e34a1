"""Every stop reason, played to the real SDK: what the turn does, what is stored, and what is never done."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from loop_stand import GOAL, LoopStand

from workers.model.assembly import Answer
from workers.orders import Answered
from workers.session import events as ev
from workers.session.repair import interrupted_turn_closers
from workers.session.surface import surface
from workers.turn.compaction import ASK
from workers.turn.loop import CUT_OFF, NO_ROOM, NOT_RUN, UNREADABLE
from workers.turn.stops import MOST_CUT_OFF

Stand = Callable[..., Awaitable[LoopStand]]

TEXT = {"text": "Half of it."}
TOUCH = {"tool": "bash", "input": {"command": "touch made"}}
BROKEN = {"tool": "bash", "raw": '{"command": "rm -rf build", "cwd": "/tmp/onl'}
ASKS = {"tool": "ask", "input": {"question": "Which?"}}
DONE = {"blocks": [{"text": "Done."}]}
OUTPUT_LIMIT = {"error": "agent_output_limit_exceeded"}
WINDOW = {"error": "model_context_window_exceeded"}
REFUSAL = {"cause": "refusal", "details": {"type": "refusal"}}

# blocks, stop reason, how the turn ends, its facts (those that matter), what the calls are told, calls of the model
TABLE: list[tuple[list[dict[str, Any]], str | None, str, dict[str, Any], list[str], int]] = [
    ([TEXT], "end_turn", "completed", {}, [], 1),
    ([TEXT, TOUCH], "end_turn", "completed", {}, [NOT_RUN], 2),
    ([TEXT], "stop_sequence", "completed", {}, [], 1),
    ([TOUCH], "stop_sequence", "completed", {}, [NOT_RUN], 2),
    ([TOUCH], "tool_use", "completed", {}, ["(no output)"], 2),
    ([BROKEN], "tool_use", "completed", {}, [UNREADABLE + BROKEN["raw"]], 2),
    ([TEXT], "tool_use", "error", {"cause": "stop_reason"}, [], 1),
    ([ASKS], "tool_use", "suspended", {}, [], 1),
    ([TEXT], "pause_turn", "completed", {}, [], 2),
    ([TEXT, TOUCH], "pause_turn", "completed", {}, [NOT_RUN], 2),
    ([TEXT], "max_tokens", "max-tokens", OUTPUT_LIMIT, [], 1),
    ([], "max_tokens", "max-tokens", OUTPUT_LIMIT, [], 1),
    ([TEXT, TOUCH, BROKEN], "max_tokens", "completed", {}, [CUT_OFF, CUT_OFF], 2),
    ([TEXT], "refusal", "blocked", REFUSAL, [], 1),
    ([TEXT, TOUCH], "refusal", "blocked", REFUSAL, [NOT_RUN], 1),
    ([], "refusal", "blocked", REFUSAL, [], 1),
    ([TEXT], "sundown", "error", {"cause": "stop_reason", "message": "stop reason 'sundown'"}, [], 1),
    ([TOUCH], "sundown", "error", {"cause": "stop_reason"}, [NOT_RUN], 1),
    ([TEXT], None, "error", {"cause": "transient"}, [], 1),
    ([TOUCH], None, "error", {"cause": "transient"}, [], 1),
]


@pytest.mark.parametrize(("blocks", "stop", "reason", "facts", "told", "requests"), TABLE)
async def test_every_reason(  # noqa: PLR0917  # one row of the table
    stand: Stand,
    blocks: list[dict[str, Any]],
    stop: str | None,
    reason: str,
    facts: dict[str, Any],
    told: list[str],
    requests: int,
) -> None:
    """The turn ends as the row says; only `tool_use` runs a call; the session stays whole and can be gone on with."""
    at = await stand({"blocks": blocks, "stop": stop}, DONE)
    ended = await at.loop().run_turn(GOAL)
    assert ended.reason == reason
    assert facts.items() <= ended.facts.items()
    assert [result.content or "(no output)" for result in at.results()] == told
    assert len(at.server.requests) == requests
    assert (at.tree / "made").exists() == (blocks == [TOUCH] and stop == "tool_use")
    if reason != "completed":
        assert ended.text == ""  # half an answer is never the answer
    if reason == "suspended":
        ended = await at.loop().resume(ended.pause, Answered(text="This.", seq=ended.pause_seq or 0))  # type: ignore[arg-type]
        assert ended.reason == "completed"
    assert interrupted_turn_closers(at.durable()) == []
    assert surface(at.durable()).digest == at.session.surface.digest


WINDOW_FULL = {"blocks": [TEXT, TOUCH], "stop": "model_context_window_exceeded"}
LOOK = {"blocks": [{"tool": "bash", "input": {"command": "seq 400"}}]}
SUMMED = {"cues": [{"last": ASK[:28], "answer": {"blocks": [{"text": "Made a start."}]}}]}


async def test_a_full_window_is_compacted(stand: Stand) -> None:
    """The calls of an answer that the window cut off do not run; a summary makes room, and the turn goes on."""
    at = await stand(LOOK, WINDOW_FULL, DONE, script=SUMMED)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.text) == ("completed", "Done.")
    assert at.results()[-1].content == NO_ROOM
    assert list(at.tree.iterdir()) == []
    assert [event.summary for event in at.durable() if isinstance(event, ev.Compaction)] == ["Made a start."]
    assert len(at.server.requests) == 4


async def test_a_window_that_stays_full_ends_the_turn(stand: Stand) -> None:
    """A second time in a row, a summary does not help: the turn ends and says so, instead of looping."""
    at = await stand(LOOK, WINDOW_FULL, WINDOW_FULL, DONE, script=SUMMED)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.facts) == ("max-tokens", WINDOW)
    assert len(at.server.requests) == 4


async def test_the_next_turn_may_be_compacted_again(stand: Stand) -> None:
    """A compaction that did not help is the matter of its own turn: the same loop's next one may try again."""
    at = await stand(LOOK, WINDOW_FULL, WINDOW_FULL, WINDOW_FULL, DONE, script=SUMMED)
    loop = at.loop()
    assert (await loop.run_turn(GOAL)).reason == "max-tokens"
    ended = await loop.run_turn(ev.UserMessage(source="runtime", content=[{"type": "text", "text": "Go on."}]))
    assert ended.reason == "completed"
    assert len([event for event in at.durable() if isinstance(event, ev.Compaction)]) == 2


async def test_calls_that_are_always_cut_off_end_the_turn(stand: Stand) -> None:
    """A model that hits the output limit in its arguments again and again does not loop for ever; one good call counts
    from anew.
    """
    cut = {"blocks": [TOUCH], "stop": "max_tokens"}
    at = await stand(*[cut] * (MOST_CUT_OFF - 1), LOOK, *[cut] * MOST_CUT_OFF, DONE)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.facts) == ("max-tokens", OUTPUT_LIMIT)
    assert len(at.server.requests) == 2 * MOST_CUT_OFF
    assert list(at.tree.iterdir()) == []
    assert interrupted_turn_closers(at.durable()) == []


@pytest.mark.parametrize("stop", ["tool_use", "max_tokens"])
async def test_a_call_without_a_name_is_a_hard_error(stand: Stand, stop: str) -> None:
    """Such a call can be neither run nor answered: the turn ends, it is not stored, and its cost is (spec A18)."""
    at = await stand()
    good = {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "touch made"}}
    answer = Answer([good, {**good, "id": "b", "name": ""}], stop, ev.Usage(output_tokens=7), "req_1", {})
    loop = at.loop()

    async def call(*_: Any) -> Answer:
        return answer

    loop._call = call
    ended = await loop.run_turn(GOAL)
    assert (ended.reason, ended.facts["cause"]) == ("error", "nameless_call")
    (stored,) = [event for event in at.durable() if isinstance(event, ev.AssistantMessage)]
    assert (stored.content, stored.usage.output_tokens) == ([good], 7)
    assert list(at.tree.iterdir()) == []
    assert [result.is_error for result in at.results()] == [True]
    assert surface(at.durable()).unanswered == []


async def test_a_request_that_is_too_large_is_compacted_once(stand: Stand) -> None:
    """A 413 makes room and asks again."""
    large = {"blocks": [{"text": "?"}], "fault": {"status": 413, "times": 9}}
    shorter = {"first": "Made a start", "steps": [LOOK, DONE]}
    at = await stand(LOOK, large, script={"cues": [*SUMMED["cues"], shorter]})
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, len(at.server.requests)) == ("completed", 4)
    steps = [(event.step, event.error) for event in at.durable() if isinstance(event, ev.StepEnd)]
    assert steps == [(1, ""), (2, "too_large"), (3, "")]


async def test_a_request_that_stays_too_large_ends_the_turn(stand: Stand) -> None:
    """What is too large even with a summary, or has nothing to be summarized, ends the turn `error` at once."""
    large = {"blocks": [{"text": "?"}], "fault": {"status": 413, "times": 9}}
    at = await stand(LOOK, large, script=SUMMED)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.facts["cause"], ended.facts["status"]) == ("error", "too_large", 413)
    assert len(at.server.requests) == 4
    assert interrupted_turn_closers(at.durable()) == []


async def test_a_first_request_that_is_too_large_ends_the_turn(stand: Stand) -> None:
    """There is nothing to summarize: one call, one ending."""
    at = await stand({"blocks": [{"text": "?"}], "fault": {"status": 413, "times": 9}})
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.facts["cause"], len(at.server.requests)) == ("error", "too_large", 1)
