"""Cancelling a turn, wherever it is: the call's connection closes, what runs is dead, the log is whole and final."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from loop_stand import GOAL, LoopStand

from workers.errors import LeaseLost
from workers.session import events as ev
from workers.session.repair import UNKNOWN_OUTCOME, interrupted_turn_closers
from workers.session.surface import surface
from worktrees.containment import tagged

Stand = Callable[..., Awaitable[LoopStand]]

WHY = "cancelled by a person"
DONE = {"blocks": [{"text": "Done."}]}
SILENT = {"blocks": [{"thinking": "hm"}, {"text": "Done."}], "think_time": 60}


def bash(command: str) -> dict[str, Any]:
    return {"blocks": [{"tool": "bash", "input": {"command": command}}]}


async def until(condition: Callable[[], object], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def is_final(at: LoopStand, ended: Any) -> None:
    """The turn ended `aborted` with the cause; the log is whole, nothing runs, and nothing comes after it."""
    assert (ended.reason, ended.facts) == ("aborted", {"cause": WHY})
    told = at.durable()
    assert told[-1] == ev.TurnEnd(turn=1, reason="aborted", facts={"cause": WHY})
    assert interrupted_turn_closers(told) == []
    assert surface(told).unanswered == []
    assert [event.type for event in told].count("turn/end") == 1
    assert tagged(f"test-{at.tree}") == []
    size = at.session.path.stat().st_size
    await asyncio.sleep(0.05)
    assert at.session.path.stat().st_size == size


async def test_during_a_silent_think(stand: Stand) -> None:
    """The server sees the connection close within a second, though nothing was being sent."""
    at = await stand(SILENT)
    loop = at.loop()
    task = asyncio.create_task(loop.run_turn(GOAL))
    await until(lambda: at.server.requests and at.server.requests[0].status)
    asked_at = time.time()
    loop.cancel(WHY)
    await is_final(at, await asyncio.wait_for(task, 1))
    await until(lambda: at.server.requests[0].disconnected, 1)
    assert (at.server.requests[0].disconnected or 0) - asked_at < 1
    assert "assistant/message" not in at.kinds()
    assert len(at.server.requests) == 1


async def test_while_a_command_runs(stand: Stand) -> None:
    """Its whole tree is dead, children that left its process group included; what it did is not known."""
    at = await stand(bash("(setsid sh -c 'sleep 61 & sleep 62' &); sleep 63 & touch begun; sleep 64"), DONE)
    loop = at.loop()
    task = asyncio.create_task(loop.run_turn(GOAL))
    await until((at.tree / "begun").exists)
    assert tagged(f"test-{at.tree}")
    loop.cancel(WHY)
    await is_final(at, await asyncio.wait_for(task, 5))
    assert [result.content for result in at.results()] == [UNKNOWN_OUTCOME]


async def test_between_two_steps(stand: Stand) -> None:
    """The step that is over stays as it is, and no other call is made."""
    at = await stand(bash("touch made"), DONE)
    loop = at.loop()
    pass_on = at.gate.before_step

    async def before_step() -> None:
        await pass_on()
        if at.gate.steps == 2:
            loop.cancel(WHY)

    at.gate.before_step = before_step  # type: ignore[method-assign]
    await is_final(at, await loop.run_turn(GOAL))
    assert len(at.server.requests) == 1
    assert [result.content for result in at.results()] == [""]


async def test_before_the_first_step(stand: Stand) -> None:
    """Asked before the turn began, it ends without a call; so does every later one of the loop."""
    at = await stand(DONE)
    loop = at.loop()
    loop.cancel(WHY)
    await is_final(at, await loop.run_turn(GOAL))
    assert (await loop.run_turn(GOAL)).reason == "aborted"
    assert at.server.requests == []


async def test_twice(stand: Stand) -> None:
    """The first reason stands; whoever cancels the task as well, while the turn is being ended, hears of it then."""
    at = await stand(SILENT)
    loop = at.loop()
    task = asyncio.create_task(loop.run_turn(GOAL))
    await until(lambda: at.server.requests)
    loop.cancel(WHY)
    loop.cancel("another reason")
    await is_final(at, await asyncio.wait_for(task, 1))
    loop.cancel("too late")
    await is_final(at, task.result())


async def test_the_task_too(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is cancelled while its turn is being ended waits for the end to be durable, and is cancelled then."""
    at = await stand(SILENT)
    loop = at.loop()
    flush = at.session.flush
    is_ending = asyncio.Event()

    async def slow() -> None:
        if at.session.events[-1].type == "turn/end":
            is_ending.set()
            await asyncio.sleep(0.1)
        await flush()

    monkeypatch.setattr(at.session, "flush", slow)
    task = asyncio.create_task(loop.run_turn(GOAL))
    await until(lambda: at.server.requests)
    loop.cancel(WHY)
    await is_ending.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    try:
        ended = await task
    except asyncio.CancelledError:
        ended = None
    assert at.durable()[-1].type == "turn/end"
    assert ended is None, "a cancelled task must not go on"


async def test_a_lost_lease_appends_nothing(stand: Stand) -> None:
    """Somebody else owns the unit: the call is given up, and not a byte is written, not even how the turn ended."""
    at = await stand(SILENT)
    lost = [False]
    at.session._fenced = lambda: lost[0]
    task = asyncio.create_task(at.loop().run_turn(GOAL))
    await until(lambda: at.server.requests)
    before = at.session.path.read_bytes()
    lost[0] = True
    task.cancel()
    with pytest.raises((LeaseLost, asyncio.CancelledError)):
        await task
    await until(lambda: at.server.requests[0].disconnected, 1)
    assert at.session.path.read_bytes() == before
    assert at.session.events[-1].type == "step/start"
