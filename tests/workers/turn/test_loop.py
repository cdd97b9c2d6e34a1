"""The turn loop against a server that refuses what the real API refuses, with real tools on a real log."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from loop_stand import GOAL, LoopStand

from workers.errors import Cancelled, LeaseLost
from workers.orders import Answered
from workers.session import events as ev
from workers.session.repair import UNKNOWN_OUTCOME, interrupted_turn_closers
from workers.session.surface import surface
from workers.turn.loop import CUT_OFF, NOT_RUN

Stand = Callable[..., Awaitable[LoopStand]]


def text(words: str) -> dict[str, Any]:
    return {"text": words}


def bash(command: str) -> dict[str, Any]:
    return {"tool": "bash", "input": {"command": command}}


def edit(**given: Any) -> dict[str, Any]:
    return {"tool": "str_replace_based_edit_tool", "input": given}


def ask(question: str) -> dict[str, Any]:
    return {"tool": "ask", "input": {"question": question}}


def step(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"blocks": list(blocks), **more}


DONE = step(text("Done."))


async def until(condition: Callable[[], object], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def is_whole(at: LoopStand) -> None:
    """Nothing is open on disk, and the surface is what the next request can be made of."""
    told = at.durable()
    assert interrupted_turn_closers(told) == []
    assert surface(told).unanswered == []
    assert surface(told).digest == at.session.surface.digest


async def test_tools_until_the_answer(stand: Stand) -> None:
    """A call runs, its result is in the next request, the answer ends the turn; the log has every event in order."""
    at = await stand(step(text("First."), bash("echo hi > f; echo said")), DONE)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.text) == ("completed", "Done.")
    assert (at.tree / "f").read_text() == "hi\n"
    assert at.kinds() == [
        *("turn/start", "user/message", "step/start", "assistant/message", "tool/call", "tool/result", "step/end"),
        *("step/start", "assistant/message", "step/end", "turn/end"),
    ]
    assert at.asked(1)[-1]["content"][0]["content"] == "said"
    assert [e.facts["exit_code"] for e in at.results()] == [0]
    ends = [e for e in at.durable() if isinstance(e, ev.StepEnd)]
    assert [(e.step, e.stop_reason, e.error) for e in ends] == [(1, "tool_use", ""), (2, "end_turn", "")]
    is_whole(at)


async def test_each_request_is_derived_from_the_log(stand: Stand) -> None:
    """The hash in `step/start` is the digest of the log before it, and the log before it is what was sent."""
    at = await stand(step({"thinking": "hm"}, bash("true")), step(bash("false")), DONE)
    await at.loop().run_turn(GOAL)
    told = at.durable()
    starts = [index for index, event in enumerate(told) if isinstance(event, ev.StepStart)]
    assert len(starts) == 3
    for number, index in enumerate(starts):
        view = surface(told[:index])
        assert told[index].request == view.digest
        sent = [{**m, "content": [_unmarked(block) for block in m["content"]]} for m in at.asked(number)]
        assert sent == view.messages
    assert told[starts[0]].thinking == {"type": "adaptive"}
    assert told[starts[0]].max_tokens == 128_000


def _unmarked(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "cache_control"}


async def test_the_step_is_durable_before_the_call(stand: Stand) -> None:
    """`step/start` is on disk before the model is asked."""
    at = await stand(step(text("Done."), latency=0.2))
    task = asyncio.create_task(at.loop().run_turn(GOAL))
    await until(lambda: at.server.requests)
    assert at.kinds() == ["turn/start", "user/message", "step/start"]
    await task


async def test_parallel_calls(stand: Stand) -> None:
    """All calls of a step run in order, a failing one and an unknown one included; their results go out together."""
    at = await stand(
        step(bash("echo one >> f"), bash("echo two >> f; exit 3"), {"tool": "nap"}, edit(command="view", path="f")),
        DONE,
    )
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    results = at.asked(1)[-1]["content"]
    assert [block.get("is_error", False) for block in results] == [False, True, True, False]
    assert results[0]["content"] == "(no output)"
    assert "[exit code 3]" in results[1]["content"]
    assert "There is no tool 'nap'" in results[2]["content"]
    assert results[3]["content"].split() == ["1", "one", "2", "two"]
    assert at.kinds().count("tool/call") == 3  # the unknown one never started
    is_whole(at)


async def test_a_call_is_durable_and_allowed_before_its_effect(stand: Stand) -> None:
    """Whatever can change something is flushed and fenced first; a mere look is neither."""
    at = await stand(step(bash("true"), edit(command="view", path="."), edit(command="create", path="a")), DONE)
    await at.loop().run_turn(GOAL)
    first, second = at.gate.durable_at_effects
    assert first[-2:] == ["assistant/message", "tool/call"]
    assert second[-5:] == ["tool/call", "tool/result", "tool/call", "tool/result", "tool/call"]


async def test_a_refused_effect_never_happens(stand: Stand) -> None:
    """When the lease is lost at the fence the tool does not run, and the loop writes no ending of its own."""
    at = await stand(step(bash("touch f")), DONE)
    at.gate.refuse_effects = LeaseLost("gone")
    with pytest.raises(LeaseLost):
        await at.loop().run_turn(GOAL)
    assert not (at.tree / "f").exists()
    assert at.kinds()[-1] == "tool/call"


async def test_text_in_a_round_with_tools_stays_a_block_of_its_own(stand: Stand) -> None:
    """What was said on the way is never glued to the answer, which is the last step's text alone (spec A12)."""
    at = await stand(step(text("Trying."), bash("false")), step(text("Again."), text("Now."), bash("true")), DONE)
    ended = await at.loop().run_turn(GOAL)
    assert ended.text == "Done."
    said = [
        [block["text"] for block in event.content if block["type"] == "text"]
        for event in at.durable()
        if isinstance(event, ev.AssistantMessage)
    ]
    assert said == [["Trying."], ["Again.", "Now."], ["Done."]]


