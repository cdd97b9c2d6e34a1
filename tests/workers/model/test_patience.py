"""When a call is tried again: limits are waited for by all and spend nothing, other failures have their number."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from workers.errors import Cancelled, ModelError
from workers.model import patience as patience_module
from workers.model.assembly import Answer
from workers.model.catalog import Parameters
from workers.model.client import ModelClient
from workers.model.headroom import Headroom
from workers.model.patience import Patience, Waits
from workers.orders import AgentOrder
from workers.session.events import Usage
from workers.session.surface import Request

WHOLE = Answer([], "end_turn", Usage(), "r", {})


def tries(*errors: ModelError) -> tuple[Callable[[], Awaitable[Answer]], list[float]]:
    """An attempt that raises these in turn and then answers, and when it was made."""
    left, made = list(errors), []

    async def attempt() -> Answer:
        made.append(time.monotonic())
        if left:
            raise left.pop(0)
        return WHOLE

    return attempt, made


def limited(seconds: float | None) -> ModelError:
    return ModelError("rate_limit", "slow down", retry_after=seconds)


OVERLOADED = ModelError("transient", "overloaded")


async def test_one_pause_for_all() -> None:
    """A 429 with `retry-after` pauses every caller of the process until then, and each hears of it."""
    patience = Patience(base=0.01)
    first, first_made = tries(limited(0.3))
    second, second_made = tries()
    heard: list[float] = []
    task = asyncio.create_task(patience.call(first))
    await asyncio.sleep(0.05)
    assert 0.2 < patience.paused_for <= 0.3
    assert await patience.call(second, waits=Waits(heard.append)) is WHOLE
    assert await task is WHOLE
    assert len(second_made) == 1
    assert second_made[0] - first_made[0] >= 0.3
    assert first_made[1] - first_made[0] >= 0.3
    assert 0.2 < heard[0] <= 0.3
    assert heard[-1] == 0
    assert patience.paused_for == 0


async def test_a_pause_is_capped() -> None:
    """However long the header says, the pause is no longer than the cap."""
    patience = Patience(base=0.01, cap=0.1)
    attempt, made = tries(limited(3600))
    await patience.call(attempt)
    assert 0.1 <= made[1] - made[0] < 2


async def test_rate_limits_never_run_out() -> None:
    """Rate limits spend no tries; other failures do, and the last one is raised."""
    patience = Patience(tries=3, base=0.001, cap=0.001)
    attempt, made = tries(*[limited(0.0)] * 6)
    assert await patience.call(attempt) is WHOLE
    assert len(made) == 7
    attempt, made = tries(OVERLOADED, limited(0.0), OVERLOADED, OVERLOADED)
    with pytest.raises(ModelError, match="overloaded"):
        await patience.call(attempt)
    assert len(made) == 4


@pytest.mark.parametrize("kind", ["spend_limit", "auth", "invalid", "too_large"])
async def test_what_waiting_will_not_mend(kind: Any) -> None:
    """Errors that would come again are raised at once."""
    attempt, made = tries(ModelError(kind, "no"))
    with pytest.raises(ModelError):
        await Patience().call(attempt)
    assert len(made) == 1


async def test_pauses_grow_up_to_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that name no time double the pause each time; none is ever shorter than a breath."""
    monkeypatch.setattr("random.uniform", lambda _, high: high)
    slept: list[float] = []

    async def sleep(_: Patience, seconds: float, *__: Any) -> None:
        slept.append(round(seconds, 2))

    monkeypatch.setattr(Patience, "_sleep_on", sleep)
    patience = Patience(base=1, cap=10, tries=9)
    attempt, _ = tries(*[OVERLOADED] * 5)
    await patience.call(attempt)
    assert slept == [2, 4, 8, 10, 10]
    pauses = []
    for waits in (1, 2, 3, 4):
        patience = Patience(base=1, cap=10)
        await patience._back_off(limited(None), waits, Waits())
        pauses.append(round(patience.paused_for))
    assert pauses == [2, 4, 8, 10]
    patience = Patience(base=1, cap=10)
    await patience._back_off(limited(0), 1, Waits())
    assert patience.paused_for == pytest.approx(0.1, abs=0.02)


