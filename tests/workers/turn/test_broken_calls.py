"""Calls that never came to a whole answer are paid for all the same: in the log, in the sums, and before the gate."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from loop_stand import GOAL, LoopStand

from workers.errors import Cancelled
from workers.model.patience import Patience
from workers.session import events as ev
from workers.session.costs import spent
from workers.session.surface import surface

Stand = Callable[..., Awaitable[LoopStand]]

NOTHING_CACHED = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
MILLION = {"usage": {"input_tokens": 1_000_000, "output_tokens": 0, **NOTHING_CACHED}}
"""Two dollars a call."""
SAYS = {"blocks": [{"text": "A long answer that goes on and on."}], "chunk": 4, **MILLION}


def tried_again(at: LoopStand) -> Any:
    """A loop whose calls are tried again as in a night, only sooner."""
    patience = Patience(base=0.01)

    async def call(model: str, request: Any, asked: Any, ready: Any, on_broken: Any) -> Any:
        return await patience.call(lambda: at.client.call(model, request, asked, on_broken=on_broken), ready=ready)

    loop = at.loop()
    loop._call = call
    return loop


def broken(at: LoopStand) -> list[ev.CallBroken]:
    return [event for event in at.durable() if isinstance(event, ev.CallBroken)]


@pytest.mark.parametrize(
    "fault", [{"cut": "mid_block"}, {"cut": "after_start"}, {"eof": "mid_block"}, {"error_event": "api_error"}]
)
async def test_tries_that_broke_off(stand: Stand, fault: dict[str, Any]) -> None:
    """Each is an event with its model, tokens, price, id and reason; the model sees nothing of it."""
    at = await stand({**SAYS, "fault": {**fault, "times": 3}})
    loop = tried_again(at)
    assert (await loop.run_turn(GOAL)).reason == "completed"
    told = broken(at)
    assert [(one.model, one.usage.input_tokens, one.cost >= 2, bool(one.why)) for one in told] == [
        ("claude-sonnet-5-5", 1_000_000, True, True)
    ] * 3
    assert all(one.request_id for one in told)
    assert spent(at.durable()) == loop.spent >= 8
    assert at.kinds().count("step/start") == 1
    without = [event for event in at.durable() if not isinstance(event, ev.CallBroken)]
    assert surface(at.durable()).digest == surface(without).digest


async def test_the_gate_sees_each_before_the_next_try(stand: Stand) -> None:
    """What a try used is durable and counted before another may be made: a budget is not overrun by many tries."""
    at = await stand({**SAYS, "fault": {"cut": "mid_block", "times": 5}})
    durable: list[int] = []

    async def before_step() -> None:
        durable.append(len(broken(at)))
        if at.gate.shown and (at.gate.shown[-1].cost or 0) >= 4:
            raise Cancelled("budget")

    at.gate.before_step = before_step  # type: ignore[method-assign]
    ended = await tried_again(at).run_turn(GOAL)
    assert (ended.reason, ended.facts) == ("aborted", {"cause": "budget"})
    assert len(at.server.requests) == 2
    assert durable[-1] == 2


async def test_a_cancelled_think(stand: Stand) -> None:
    """A person ends a call that was still thinking: its input is paid for."""
    at = await stand({**SAYS, "think_time": 60})
    loop = at.loop()
    task = asyncio.create_task(loop.run_turn(GOAL))
    async with asyncio.timeout(10):
        while not (at.server.requests and at.server.requests[0].status):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # the server's own thread
        await asyncio.sleep(0.1)
    loop.cancel("cancelled by a person")
    assert (await asyncio.wait_for(task, 2)).reason == "aborted"
    (told,) = broken(at)
    assert (told.why, told.usage.input_tokens) == ("cancelled", 1_000_000)
    assert at.kinds()[-3:] == ["call/broken", "step/end", "turn/end"]


async def test_a_call_that_was_never_answered(stand: Stand) -> None:
    """A refused connection or a status has used nothing that anybody could tell, and is no event."""
    at = await stand({**SAYS, "fault": [{"cut": "before_response"}, {"status": 500}, {"empty": True}]})
    assert (await tried_again(at).run_turn(GOAL)).reason == "completed"
    assert broken(at) == []
