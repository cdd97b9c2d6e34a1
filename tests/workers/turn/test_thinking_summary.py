"""The thinking summary: one a turn, by the background model, priced apart; or nothing, and no error."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from loop_stand import GOAL, LoopStand

from workers.model.assembly import Answer
from workers.session import events as ev
from workers.session.costs import spent
from workers.turn import thinking
from workers.turn.thinking import asking, of_turn, summary_of

Stand = Callable[..., Awaitable[LoopStand]]

THINKS, BACKGROUND = "claude-haiku-4-5", "claude-haiku-5-5"  # the first one shows its thinking
SECRET = "The marker is xyzzy-4711 and nobody else may read it."
LOOK = {"blocks": [{"thinking": SECRET}, {"tool": "bash", "input": {"command": "true"}}]}
DONE = {"blocks": [{"thinking": "Now I am done."}, {"text": "Done."}]}


def answers(words: str = "It looked around. Then it was done.", **more: Any) -> dict[str, Any]:
    """What the background model says; its requests name no unit."""
    return {"cues": [{"model": BACKGROUND, "answer": {"blocks": [{"text": words}] if words else [], **more}}]}


def summaries(at: LoopStand) -> list[ev.ThinkingSummary]:
    return [event for event in at.durable() if isinstance(event, ev.ThinkingSummary)]


async def test_one_a_turn(stand: Stand) -> None:
    """All of a turn's readable thinking goes into one call at its end, whose model and price are named apart."""
    at = await stand(LOOK, LOOK, DONE, model=THINKS, background=BACKGROUND, script=answers())
    loop = at.loop()
    ended = await loop.run_turn(GOAL)
    assert (ended.reason, ended.text) == ("completed", "Done.")
    (made,) = summaries(at)
    assert (made.turn, made.text, made.model) == (1, "It looked around. Then it was done.", BACKGROUND)
    assert made.cost is not None
    assert made.cost > 0
    assert made.request_id
    assert loop.spent == spent(at.durable())
    assert at.kinds()[-2:] == ["thinking/summary", "turn/end"]
    body = at.server.requests[-1].body
    assert body is not None
    assert str(body["messages"]).count(SECRET) == 2
    assert "Now I am done." in str(body["messages"])
    assert len(at.server.requests) == 4


async def test_none_without_a_background_model(stand: Stand) -> None:
    """No model, no summary, no call and no error."""
    at = await stand(LOOK, DONE, model=THINKS, script=answers())
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    assert summaries(at) == []
    assert len(at.server.requests) == 2


async def test_none_of_thinking_that_nobody_can_read(stand: Stand) -> None:
    """Models that show only signatures have nothing to be summed up."""
    at = await stand(LOOK, DONE, background=BACKGROUND, script=answers())
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    assert len(at.server.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        answers(fault={"status": 500, "times": 9}),
        answers(fault={"status": 401, "times": 9}),
        answers(fault={"empty": True, "times": 9}),
        {},
    ],
)
async def test_a_failure_is_no_error(stand: Stand, answer: dict[str, Any]) -> None:
    """Whatever the background model does, the turn ends as it would have, and nothing is said of it."""
    at = await stand(LOOK, DONE, model=THINKS, background=BACKGROUND, script=answer)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    assert summaries(at) == []
    assert at.kinds()[-1] == "turn/end"


async def test_a_slow_one_is_not_waited_for(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn's end waits a little, and then goes on without."""
    monkeypatch.setattr(thinking, "SECONDS", 0.1)
    at = await stand(LOOK, DONE, model=THINKS, background=BACKGROUND, script=answers(latency=30))
    ended = await asyncio.wait_for(at.loop().run_turn(GOAL), 5)
    assert ended.reason == "completed"
    assert summaries(at) == []


def answer(words: str, stop: str = "end_turn") -> Answer:
    return Answer([{"type": "text", "text": words}], stop, ev.Usage(), "", {})


def test_what_is_a_summary() -> None:
    """At most three sentences; one that was cut short, or refused, is none."""
    assert summary_of(answer("One. Two! Three? Four."), SECRET) == "One. Two! Three?"
    assert summary_of(answer("One."), SECRET) == "One."
    assert summary_of(answer("One", "max_tokens"), SECRET) == ""
    assert summary_of(answer("One.", "refusal"), SECRET) == ""
    assert len(summary_of(answer("word " * 1_000), SECRET)) <= 800


@pytest.mark.parametrize("words", [SECRET, f"It said: {SECRET}", "nobody else may read it.", "xyzzy-4711"])
def test_a_copy_is_no_summary(words: str) -> None:
    """What repeats the thinking word by word is not shown."""
    assert summary_of(answer(words), SECRET) == ""
    assert summary_of(answer("It made up its mind."), SECRET) == "It made up its mind."


def test_the_thinking_of_the_last_turn() -> None:
    """Of the last turn alone, oldest first, without signatures; very much of it is sent from its end."""
    block = {"type": "thinking", "signature": "sig"}
    told = [
        ev.TurnStart(turn=1),
        ev.AssistantMessage(content=[{**block, "thinking": "old"}], stop_reason="end_turn"),
        ev.TurnStart(turn=2),
        ev.AssistantMessage(content=[{**block, "thinking": "a"}, {**block, "thinking": " "}], stop_reason="tool_use"),
        ev.AssistantMessage(content=[{"type": "redacted_thinking", "data": "d"}], stop_reason="tool_use"),
        ev.AssistantMessage(content=[{**block, "thinking": "b"}, {**block, "thinking": "c"}], stop_reason="end_turn"),
    ]
    assert of_turn(told) == "a\n\nb\n\nc"
    assert of_turn(told[:3]) == ""
    sent = asking("x" * 100_000 + "end").messages[0]["content"][0]["text"]
    assert len(sent) < 41_000
    assert sent.endswith("end")
