"""Compaction: a summary stands in for the history, at the right moment, or the turn says why not."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from loop_stand import GOAL, START, LoopStand

from workers.errors import Cancelled
from workers.model.assembly import Answer
from workers.orders import AgentOrder
from workers.session import events as ev
from workers.session.costs import spent
from workers.session.fork import fork
from workers.session.replay import replay
from workers.session.session import Session, read_session
from workers.session.surface import Surface, surface
from workers.turn.compaction import (
    ASK,
    asking,
    expected_input,
    fits,
    is_due,
    limit_of,
    problem_with,
    summary_of,
    writers,
)

Stand = Callable[..., Awaitable[LoopStand]]

SONNET, HAIKU = "claude-sonnet-5-5", "claude-haiku-4-5"
AGENT = AgentOrder(model=SONNET)
ASKS = ASK[:28]
DONE = {"blocks": [{"text": "Done."}]}
LOOK = {"blocks": [{"thinking": "hm"}, {"tool": "bash", "input": {"command": "seq 1500"}}]}  # about 1,800 tokens


def summed(words: str = "Counted to 1500.", **more: Any) -> dict[str, Any]:
    return {"cues": [{"last": ASKS, "answer": {"blocks": [{"text": words}], **more}}]}


def compactions(at: LoopStand) -> list[ev.Compaction]:
    return [event for event in at.durable() if isinstance(event, ev.Compaction)]


def is_aside(body: Any) -> bool:
    return bool(body["messages"][-1]["content"][0].get("text", "").startswith(ASKS))


# -- a session ------------------------------------------------------------------------------------------------------


async def test_three_in_a_session(stand: Stand, tmp_path: Path) -> None:
    """The turn goes on after each; requests only grow in between, and are derived from the log; a fork goes on too."""
    at = await stand(*[LOOK] * 12, DONE, script=summed(), context_cap=6_000)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.text) == ("completed", "Done.")
    made = compactions(at)
    assert len(made) >= 3
    assert {event.summary for event in made} == {"Counted to 1500."}
    told = at.durable()
    assert all(row.ok for row in replay(told))
    before: list[Any] = []
    for count in range(1, len(told) + 1):
        now = surface(told[:count]).messages
        if not isinstance(told[count - 1], ev.Compaction):
            assert now[: len(before)] == before
        before = now
    assert at.session.surface.messages[0]["content"][0] == GOAL.content[0]
    assert at.session.surface.answers == 13
    # a fork from behind the second one goes on, and its requests are the same again
    behind = [seq for seq, event in enumerate(told) if isinstance(event, ev.Compaction)][1] + 1
    target = Session.open(tmp_path / "fork" / "session.jsonl")
    fork(at.session.path, behind, target, source_attempt=1, attempt=2)
    assert target.surface.messages == surface(told[:behind]).messages
    await target.flush()
    target.close()
    forked = LoopStand(at.server, at.client, Session.open(target.path), at.gate, at.tree, at.agent)
    assert (await forked.loop().run_turn(GOAL)).reason == "completed"
    assert all(row.ok for row in replay(read_session(target.path)))
    forked.session.close()


async def test_what_it_costs(stand: Stand) -> None:
    """The call that wrote the summary is in the log with its price, and in what the session has spent."""
    at = await stand(*[LOOK] * 4, DONE, script=summed(), context_cap=6_000)
    loop = at.loop()
    await loop.run_turn(GOAL)
    (made,) = compactions(at)
    assert made.model == SONNET
    assert made.cost is not None
    assert made.cost > 0
    assert made.usage.cache_read_input_tokens > made.usage.input_tokens  # the history came from the cache
    assert made.request_id
    assert loop.spent == spent(at.durable()) == at.gate.shown[-1].cost
    answers = [event.cost for event in at.durable() if isinstance(event, ev.AssistantMessage)]
    assert loop.spent == sum((cost for cost in answers if cost is not None), made.cost)


async def test_the_background_model_writes_it(stand: Stand) -> None:
    """With one configured the summary is its work and its price; it is shown no thinking, which it could not read."""
    at = await stand(*[LOOK] * 4, DONE, script=summed(), context_cap=6_000, background=HAIKU)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    (made,) = compactions(at)
    asked = [request.body for request in at.server.requests if request.body and is_aside(request.body)]
    assert [body["model"] for body in asked] == [made.model] == [HAIKU]
    assert "thinking" not in str([message["content"] for message in asked[0]["messages"][1:]])
    assert made.cost is not None


async def test_a_background_model_that_fails(stand: Stand) -> None:
    """Where the background model is not there, the agent's own writes the summary."""
    at = await stand(*[LOOK] * 4, DONE, script=summed(), context_cap=6_000, background="nobody")
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    assert [event.model for event in compactions(at)] == [SONNET]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"blocks": [{"text": "Long. " * 20_000}]}, "no shorter"),
        ({"blocks": []}, "empty"),
        ({"blocks": [{"text": "Half of"}], "stop": "max_tokens"}, "not finished"),
        ({"blocks": [{"text": "No."}], "stop": "refusal"}, "not finished"),
        ({"blocks": [{"text": "Sum."}, {"tool": "bash", "input": {"command": "touch f"}}]}, "called a tool"),
    ],
)
async def test_a_bad_summary_is_refused(stand: Stand, answer: Any, why: str) -> None:
    """It stands in for nothing, its call is paid for, nothing of it runs, and the turn ends with the reason."""
    cue = {"cues": [{"last": ASKS, "answer": answer}]}
    at = await stand(*[LOOK] * 4, DONE, script=cue, context_cap=6_000)
    loop = at.loop()
    ended = await loop.run_turn(GOAL)
    assert (ended.reason, ended.facts["cause"]) == ("error", "compaction")
    assert why in ended.facts["message"]
    (made,) = compactions(at)
    assert why in made.refused
    assert made.cost is not None
    assert loop.spent == spent(at.durable())
    assert list(at.tree.iterdir()) == []
    view = at.session.surface
    assert len(view.messages) > 3
    assert surface(at.durable()).digest == view.digest
    # nothing is lost: with more room the same session goes on with its whole history
    at.agent = at.agent.model_copy(update={"context_cap": 400_000})
    assert (await at.loop().run_turn(ev.UserMessage(source="person", content=GOAL.content))).reason == "completed"