async def test_every_wait_of_a_call_makes_the_next_one_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rate limits without a time count as waits too: an API that only says "slow down" is asked ever more rarely."""
    counted: list[int] = []

    async def back_off(_: Patience, __: ModelError, tried: int, *___: Any) -> None:
        counted.append(tried)

    monkeypatch.setattr(Patience, "_back_off", back_off)
    attempt, _ = tries(limited(None), OVERLOADED, limited(None), limited(None))
    await Patience().call(attempt)
    assert counted == [1, 2, 3, 4]


@pytest.mark.parametrize("error", [limited(60), ModelError("transient", "overloaded", retry_after=60)])
async def test_waiting_can_be_cancelled(error: ModelError) -> None:
    """A cancel ends the wait at once, that of a pause and that of a back-off."""
    attempt, made = tries(error)
    task = asyncio.create_task(Patience().call(attempt))
    await asyncio.sleep(0.02)
    task.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 0.5
    assert len(made) == 1


async def test_against_a_server(rehearse: Any) -> None:
    """A server that is overloaded, then limits, then breaks off, then answers: one whole answer in the end."""
    faults = [{"status": 529}, {"status": 429, "headers": {"retry-after": "0.1"}}, {"cut": "mid_block"}]
    server = rehearse({"units": {"a": {"steps": [{"blocks": [{"text": "Hello."}], "fault": faults}]}}})
    client = ModelClient(AgentOrder(model="claude-haiku-4-5", base_url=server.url))
    asked = Request([{"type": "text", "text": "unit: a"}], [], [{"role": "user", "content": "go"}])
    answer = await Patience(base=0.01).call(lambda: client.call("claude-haiku-4-5", asked, Parameters(2000)))
    assert answer.content == [{"type": "text", "text": "Hello."}]
    assert len(server.requests) == 4
    await client.close()


@pytest.mark.parametrize(
    "error",
    [
        ModelError("transient", "overloaded", status=529),
        ModelError("transient", "overloaded", status=200, error_type="overloaded_error"),
    ],
)
async def test_an_overload_is_everybodys(error: ModelError) -> None:
    """An API that is short of room is waited for by all, and spends no tries."""
    patience = Patience(tries=2, base=0.001, cap=0.001)
    attempt, made = tries(*[error] * 5)
    assert await patience.call(attempt) is WHOLE
    assert len(made) == 6
    patience = Patience(base=10)
    await patience._back_off(error, 1, Waits())
    assert patience.paused_for > 5


async def test_all_resume_but_not_at_once() -> None:
    """After a pause everybody goes on by itself, spread over a share of it."""
    patience = Patience()
    patience.door.pause(1.0)
    began = time.monotonic()
    resumed: list[float] = []

    async def attempt() -> Answer:
        resumed.append(time.monotonic() - began)
        return WHOLE

    await asyncio.gather(*(patience.call(attempt) for _ in range(40)))
    assert min(resumed) >= 1.0
    assert max(resumed) < 1.5
    assert max(resumed) - min(resumed) > 0.03


async def test_a_limit_met_while_others_resume_holds_them_back() -> None:
    """Whoever goes first and meets the limit again stops those who are about to go."""
    patience = Patience(base=0.01)
    asked: list[float] = []

    async def attempt() -> Answer:
        asked.append(time.monotonic())
        if len(asked) == 1:
            raise limited(0.5)
        return WHOLE

    patience.door.pause(0.5)
    await asyncio.gather(*(patience.call(attempt) for _ in range(5)))
    assert len(asked) == 6
    early = [at for at in asked if at < asked[0] + 0.5]
    assert len(early) <= 3  # those whose moment had come before the first was answered


async def test_paced_calls_keep_apart() -> None:
    """While little is left, calls follow each other at the gap; when the time is over they come as they like."""
    patience = Patience()
    patience.door.heed(Headroom(gap=0.1, seconds=5))
    made: list[float] = []

    async def attempt() -> Answer:
        made.append(time.monotonic())
        return WHOLE

    await asyncio.gather(*(patience.call(attempt) for _ in range(4)))
    assert [round(later - sooner, 1) for sooner, later in pairwise(made)] == [0.1] * 3
    patience = Patience()
    patience.door.heed(Headroom(gap=5, seconds=0.05))
    await asyncio.sleep(0.06)
    began = time.monotonic()
    await patience.call(attempt)
    assert time.monotonic() - began < 0.1


async def test_ready_is_asked_before_and_while_waiting() -> None:
    """A lost lease or a stop ends the wait; nothing is asked of the model."""
    patience = Patience()
    patience.door.pause(30)
    attempt, made = tries()

    async def ready() -> None:
        raise Cancelled("stopped")

    waits = Waits()
    with pytest.raises(Cancelled):
        await patience.call(attempt, waits=waits, ready=ready)
    assert made == []
    before = waits.total
    await asyncio.sleep(0.02)
    assert waits.total == before  # the wait ended with it


async def test_a_stop_is_heard_in_a_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is, a stop ends it within a slice, and people see each time how much of it is left."""
    monkeypatch.setattr(patience_module, "_SLICE_SECONDS", 0.1)
    attempt, made = tries(ModelError("transient", "cut off", retry_after=60))
    heard: list[float] = []

    async def ready() -> None:
        if len(heard) >= 4:
            raise Cancelled("stopped")

    began = time.monotonic()
    with pytest.raises(Cancelled):
        await Patience().call(attempt, waits=Waits(heard.append), ready=ready)
    assert time.monotonic() - began < 5
    assert len(made) == 1
    assert heard[0] == pytest.approx(60, abs=1)
    assert heard[:3] == sorted(heard[:3], reverse=True)
    assert heard[2] < heard[0]
    assert heard[-1] == 0


