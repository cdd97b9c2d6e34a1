"""What people say to a unit at work: heard between steps, once, in the order in which it was said."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
from loop_stand import GOAL, LoopStand

from workers.lease import HeldLease, LeaseTable
from workers.orders import AgentOrder, Told, UnitOrder, VerifyOrder
from workers.places import Places
from workers.session import events as ev
from workers.turn.hooks import attached
from workers.turn.hooks.steering import LeaseEars, Steering

Stand = Callable[..., Awaitable[LoopStand]]
BASH = {"blocks": [{"thinking": "hm"}, {"tool": "bash", "input": {"command": "true"}}]}
DONE = {"blocks": [{"text": "Done."}]}


def told(number: int) -> Told:
    return Told(id=f"t{number}", text=f"Say {number}.")


@dataclass
class FakeEars:
    """Hears the next batch at each look."""

    batches: list[list[Told]]
    all: list[Told] = field(default_factory=list)

    async def told(self) -> Sequence[Told]:
        self.all += self.batches.pop(0) if self.batches else []
        return self.all


def words(messages: list[dict[str, Any]]) -> list[str]:
    texts = [block for message in messages if message["role"] == "user" for block in message["content"]]
    return [block["text"][-6:] for block in texts if block["type"] == "text"][1:]


async def test_between_steps(stand: Stand) -> None:
    """A message goes out with the next call, behind the results; two keep their order; nothing is said twice.

    The server takes it, strict as it is about results and what was sent before.
    """
    at = await stand(BASH, BASH, BASH, DONE)
    at.hooks = (Steering(FakeEars([[told(1)], [], [told(2), told(3)], []])),)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    assert [words(at.asked(number)) for number in range(4)] == [
        ["Say 1."],
        ["Say 1."],
        ["Say 1.", "Say 2.", "Say 3."],
        ["Say 1.", "Say 2.", "Say 3."],
    ]
    said = [event for event in at.durable() if isinstance(event, ev.UserMessage) and event.told]
    assert [(event.source, event.told) for event in said] == [("person", f"t{number}") for number in (1, 2, 3)]


async def test_a_message_at_the_end(stand: Stand) -> None:
    """What is said while the last answer is written is heard: the turn goes on with it."""
    at = await stand(DONE, {"blocks": [{"text": "Done again."}]})
    at.hooks = (Steering(FakeEars([[], [told(1)]])),)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.text) == ("completed", "Done again.")
    assert words(at.asked(1)) == ["Say 1."]
    assert at.kinds()[-6:] == ["step/end", "user/message", "step/start", "assistant/message", "step/end", "turn/end"]


async def test_effort_for_the_rest_of_the_turn(stand: Stand) -> None:
    """A message may ask for another effort: calls after it have it, those before keep the agent's; the prefix holds."""
    at = await stand(BASH, BASH, DONE)
    harder = told(1).model_copy(update={"effort": "high"})
    at.hooks = (Steering(FakeEars([[], [harder], []])),)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    asked = [call.body["output_config"]["effort"] for call in at.server.requests if call.body is not None]
    assert asked == ["medium", "high", "high"]


async def test_a_session_taken_up_again(stand: Stand) -> None:
    """The session's own log says what was heard: a new process with the same messages says only the new ones."""
    at = await stand(BASH, DONE, DONE)
    at.hooks = (Steering(FakeEars([[told(1)]])),)
    await at.loop().run_turn(GOAL)
    at.hooks = (Steering(FakeEars([[told(1), told(2)]])),)
    more = ev.UserMessage(source="runtime", content=[{"type": "text", "text": "Go on."}])
    await at.loop().run_turn(more)
    assert words(at.asked(2)) == ["Say 1.", "Go on.", "Say 2."]


def order(**changes: Any) -> UnitOrder:
    given: dict[str, Any] = {
        "night": "n",
        "unit": "a",
        "attempt": 1,
        "epoch": 1,
        "run_id": "r",
        "goal": "g",
        "base": "b",
        "digest": "d",
        "repository": "/r",
        "home": "/h",
        "agent": AgentOrder(model="m"),
        "verify": VerifyOrder(run="true", timeout=1),
        "rounds": 1,
        "budget": None,
        "seconds": 1.0,
    }
    return UnitOrder(**{**given, **changes})


async def test_through_the_lease(redis_client: redis.Redis) -> None:
    """The order's come first; then what the beat has counted: Redis is asked only when the count has grown."""
    table = LeaseTable(redis_client, "n")
    run_id = table.publish("a", "1.1", "open")
    table.claim("a", "1.1", "h", run_id)
    lease = HeldLease(table, "a", "1.1", "h", lambda: None)
    ears = LeaseEars(order(told=(told(1),)), lease)
    assert await ears.told() == (told(1),)
    table.tell("a", "1.1", [told(1), told(2)])
    assert await ears.told() == (told(1),)  # no beat has said so yet
    lease.beat()
    assert await ears.told() == (told(1), told(2))
    redis_client.flushall()  # what was heard stays, and nobody asks again
    assert await ears.told() == (told(1), told(2))


async def test_redis_is_away(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis that does not answer costs no message and no step: it is asked again before the next one."""
    table = LeaseTable(redis_client, "n")
    lease = HeldLease(table, "a", "1.1", "h", lambda: None)
    lease.told = 1
    table.tell("a", "1.1", [told(1)])
    ears = LeaseEars(order(), lease)

    def fail(_: str) -> list[Told]:
        raise redis.ConnectionError

    with monkeypatch.context() as away:
        away.setattr(table, "told", fail)
        assert await ears.told() == ()
    assert await ears.told() == (told(1),)


def test_one_place_and_one_order(redis_client: redis.Redis, tmp_path: Path) -> None:
    """A unit's hooks, in the order in which each step meets them."""
    lease = HeldLease(LeaseTable(redis_client, "n"), "a", "1.1", "h", lambda: None)
    hooks = attached(order(), Places(tmp_path, "n", "a"), lease)
    assert [type(hook).__name__ for hook in hooks] == ["Steering", "Images", "Shorten", "Repair", "Trim"]
