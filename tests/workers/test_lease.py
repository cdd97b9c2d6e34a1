"""Claim, beat and loss of a lease on a real Redis: one record, one holder, no clock."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from workers.lease import Beater, HeldLease, LeaseTable, WishListener, boottime
from workers.orders import Told


@pytest.fixture
def table(redis_client: redis.Redis) -> LeaseTable:
    return LeaseTable(redis_client, "1117-k3v")


def held(table: LeaseTable, holder: str = "me", token: str = "1.1", unit: str = "u") -> HeldLease:
    """A lease claimed by `holder`, beaten once."""
    assert table.claim(unit, token, holder, table.publish(unit, token, "open"))
    lease = HeldLease(table, unit, token, holder, lambda: None)
    lease.beat()
    return lease


def test_exactly_one_claims(redis_server: Any, table: LeaseTable) -> None:
    """Of twenty threads that claim the same record at once, one gets it, and the record names it."""
    run_id = table.publish("u", "1.1", "open")
    start, won = threading.Barrier(20), []

    def claim(name: str) -> None:
        with redis_server.client() as client:
            mine = LeaseTable(client, "1117-k3v")
            start.wait()
            if mine.claim("u", "1.1", name, run_id):
                won.append(name)

    threads = [threading.Thread(target=claim, args=(f"w{number}",)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    record = table.poll(["u"])["u"]
    assert (record.token, record.holder, record.beat) == ("1.1", won[0], 1)


@pytest.mark.parametrize("token", ["1.2", "2.1", "1", ""])
def test_another_token_goes_home(table: LeaseTable, token: str) -> None:
    """An order that is older or newer than the record claims nothing, and the right one still can."""
    run_id = table.publish("u", "1.1", "open")
    assert not table.claim("u", token, "me", run_id)
    assert table.claim("u", "1.1", "me", run_id)


def test_nothing_to_claim(table: LeaseTable) -> None:
    """No record, a closed one, and one that is held already are not claimed, by its holder either."""
    run_id = table.run_id()
    assert not table.claim("u", "1.1", "me", run_id)
    table.publish("u", "1.1", "closed")
    assert not table.claim("u", "1.1", "me", run_id)
    table.publish("u", "1.1", "open")
    assert table.claim("u", "1.1", "me", run_id)
    assert not table.claim("u", "1.1", "me", run_id)
    assert not table.claim("u", "1.1", "other", run_id)


def test_an_order_of_another_redis(table: LeaseTable, redis_server: Any) -> None:
    """After Redis restarted its records stand under the old run_id: no order claims them until they are published."""
    old = table.publish("u", "1.1", "open")
    redis_server.kill()
    redis_server.start()
    new = table.run_id()
    assert new != old
    assert table.poll(["u"])["u"].token == "1.1"  # the append-only file kept it
    assert not table.claim("u", "1.1", "me", old)
    assert not table.claim("u", "1.1", "me", new)
    assert table.publish("u", "1.1", "open") == new
    assert table.claim("u", "1.1", "me", new)


def test_beats_count_up_and_carry_progress(table: LeaseTable) -> None:
    """Each confirmed beat raises the counter by one and shows the progress."""
    lease = held(table)
    assert table.poll(["u"])["u"].beat == 2
    lease.progress = {"step": 3}
    lease.beat()
    record = table.poll(["u", "nobody"])
    assert list(record) == ["u"]
    assert (record["u"].beat, record["u"].progress) == (3, {"step": 3})
    assert not lease.lost


def test_no_record_has_a_time_to_live(table: LeaseTable, redis_client: redis.Redis) -> None:
    """Nothing here depends on Redis' wall clock: no key ever expires."""
    held(table)
    table.wish("u", "stop")
    table.tell("u", "1.1", [Told(id="01", text="x")])
    assert [redis_client.ttl(key) for key in redis_client.scan_iter()] == [-1, -1]


@pytest.mark.parametrize("change", ["epoch", "holder", "open"])
def test_lost(table: LeaseTable, change: str) -> None:
    """A higher epoch, another holder, or a record that was handed out anew end the lease for good."""
    lease = held(table)
    if change == "epoch":
        table.publish("u", "1.2", "closed")
    elif change == "holder":
        assert table.claim("u", "1.1", "other", table.publish("u", "1.1", "open"))
    else:
        table.publish("u", "1.1", "open")
    heard: list[bool] = []
    lease.on_change = lambda: heard.append(lease.lost)
    confirmed = lease.confirmed_at
    lease.beat()
    assert lease.lost
    assert heard == [True]
    assert lease.confirmed_at == confirmed
    before = table.poll(["u"])
    table.publish("u", "1.1", "closed")  # even if it looked like ours again
    lease.beat()
    assert lease.lost
    assert table.poll(["u"])["u"].beat == 0
    assert before["u"].holder != "me"