async def test_thinking_goes_back_as_it_came(stand: Stand) -> None:
    """Signed and redacted thinking is stored and sent again unchanged: the server refuses anything else."""
    at = await stand(step({"thinking": "hm"}, {"redacted": True}, bash("true")), step(bash("true")), DONE)
    ended = await at.loop().run_turn(GOAL)
    assert ended.reason == "completed"
    assert [block["type"] for block in at.asked(2)[1]["content"]] == ["thinking", "redacted_thinking", "tool_use"]


async def test_a_question_suspends_the_turn(stand: Stand) -> None:
    """A question waits until its neighbours have run, is durable, and leaves the turn open and unrepaired."""
    at = await stand(step(ask("Which?"), bash("touch f")), DONE)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.pause and ended.pause.question) == ("suspended", "Which?")
    told = at.durable()
    assert ended.pause_seq == len(told) - 1
    assert isinstance(told[-1], ev.Pause)
    assert (at.tree / "f").exists()
    assert interrupted_turn_closers(told) == []
    assert len(at.server.requests) == 1


async def test_an_answer_goes_on_with_one_call(stand: Stand) -> None:
    """After the answer another loop goes on with the same turn by one fresh call that carries all results."""
    at = await stand(step(ask("Which?"), bash("true")), DONE)
    await at.loop().run_turn(GOAL)
    pause = at.session.last(ev.Pause)
    ended = await at.loop().resume(pause, Answered(text="This.", seq=len(at.session.events) - 1))
    assert (ended.reason, len(at.server.requests)) == ("completed", 2)
    assert [block["content"] for block in at.asked(1)[-1]["content"]] == ["This.", "(no output)"]
    assert at.kinds().count("turn/start") == at.kinds().count("turn/end") == 1
    ends = [(e.step, e.error) for e in at.durable() if isinstance(e, ev.StepEnd)]
    assert ends == [(1, ""), (2, "")]
    is_whole(at)


async def test_one_question_at_a_time(stand: Stand) -> None:
    """A second question of the same step is answered with the reason; an empty one is an error, and no pause."""
    at = await stand(step(ask("  "), {"tool": "ask"}), step(ask("First?"), ask("Second?")), DONE)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.pause and ended.pause.question) == ("suspended", "First?")
    assert ["question" in result.content for result in at.results()] == [True, True, True]
    assert all(result.is_error for result in at.results())
    assert at.kinds().count("pause") == 1


async def test_cut_off_calls_never_run(stand: Stand) -> None:
    """At the output limit no call of the answer runs, valid as it may look: each is told why, and the turn goes on."""
    at = await stand(
        step(bash("touch f"), {"tool": "bash", "raw": '{"command": "touch g"'}, stop="max_tokens"),
        DONE,
    )
    ended = await at.loop().run_turn(GOAL)
    assert ended.reason == "completed"
    assert list(at.tree.iterdir()) == []
    assert [(result.content, result.is_error) for result in at.results()] == [(CUT_OFF, True)] * 2
    assert "tool/call" not in at.kinds()
    is_whole(at)


async def test_an_answer_cut_short_is_no_answer(stand: Stand) -> None:
    """At the output limit without a call the turn ends `max-tokens` and has no text (spec A15, A18)."""
    at = await stand(step(text("Half an ans"), stop="max_tokens"))
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.text) == ("max-tokens", "")
    assert at.durable()[-1] == ev.TurnEnd(turn=1, reason="max-tokens", facts={"error": "agent_output_limit_exceeded"})
    is_whole(at)