async def test_a_model_error_is_no_bad_summary(stand: Stand) -> None:
    """Trouble of the endpoint ends the turn as everywhere else, so that no attempt is spent."""
    cue = {"cues": [{"last": ASKS, "answer": {"blocks": [], "fault": {"status": 529, "times": 1}}}]}
    at = await stand(*[LOOK] * 4, DONE, script=cue, context_cap=6_000)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.facts["cause"], ended.facts["status"]) == ("error", "transient", 529)
    assert compactions(at) == []


async def test_what_nobody_has_answered_stays(stand: Stand) -> None:
    """A message that came just before is not summed up: the next call is told it word by word."""
    at = await stand(*[LOOK] * 3, DONE, DONE, script=summed(), context_cap=400_000)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    at.agent = at.agent.model_copy(update={"context_cap": 3_000})
    failed = ev.UserMessage(source="verify", content=[{"type": "text", "text": "Verify failed: one of two."}])
    assert (await at.loop().run_turn(failed)).reason == "completed"
    assert len(compactions(at)) == 1
    body = at.server.requests[-1].body
    assert body is not None
    first, second = body["messages"]
    assert [block["text"][:12] for block in first["content"]] == [GOAL.content[0]["text"][:12], "step: 4\n\nSum"]
    assert second["content"][0]["text"] == "Verify failed: one of two."


async def test_cancelled_while_it_is_written(stand: Stand) -> None:
    """The call is given up, the turn ends `aborted`, and the history is as it was."""
    at = await stand(*[LOOK] * 4, DONE, script=summed(latency=30), context_cap=6_000)
    loop = at.loop()
    task = asyncio.create_task(loop.run_turn(GOAL))
    async with asyncio.timeout(10):
        while not any(request.body and is_aside(request.body) for request in at.server.requests):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # the server's own thread
    loop.cancel("cancelled by a person")
    ended = await asyncio.wait_for(task, 1)
    assert (ended.reason, ended.facts) == ("aborted", {"cause": "cancelled by a person"})
    assert compactions(at) == []
    assert at.durable()[-1].type == "turn/end"


async def test_the_budget_counts_it(stand: Stand) -> None:
    """The gate is shown what the summary cost before the next call may be made."""
    at = await stand(*[LOOK] * 4, DONE, script=summed(), context_cap=6_000)
    seen: list[Any] = []

    async def call(model: str, request: Any, asked: Any, ready: Any, _on_broken: Any) -> Answer:
        await ready()
        seen.append(at.gate.shown[-1].cost if at.gate.shown else None)
        return await at.client.call(model, request, asked)

    loop = at.loop()
    loop._call = call
    await loop.run_turn(GOAL)
    (made,) = compactions(at)
    position = [event.type for event in at.durable() if event.type in ("step/start", "compaction")].index("compaction")
    assert seen[position + 1] == seen[position] + made.cost
    at.gate.stop = {at.gate.steps + 1: Cancelled("budget")}
    assert (await at.loop().run_turn(GOAL)).facts == {"cause": "budget"}


# -- pure -----------------------------------------------------------------------------------------------------------


def said(words: str, **usage: int) -> ev.AssistantMessage:
    content = [{"type": "text", "text": words}]
    return ev.AssistantMessage(content=content, stop_reason="end_turn", usage=ev.Usage(**usage))