async def test_a_pause_that_begins_while_ready_waits() -> None:
    """Whatever was waited for between the look at the pause and the call, the call comes after the pause."""
    patience = Patience()
    first = True

    async def ready() -> None:
        nonlocal first
        if first:
            first = False
            patience.door.pause(0.2)

    began = time.monotonic()
    attempt, made = tries()
    await patience.call(attempt, ready=ready)
    assert made[0] - began >= 0.2


async def test_waits_add_up() -> None:
    """Pauses and back-offs count, the calls themselves do not."""
    waits = Waits()

    async def slow() -> Answer:
        await asyncio.sleep(0.2)
        return WHOLE

    patience = Patience(base=0.2)
    await patience.call(slow, waits=waits)
    assert waits.total == 0
    patience.door.pause(0.2)
    await patience.call(slow, waits=waits)
    assert 0.2 <= waits.total < 0.4
    before = waits.total
    attempt, made = tries(OVERLOADED)
    await patience.call(attempt, waits=waits)
    assert waits.total - before == pytest.approx(made[1] - made[0], abs=0.05)


async def test_a_limit_of_time_stands_still_while_waiting() -> None:
    """Work may take its seconds; waiting for the model takes none of them, however often."""
    waits = Waits()
    patience = Patience()
    attempt, _ = tries()
    async with waits.timeout(0.3):
        for _ in range(2):
            patience.door.pause(0.3)
            await patience.call(attempt, waits=waits)
        await asyncio.sleep(0.1)


async def test_a_limit_of_time_goes_on_after_a_wait() -> None:
    """What is left of it when a wait is over is all that is left."""
    waits = Waits()
    patience = Patience()

    async def work() -> None:
        async with waits.timeout(0.3):
            patience.door.pause(0.2)
            await patience.call(tries()[0], waits=waits)
            await asyncio.sleep(5)

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await work()
    assert 0.5 <= time.monotonic() - began < 1.5
