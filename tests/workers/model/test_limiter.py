"""One limiter for the fleet: what one process meets holds for all on its Redis; no clock stops it for ever."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from workers.model.headroom import Headroom
from workers.model.limiter import Door, Limiter, fingerprint

NAME = fingerprint("anthropic", "http://here", "sk-secret")
KEY = f"overnight:limits:{NAME}"
Process = Callable[..., Limiter]


def until(condition: Callable[[], object], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def process(redis_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """Make limiters as processes have them: each with connections of its own, looking rarely unless told otherwise."""
    monkeypatch.setattr("workers.model.limiter._SLICE_SECONDS", 0.05)
    with ExitStack() as opened:

        def make(*, every: float = 30.0, cap: float = 300.0) -> Limiter:
            client = opened.enter_context(redis_server.client())
            limiter = Limiter(client, every=every, cap=cap)
            limiter.start()
            opened.callback(limiter.stop)
            until(lambda: client.pubsub_numsub("overnight:limits")[0][1] > len(made))
            made.append(limiter)
            return limiter

        made: list[Limiter] = []
        yield make


def test_a_pause_is_everybodys_within_moments(process: Process) -> None:
    """One process meets a limit; the others stop by its message alone, long before they would look by themselves."""
    doors = [process().door(NAME) for _ in range(3)]
    doors[1].pause(20)
    began = time.monotonic()
    until(lambda: all(door.paused_for > 15 for door in doors))
    assert time.monotonic() - began < 2
    assert max(door.paused_for for door in doors) <= 20.1


def test_another_key_is_not_concerned(process: Process) -> None:
    """A limit belongs to an endpoint with a key."""
    first, second = process(), process()
    other = second.door(fingerprint("anthropic", "http://here", "another"))
    first.door(NAME).pause(20)
    until(lambda: second.door(NAME).paused_for > 0)
    assert other.paused_for == 0


def test_a_pause_that_begins_while_a_door_is_made(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message comes when nobody here listens for that door yet, and is not missed."""
    first, second = process(), process()
    syncs: list[str] = []
    sync = Limiter._sync

    def watched(limiter: Limiter, door: Door) -> None:
        sync(limiter, door)
        if limiter is not second:
            return
        syncs.append(door.name)
        if len(syncs) == 1:
            first.door(NAME).pause(20)
            until(lambda: not first.door(NAME).news())

    monkeypatch.setattr(Limiter, "_sync", watched)
    assert second.door(NAME).paused_for > 0


def test_who_comes_later_waits_too(process: Process) -> None:
    """A process that starts during a pause knows of it before its first call."""
    process().door(NAME).pause(20)
    late = process()
    until(lambda: late.door(NAME).paused_for > 0 or late._doors.clear())
    assert 15 < late.door(NAME).paused_for <= 20


def test_a_message_that_was_missed(process: Process, redis_client: redis.Redis) -> None:
    """Every beat the truth is read again, so a lost message costs a beat at most."""
    late = process(every=0.1).door(NAME)
    now = redis_client.time()
    redis_client.hset(KEY, "until", now[0] + 20)  # as a process whose message got lost left it
    began = time.monotonic()
    until(lambda: late.paused_for > 0)
    assert time.monotonic() - began < 3


def test_redis_is_not_asked_for_each_call(process: Process, redis_client: redis.Redis) -> None:
    """Whether a door is open is known in the process; Redis hears of news alone."""
    door = process().door(NAME)
    before = redis_client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
    for _ in range(1000):
        assert (door.paused_for, door.gap) == (0, 0)
    assert redis_client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0) == before


@pytest.mark.parametrize("ahead", [3600.0, 86_400.0])
def test_a_jump_of_the_clock_stops_nobody_for_long(process: Process, redis_client: redis.Redis, ahead: float) -> None:
    """A moment far ahead, as a clock that was set back leaves it, is cut to the cap once, and then runs out."""
    now = redis_client.time()
    redis_client.hset(KEY, mapping={"until": now[0] + ahead, "gap": 1, "gap_until": now[0] + ahead, "next": 9e9})
    door = process(every=0.05, cap=0.4).door(NAME)
    assert 0 < door.paused_for <= 0.4
    began = time.monotonic()
    until(lambda: door.paused_for == 0 and door.gap == 0)
    assert time.monotonic() - began < 1
    assert door.place() == 0