@pytest.mark.parametrize("raw", ['{"command": "touch f', '["touch f"]', '{"command": NaN}', '{"command": "\\ud800"}'])
async def test_unreadable_arguments(stand: Stand, raw: str) -> None:
    """Arguments that are no JSON object are answered with the reason, the other calls of the step run."""
    at = await stand(step({"tool": "bash", "raw": raw}, bash("touch g")), DONE)
    ended = await at.loop().run_turn(GOAL)
    assert ended.reason == "completed"
    assert [path.name for path in at.tree.iterdir()] == ["g"]
    bad, good = at.results()
    assert bad.is_error
    assert raw in bad.content
    assert not good.is_error
    is_whole(at)


async def test_calls_beside_the_end_are_not_run(stand: Stand) -> None:
    """An answer that ends without asking for its calls' results has them answered, and the model is asked again."""
    at = await stand(step(bash("touch f"), stop="end_turn"), DONE)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    assert [result.content for result in at.results()] == [NOT_RUN]
    assert list(at.tree.iterdir()) == []


async def test_a_pause_of_the_api_goes_back_unchanged(stand: Stand) -> None:
    """`pause_turn` sends the content back as it is and asks again."""
    at = await stand(step(text("Wait."), stop="pause_turn"), DONE)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    assert at.asked(1)[-1] == {"role": "assistant", "content": [{"type": "text", "text": "Wait."}]}
    is_whole(at)


@pytest.mark.parametrize("blocks", [(text("No."),), (text("No."), bash("touch f"))])
async def test_refusal(stand: Stand, blocks: Any) -> None:
    """A refusal blocks the turn and runs nothing; its calls are answered, so that the session stays usable."""
    at = await stand(step(*blocks, stop="refusal"), DONE)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.facts) == ("blocked", {"cause": "refusal", "details": {"type": "refusal"}})
    assert list(at.tree.iterdir()) == []
    is_whole(at)
    assert (await at.loop().run_turn(ev.UserMessage(source="person", content=GOAL.content))).reason == "completed"


@pytest.mark.parametrize(
    "last", [step(text("?"), stop="sundown"), step(bash("touch f"), stop="sundown"), step(text("?"), stop="tool_use")]
)
async def test_unknown_stop_reason(stand: Stand, last: Any) -> None:
    """A reason that nobody knows, or `tool_use` without a call, is an error with the reason, and runs nothing."""
    at = await stand(last)
    ended = await at.loop().run_turn(GOAL)
    assert ended.reason == "error"
    assert ended.facts["cause"] == "stop_reason"
    assert repr(last["stop"]) in ended.facts["message"]
    assert list(at.tree.iterdir()) == []
    is_whole(at)


async def test_a_failed_call_ends_the_turn_with_its_facts(stand: Stand) -> None:
    """A model error leaves the turn ended `error` with kind, status and request id; nothing of the answer is kept."""
    at = await stand(step(text("Done."), fault={"status": 529}))
    ended = await at.loop().run_turn(GOAL)
    assert ended.reason == "error"
    assert (ended.facts["cause"], ended.facts["status"]) == ("transient", 529)
    assert ended.facts["request_id"].startswith("req_")
    assert at.kinds()[-2:] == ["step/end", "turn/end"]
    assert at.durable()[-2].error == "transient"
    assert (await at.loop().run_turn(ev.UserMessage(source="runtime", content=GOAL.content))).reason == "completed"


async def test_a_stream_without_a_stop_reason_is_an_error(stand: Stand) -> None:
    """An answer without a stop reason is half an answer, and half an answer is not stored."""
    at = await stand(step(text("Do"), stop=None))
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.facts["cause"]) == ("error", "transient")
    assert "assistant/message" not in at.kinds()


async def test_cancelled_in_mid_stream(stand: Stand) -> None:
    """A cancelled task closes the connection at once and leaves the turn ended `aborted`, on disk (spec A10)."""
    at = await stand(step(text("x" * 400), chunk=4, pace=0.05))
    task = asyncio.create_task(at.loop().run_turn(GOAL))
    await until(lambda: at.server.requests and at.server.requests[0].status)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: at.server.requests[0].disconnected, 1)
    assert at.durable()[-1] == ev.TurnEnd(turn=1, reason="aborted", facts={"cause": "cancelled"})
    assert "assistant/message" not in at.kinds()
    is_whole(at)