def test_redis_lost_everything(table: LeaseTable, redis_client: redis.Redis) -> None:
    """With the record gone the holder waits, unconfirmed; published closed, it re-asserts itself and goes on."""
    lease = held(table)
    redis_client.flushall()
    confirmed = lease.confirmed_at
    lease.beat()
    assert (lease.lost, lease.confirmed_at) == (False, confirmed)
    assert table.poll(["u"]) == {}
    table.publish("u", "1.1", "closed")
    assert not table.claim("u", "1.1", "thief", table.run_id())
    lease.beat()
    assert lease.confirmed_at > confirmed
    record = table.poll(["u"])["u"]
    assert (record.holder, record.beat) == ("me", 3)
    lease.beat()
    assert table.poll(["u"])["u"].beat == 4


def test_redis_went_back_in_time(table: LeaseTable, redis_client: redis.Redis) -> None:
    """A counter that is lower than what was confirmed means that Redis lost data: missing, not lost."""
    lease = held(table)
    lease.beat()
    redis_client.hset("overnight:1117-k3v:lease:u", "beat", 1)
    confirmed = lease.confirmed_at
    lease.beat()
    assert (lease.lost, lease.confirmed_at) == (False, confirmed)
    table.publish("u", "1.1", "closed")
    lease.beat()
    assert lease.confirmed_at > confirmed


@pytest.mark.parametrize("change", ["open", "earlier token", "another holder"])
def test_a_redis_that_went_back_in_time_loses_nobody(table: LeaseTable, redis_client: redis.Redis, change: str) -> None:
    """What a record of an earlier start says of others may be old: the holder waits until it is published again."""
    lease = held(table, token="1.2")
    key = "overnight:1117-k3v:lease:u"
    if change == "open":
        table.publish("u", "1.2", "open")
    elif change == "earlier token":
        table.publish("u", "1.1", "closed")
    else:
        redis_client.hset(key, "holder", "other")
    redis_client.hset(key, "run_id", "the one before")
    confirmed = lease.confirmed_at
    lease.beat()
    assert (lease.lost, lease.confirmed_at) == (False, confirmed)
    table.publish("u", "1.2", "closed")
    lease.beat()
    assert lease.confirmed_at > confirmed
    table.publish("u", "1.3", "closed")
    lease.beat()
    assert lease.lost


def test_an_answer_that_was_lost_on_the_way(table: LeaseTable) -> None:
    """A beat that Redis counted but could not answer does not cost the lease: the next one is confirmed."""
    lease = held(table)
    table.beat("u", "1.1", "me", 2, "{}")  # counted, and never heard of
    lease.beat()
    assert not lease.lost
    confirmed = lease.confirmed_at
    lease.beat()
    assert lease.confirmed_at > confirmed


def test_redis_is_away(table: LeaseTable, redis_server: Any) -> None:
    """While Redis is away the lease is neither confirmed nor lost, whatever the time; afterwards it goes on."""
    lease = held(table)
    confirmed = lease.confirmed_at
    redis_server.kill()
    for _ in range(3):
        lease.beat()
    assert (lease.lost, lease.confirmed_at) == (False, confirmed)
    redis_server.start()
    lease.beat()
    assert lease.confirmed_at > confirmed