def test_a_pause_is_capped_everywhere(process: Process) -> None:
    """However long a header says."""
    first, second = process(cap=5).door(NAME), process(cap=5).door(NAME)
    first.pause(86_400)
    until(lambda: second.paused_for > 0)
    assert first.paused_for <= 5
    assert second.paused_for <= 5


def test_a_shorter_pause_does_not_shorten(process: Process) -> None:
    """The longest pause that anybody met is in force."""
    first, second = process().door(NAME), process().door(NAME)
    first.pause(20)
    until(lambda: second.paused_for > 15)
    second.pause(1)
    time.sleep(0.1)
    assert first.paused_for > 15
    assert second.paused_for > 15


def test_nothing_expires_and_no_key_is_told(process: Process, redis_client: redis.Redis) -> None:
    """What is in Redis has no time to live, and does not hold the secret."""
    process().door(NAME).pause(1)
    until(lambda: redis_client.keys("overnight:limits*"))
    assert redis_client.keys("overnight:limits*") == [KEY.encode()]
    assert redis_client.ttl(KEY) == -1
    assert b"secret" not in b"".join(part for pair in redis_client.hgetall(KEY).items() for part in pair) + KEY.encode()


def test_redis_away(process: Process, redis_server: Any) -> None:
    """Each process keeps its own pause; when Redis is back, also empty, the others learn what is left of it."""
    first, second = process(every=0.1).door(NAME), process(every=0.1).door(NAME)
    redis_server.kill()
    began = time.monotonic()
    first.pause(20)
    assert time.monotonic() - began < 0.1  # nobody waits for Redis to be told
    assert first.paused_for > 15
    first.heed(Headroom(gap=0.2, seconds=20))
    assert [round(first.place(), 1) for _ in range(3)] == [0.0, 0.2, 0.4]
    time.sleep(0.2)
    redis_server.forget_everything()
    redis_server.start()
    until(lambda: second.paused_for > 0)
    assert 15 < second.paused_for <= 20
    until(lambda: second.gap == pytest.approx(0.2))


def test_a_pace_is_shared(process: Process) -> None:
    """While little is left all calls of the fleet stand in one queue, a gap apart."""
    first, second = process().door(NAME), process().door(NAME)
    first.heed(Headroom(gap=0.5, seconds=20))
    until(lambda: second.gap == pytest.approx(0.5))
    waits = [door.place() for door in (first, second, first, second)]
    assert waits == pytest.approx([0.0, 0.5, 1.0, 1.5], abs=0.1)


def test_a_pace_that_hardly_changes_is_no_news() -> None:
    """Each answer's headers say the same again: only what differs by a fifth is told."""
    told: list[Door] = []
    door = Door("d", tell=told.append)
    for gap in (1.0, 1.1, 0.9, 1.2):
        door.heed(Headroom(gap=gap, seconds=20))
    assert len(told) == 1
    door.heed(Headroom(gap=2.0, seconds=20))
    assert len(told) == 2
    door.heed(Headroom(pause=1.0))
    assert len(told) == 3


def test_a_gap_is_capped() -> None:
    """A reset in the year 9999 keeps nobody waiting for longer than the cap, however many ask."""
    door = Door(cap=2.0)
    door.heed(Headroom(gap=1e9, seconds=1e10))
    assert door.gap <= 2.0
    assert max(door.place() for _ in range(20)) <= 2.0


def test_without_redis() -> None:
    """A process that is alone has its own doors, one a fingerprint."""
    limiter = Limiter()
    limiter.start()
    limiter.door(NAME).pause(5)
    assert limiter.door(NAME).paused_for > 4
    assert limiter.door("other").paused_for == 0
    limiter.stop()