async def test_cancelled_in_a_tool(stand: Stand) -> None:
    """A cancelled tool is dead when the task ends; its call's outcome is unknown, its neighbour never started."""
    at = await stand(step(bash("touch begun; sleep 60; touch f"), bash("touch g")), DONE)
    task = asyncio.create_task(at.loop().run_turn(GOAL))
    await until((at.tree / "begun").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [path.name for path in at.tree.iterdir()] == ["begun"]
    first, second = at.results()
    assert first.content == UNKNOWN_OUTCOME
    assert "never started" in second.content
    assert at.durable()[-1].reason == "aborted"
    is_whole(at)


async def test_cancelled_while_a_question_is_stored(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel that falls into the question's flush leaves the turn suspended: it was stored, so it stands."""
    at = await stand(step(ask("Which?")))
    record = at.session.record

    async def cancel_at_pause(*batch: Any) -> int:
        seq = await record(*batch)
        if isinstance(batch[0], ev.Pause):
            raise asyncio.CancelledError
        return seq

    monkeypatch.setattr(at.session, "record", cancel_at_pause)
    with pytest.raises(asyncio.CancelledError):
        await at.loop().run_turn(GOAL)
    assert at.kinds()[-1] == "pause"


async def test_stopped_at_a_step_boundary(stand: Stand) -> None:
    """A wish to stop is heard between steps: the tools of the step have their results, the turn is `aborted`."""
    at = await stand(step(bash("touch f")), DONE)
    at.gate.stop = {2: Cancelled("stopped")}
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.facts) == ("aborted", {"cause": "stopped"})
    assert len(at.server.requests) == 1
    assert (at.tree / "f").exists()
    is_whole(at)


async def test_a_lost_lease_ends_nothing(stand: Stand) -> None:
    """A lost lease passes through: the turn is no longer ours to end."""
    at = await stand(step(bash("true")), DONE)
    at.gate.stop = {2: LeaseLost("gone")}
    with pytest.raises(LeaseLost):
        await at.loop().run_turn(GOAL)
    await at.session.flush()
    assert at.kinds()[-1] == "step/end"


async def test_a_step_that_cannot_be_logged_is_not_made(stand: Stand) -> None:
    """A lease lost between the gate and the call: the fenced session takes no `step/start`, so no call is made."""
    at = await stand(DONE)
    lost = [False]
    at.session._fenced = lambda: lost[0]
    show = at.gate.progress

    def lose(state: Any) -> None:
        show(state)
        lost[0] = True

    at.gate.progress = lose
    with pytest.raises(LeaseLost):
        await at.loop().run_turn(GOAL)
    assert at.server.requests == []


async def test_the_gate_knows_the_cost_before_the_next_step(stand: Stand) -> None:
    """What a call cost is shown before the next one is allowed, also when the answer ran no tool."""
    usage = {
        "input_tokens": 100_000,
        "output_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    at = await stand(step(bash("true"), stop="end_turn", usage=usage), step(text("Wait."), stop="pause_turn"), DONE)
    loop = at.loop()
    await loop.run_turn(GOAL)
    assert at.gate.costs_before_steps[0] is None
    assert at.gate.costs_before_steps[1] == Decimal("0.2")  # dollars: a tenth of a million input tokens of Sonnet 5.5
    assert loop.spent == at.gate.shown[-1].cost
    assert at.loop().spent == loop.spent  # the same from the log alone
    assert [(p.turn, p.step) for p in at.gate.shown][-1] == (1, 3)


async def test_an_unknown_price_stays_unknown(stand: Stand) -> None:
    """Without a price the cost is None, never a guess."""
    at = await stand(DONE, model="rehearsal-plain")
    loop = at.loop()
    assert loop.spent == 0
    await loop.run_turn(GOAL)
    assert loop.spent is None
    assert at.loop().spent is None


async def test_labels_for_people(stand: Stand) -> None:
    """Progress names the tool and what it works on, cut to one short line."""
    at = await stand(step(bash("true  # a\nb"), edit(command="view", path="x.py"), {"tool": "bash"}), DONE)
    await at.loop().run_turn(GOAL)
    shown = [state.tool for state in at.gate.shown]
    assert shown == ["thinking", "", "bash: true  # a", "edit_tool: x.py", "bash", "thinking", ""]


async def test_a_tree_that_the_agent_deleted(stand: Stand, tmp_path: Path) -> None:
    """An agent that deletes its own tree is told so, call by call; the loop does not fall over it."""
    at = await stand(step(bash(f"rm -rf {tmp_path}/tree")), step(bash("ls"), edit(command="create", path="a")), DONE)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    assert [result.is_error for result in at.results()] == [False, True, True]