def test_confirmed_when_it_was_asked(table: LeaseTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is when the beat was sent: an answer that took long confirms an old moment (rule 9)."""
    lease = held(table)
    beat = table.beat

    def slow(*args: Any) -> Any:
        answer = beat(*args)
        time.sleep(0.2)
        return answer

    monkeypatch.setattr(table, "beat", slow)
    began = boottime()
    lease.beat()
    assert began <= lease.confirmed_at < began + 0.1


def test_wishes_are_heard(table: LeaseTable) -> None:
    """A wish reaches the holder with its next beat; a drain of the worker comes first; a new hand-out forgets both."""
    lease = held(table)
    assert lease.asked_to_stop == ""
    table.wish("u", "stop")
    assert lease.asked_to_stop == ""
    lease.beat()
    assert lease.asked_to_stop == "stopped"
    lease.draining = True
    assert lease.asked_to_stop == "shutdown"
    assert held(table, token="1.2").asked_to_stop == ""


def test_a_new_wish_does_not_wait_for_the_beat(redis_client: redis.Redis, table: LeaseTable) -> None:
    """It is told as it is made, and heard by a beat out of its time; said again while it holds, it is no news."""
    lease = held(table)
    beater = Beater(every=60, ticked=boottime, patience=60, bark=lambda: None)
    heard: list[float] = []

    def hear() -> None:
        heard.append(boottime())
        beater.hurry()

    listener = WishListener(redis_client, hear, every=0.1)
    beater.hold("u", lease)
    beater.start()
    listener.start()
    try:
        deadline = time.monotonic() + 5
        while not redis_client.pubsub_numsub("overnight:wishes")[0][1]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        table.wish("u", "cancel")
        asked_at = time.monotonic()
        while lease.wish != "cancel":
            assert time.monotonic() - asked_at < 1
            time.sleep(0.005)
        table.wish("u", "cancel")
        time.sleep(0.1)
        assert len(heard) == 1
    finally:
        listener.stop()
        beater.stop()


@pytest.mark.parametrize("wish", ["stop", "cancel"])
def test_a_cancelled_unit_stops_too(table: LeaseTable, wish: str) -> None:
    """A holder that knows nothing of cancelling at once stops at its next step."""
    lease = held(table)
    table.wish("u", wish)
    lease.beat()
    assert (lease.asked_to_stop, lease.wish) == ("stopped", wish)


def test_what_people_say_is_heard_of_at_the_next_beat(table: LeaseTable) -> None:
    """The beat tells how much there is, the table what it is, oldest first; saying it twice changes nothing."""
    lease = held(table)
    assert (lease.told, table.told("u")) == (0, [])
    first, second = Told(id="01", text="look at b.py"), Told(id="02", text="zwei\nZeilen ✔")
    assert table.tell("u", "1.1", [second])
    assert table.tell("u", "1.1", [first, second])
    assert lease.told == 0
    lease.beat()
    assert lease.told == table.poll(["u"])["u"].told == 2
    assert table.told("u") == [first, second]
    assert table.told("other") == []


def test_what_was_said_waits_for_the_next_holder(table: LeaseTable) -> None:
    """It stays when the unit is handed out anew, and nobody is pointed to it under a token that is not theirs."""
    said = Told(id="01", text="x")
    assert not table.tell("u", "1.1", [said])  # no record: say it again
    lease = held(table, token="1.2")
    assert not table.tell("u", "1.1", [said])
    lease.beat()
    assert lease.told == 0
    assert table.tell("u", "1.2", [said])
    assert held(table, token="1.3").told == 0
    assert table.tell("u", "1.3", [said])
    assert table.told("u") == [said]
    table.forget_told("u")
    table.forget_told("u")
    assert table.told("u") == []


def test_nights_do_not_meet(table: LeaseTable, redis_client: redis.Redis) -> None:
    """The same unit of another night is another record."""
    held(table)
    assert LeaseTable(redis_client, "another").poll(["u"]) == {}


# -- the beating thread -----------------------------------------------------------------------------------------------


def until(condition: Callable[[], object], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Watched:
    """A beater, its event loop's last tick, and whether it barked."""

    def __init__(self) -> None:
        self.ticked = boottime()
        self.barks = 0
        self.beater = Beater(every=0.02, ticked=lambda: self.ticked, patience=0.3, bark=self.bark)

    def bark(self) -> None:
        self.barks += 1


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    made.beater.start()
    yield made
    made.beater.stop()


def test_the_thread_beats_for_everybody_it_holds(table: LeaseTable, watched: Watched) -> None:
    """Every held lease is beaten for until it is dropped; then it stands still."""
    watched.ticked = boottime() + 100
    leases = {unit: held(table, unit=unit) for unit in ("a", "b")}
    for unit, lease in leases.items():
        watched.beater.hold(unit, lease)
    until(lambda: all(record.beat > 5 for record in table.poll(["a", "b"]).values()))
    watched.beater.drop("a")
    watched.beater.drop("a")
    time.sleep(0.05)
    before = table.poll(["a", "b"])
    until(lambda: table.poll(["b"])["b"].beat > before["b"].beat + 3)
    assert table.poll(["a"]) == {"a": before["a"]}


def test_the_watchdog_barks_at_a_silent_loop(watched: Watched) -> None:
    """A loop that stopped ticking is barked at after the patience, not before."""
    until(lambda: watched.barks)
    assert boottime() - watched.ticked > 0.3


def test_a_beater_that_breaks_ends_the_process(
    table: LeaseTable, watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error that nobody foresaw must not leave a process at work whose leases nobody beats for: it barks."""
    watched.ticked = boottime() + 100

    def broken() -> None:
        raise RuntimeError("nobody foresaw this")

    lease = held(table)
    lease.on_change = broken
    watched.beater.hold("u", lease)
    until(lambda: watched.barks)
    assert "nobody foresaw this" in capsys.readouterr().err