def test_what_the_next_call_will_send() -> None:
    """What the last call sent, all kinds of it, and got, and an estimate of what has come since: text and images."""
    used = {
        "input_tokens": 10,
        "cache_read_input_tokens": 1_000,
        "cache_creation_input_tokens": 100,
        "output_tokens": 5,
    }
    told = [START, GOAL, said("Hm.", **used)]
    assert expected_input(told, surface(told)) == 1_115
    image = {"type": "image", "source": {}}
    told += [ev.ToolResult(call_id="a", content="x" * 350, images=[image]), GOAL]
    assert 1_115 + 100 + 1_600 < expected_input(told, surface(told)) < 1_115 + 100 + 1_600 + 40
    told.append(ev.Compaction(summary="y" * 3_500, steps=1))
    assert 1_000 < expected_input(told, surface(told)) < 2_000
    refused = [*told, ev.Compaction(summary="z" * 35_000, steps=1, refused="too long")]
    assert expected_input(refused, surface(refused)) == expected_input(told, surface(told))


def test_the_limit() -> None:
    """A share of the window, or the cap if that is less; a person's word on the window counts."""
    assert limit_of(AGENT) == 400_000
    assert limit_of(AgentOrder(model=HAIKU)) == 170_000
    assert limit_of(AgentOrder(model=HAIKU, window=100_000, compact_at=0.5)) == 50_000


@pytest.mark.parametrize(("sent", "due"), [(399_990, False), (400_001, True)])
def test_when_it_is_due(sent: int, due: bool) -> None:
    """Above the limit, and only if there is something that a summary could take away."""
    told = [START, GOAL, said("Hm.", input_tokens=sent)]
    assert is_due(told, surface(told), AGENT) == due
    told.append(ev.Compaction(summary="s", steps=1))
    assert not is_due([*told, said("Hm.", input_tokens=sent)], surface(told), AGENT)


def test_who_writes() -> None:
    """The background model where it can read that much, and then the agent's own."""
    agent = AgentOrder(model=SONNET, background=HAIKU)
    assert list(writers(agent, 150_000)) == [HAIKU, SONNET]
    assert list(writers(agent, 300_000)) == [SONNET]
    assert list(writers(AGENT, 1)) == [SONNET]
    assert not fits(300_000, agent, HAIKU)


def test_the_task_list_stays_word_by_word() -> None:
    """Whatever the model writes, the list is in the summary as it was last written."""
    answer = Answer([{"type": "text", "text": "Half done."}], "end_turn", ev.Usage(), "", {})
    tasks = ev.TasksWritten(tasks=[{"title": "Round totals", "status": "done"}])
    assert summary_of(answer, tasks).split("\n") == [
        *("Half done.", "", "Task list (update_tasks), as it was last written:", "- Round totals  done"),
    ]
    assert summary_of(answer, None) == "Half done."
    assert summary_of(Answer([], "end_turn", ev.Usage(), "", {}), tasks) == ""


def test_a_goal_that_fills_the_window() -> None:
    """A compaction that would be due again at once is refused, and says what to do."""
    goal = ev.UserMessage(source="goal", content=[{"type": "text", "text": "x" * 35_000}])
    view = surface([START, goal, said("y" * 35_000)])
    answer = Answer([{"type": "text", "text": "Short."}], "end_turn", ev.Usage(), "", {})
    agent = AGENT.model_copy(update={"context_cap": 12_000})
    assert "shorten them, or raise [context] cap" in problem_with(answer, "Short.", view, agent)
    assert problem_with(answer, "Short.", view, AGENT) == ""


def test_a_history_that_is_too_large_goes_without_its_middle() -> None:
    """The first message and the newest steps are sent, pairs whole, without thinking and images, long results cut."""
    view = Surface().extend([START, GOAL])
    for number in range(40):
        call = {"type": "tool_use", "id": f"c{number}", "name": "bash", "input": {}}
        thought = {"type": "thinking", "thinking": "t", "signature": "s"}
        view.add(ev.AssistantMessage(content=[thought, call], stop_reason="tool_use"))
        image = {"type": "image", "source": {"data": "i" * 9_000}}
        view.add(ev.ToolResult(call_id=f"c{number}", content="o" * 50_000, images=[image]))
    sent = asking(view, AGENT.model_copy(update={"window": 50_000}), SONNET, is_too_large=True)
    text = str(sent.messages)
    assert len(text) < 50_000 * 0.5 * 3.5 * 1.2
    assert sent.messages[0]["content"] == GOAL.content
    assert [message["role"] for message in sent.messages[1:3]] == ["assistant", "user"]
    assert "c39" in text
    assert "c0'" not in text
    assert not any(words in text for words in ("thinking", "iiii", "o" * 9_000))
    assert sent.messages[-1]["content"][0]["text"] == ASK
    assert len(view.messages) == 81
