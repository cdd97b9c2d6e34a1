"""Hand-outs and losses over a real Redis: journal first, everybody waits, records come back closed (rules 4, 10)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis
from entries import NIGHT, asked, lost, release, reported, unit, verdict
from quiet import Quiet

from dispatcher.book import Book
from dispatcher.config import Config
from dispatcher.decide import HandOut
from dispatcher.fleet import Fleet
from dispatcher.journal import Lost, Ordered
from dispatcher.orders import order_of
from dispatcher.watch import Watch
from workers.app import QUEUE
from workers.lease import LeaseTable
from workers.orders import UnitOrder

K = 3


class Yard:
    def __init__(self, server: Any, client: redis.Redis, folder: Path) -> None:
        self.book = Book.open(folder / "journal.jsonl")
        self.client = client
        self.table = LeaseTable(client, NIGHT)
        self.fleet = Fleet(self.book, self.table, server.url, Watch(K), 0.0, Quiet())
        self.now = 0.0

    def order(self, name: str = "a", epoch: int = 1) -> UnitOrder:
        hand_out = HandOut(name, 1, epoch, None)
        facts = self.book.ledger.unit(name)
        places: dict[str, Any] = {"repository": Path("/r"), "home": Path("/h")}
        return order_of(unit(name), hand_out, facts, Config(), night=NIGHT, base="b", run_id="", **places)

    async def polls(self, times: int) -> None:
        for _ in range(times):
            self.now += 1
            await self.fleet.poll(self.now)

    def losses(self) -> list[tuple[str, int, bool]]:
        return [
            (entry.unit, entry.epoch, entry.claimed) for entry in self.book.journal.entries if isinstance(entry, Lost)
        ]


@pytest.fixture
async def yard(redis_server: Any, redis_client: redis.Redis, tmp_path: Path) -> AsyncIterator[Yard]:
    made = Yard(redis_server, redis_client, tmp_path)
    await made.polls(1)  # the first look at a Redis only takes note of it
    yield made
    made.book.close()


async def test_a_hand_out_is_journalled_published_and_sent(yard: Yard) -> None:
    """The record is open under the run of this Redis, and the order waits in the queue."""
    order = yard.order()
    await yard.fleet.hand_out(order, None)
    assert isinstance(yard.book.journal.entries[-1], Ordered)
    assert yard.client.llen(QUEUE) == 1
    assert not yard.table.claim("a", "1.1", "me", "another run of Redis")
    assert yard.table.claim("a", "1.1", "me", yard.table.run_id())


async def test_without_redis_a_hand_out_is_a_loss_that_costs_nothing(yard: Yard, redis_server: Any) -> None:
    """It is in the journal all the same; nobody counts while Redis is away; then it is given up as never taken."""
    redis_server.kill()
    await yard.fleet.hand_out(yard.order(), None)
    await yard.polls(20 * K)
    assert yard.losses() == []
    redis_server.start()
    await yard.polls(6 * K + 3)
    assert yard.losses() == [("a", 1, False)]
    assert yard.book.ledger.unit("a").losses == 0
    assert not yard.book.ledger.unit("a").in_flight


async def test_a_holder_that_stands_still_is_lost(yard: Yard) -> None:
    """After K polls; with the step that it had told of."""
    await yard.fleet.hand_out(yard.order(), None)
    yard.table.claim("a", "1.1", "me", yard.table.run_id())
    yard.table.beat("a", "1.1", "me", 1, '{"step": 4, "cost": "0.25"}')
    await yard.polls(K)
    assert yard.losses() == []
    await yard.polls(1)
    assert yard.losses() == [("a", 1, True)]
    assert yard.book.journal.entries[-1].step == 4


async def test_a_holder_that_beats_is_not(yard: Yard) -> None:
    """However long."""
    await yard.fleet.hand_out(yard.order(), None)
    yard.table.claim("a", "1.1", "me", yard.table.run_id())
    for counter in range(1, 5 * K):
        yard.table.beat("a", "1.1", "me", counter, "{}")
        await yard.polls(1)
    assert yard.losses() == []


async def test_after_a_restart_without_its_data_the_record_is_published_closed(yard: Yard, redis_server: Any) -> None:
    """Nobody can claim it, and whoever holds it re-asserts itself with its next beat."""
    await yard.fleet.hand_out(yard.order(), None)
    yard.table.claim("a", "1.1", "me", yard.table.run_id())
    await yard.polls(2)
    redis_server.kill()
    redis_server.forget_everything()
    redis_server.start()
    await yard.polls(1)
    assert not yard.table.claim("a", "1.1", "you", yard.table.run_id())
    assert yard.table.beat("a", "1.1", "me", 7, "{}") == ("ok", "", 0)
    assert yard.table.beat("a", "1.1", "you", 7, "{}")[0] == "lost"
    await yard.polls(K)
    assert yard.losses() == []


async def test_a_dead_process_is_not_waited_for(yard: Yard) -> None:
    """The engine has reaped it."""
    await yard.fleet.hand_out(yard.order(), None)
    yard.table.claim("a", "1.1", "here:7", yard.table.run_id())
    await yard.polls(1)
    yard.fleet.bury(["here:7"])
    await yard.polls(1)
    assert yard.losses() == [("a", 1, True)]


async def test_an_order_that_nobody_has_taken_is_recalled(yard: Yard) -> None:
    """Once it is not wanted any more nobody can claim it, and it is given up as quickly as a silent one."""
    await yard.fleet.hand_out(yard.order("a"), None)
    run_id = yard.table.run_id()
    await yard.fleet.poll(100.0)
    await yard.fleet.ask_to_stop(lambda _: False)
    assert not yard.table.claim("a", "1.1", "me", run_id)
    assert ("a", "1.1") in yard.fleet.watch.recalled


async def test_a_hand_out_that_is_given_up_has_no_lease_any_more(yard: Yard) -> None:
    """Its holder cannot come back between the loss and the next order, and nobody can take it again (rule 10)."""
    await yard.fleet.hand_out(yard.order(), None)
    yard.table.claim("a", "1.1", "me", yard.table.run_id())
    await yard.polls(K + 1)
    assert yard.losses() == [("a", 1, True)]
    assert yard.table.beat("a", "1.1", "me", 1, "{}")[0] == "lost"
    assert not yard.table.claim("a", "1.1", "you", yard.table.run_id())


async def test_an_order_that_nobody_takes_is_recalled_before_it_is_given_up(yard: Yard) -> None:
    """Whoever takes it in the very moment of the recall re-asserts itself and goes on (rule 10)."""
    await yard.fleet.hand_out(yard.order("a"), None)
    await yard.fleet.hand_out(yard.order("b"), None)
    await yard.polls(5 * K)
    assert yard.table.claim("b", "1.1", "me", yard.table.run_id())
    await yard.fleet._recall("b", "1.1")  # it was read before the claim
    await yard.polls(1)
    assert not yard.table.claim("a", "1.1", "you", yard.table.run_id())
    assert yard.losses() == []  # recalled, and not lost yet
    for counter in range(1, 3 * K):
        assert yard.table.beat("b", "1.1", "me", counter, "{}")[0] == "ok"
        await yard.polls(1)
    assert yard.losses() == [("a", 1, False)]


async def test_a_hand_out_past_its_deadline_is_lost_although_it_beats(yard: Yard) -> None:
    """The dispatcher's own net behind the watchdog: whoever beats for so long hangs (rule 11)."""
    await yard.fleet.hand_out(yard.order(), None)
    yard.table.claim("a", "1.1", "me", yard.table.run_id())
    token, deadline = yard.fleet._deadlines["a"]
    assert token == "1.1"
    yard.table.beat("a", "1.1", "me", 1, "{}")
    await yard.fleet.poll(deadline - 1)
    assert yard.losses() == []
    yard.table.beat("a", "1.1", "me", 2, "{}")
    await yard.fleet.poll(deadline + 1)
    assert yard.losses() == [("a", 1, True)]
    assert yard.table.beat("a", "1.1", "me", 3, "{}")[0] == "lost"


async def test_whoever_works_on_in_vain_is_called_back(yard: Yard) -> None:
    """A pass of an older epoch was accepted: the newer one's holder hears of it, and an order of it is closed."""
    yard.book.ledger.night = NIGHT
    for name in ("a", "b", "c"):
        await yard.fleet.hand_out(yard.order(name), None)
        yard.book.note(lost(name))
        await yard.fleet.hand_out(yard.order(name, 2), None)
    for name in ("a", "c"):
        yard.table.claim(name, "1.2", "me", yard.table.run_id())
    yard.book.note(reported(verdict("a", "pass", 1, 1)), reported(verdict("b", "pass", 1, 1)))

    await yard.fleet.ask_to_stop(lambda _: True)

    assert yard.table.beat("a", "1.2", "me", 1, "{}")[:2] == ("ok", "stop")
    assert not yard.table.claim("b", "1.2", "you", yard.table.run_id())
    assert yard.table.beat("c", "1.2", "me", 1, "{}")[:2] == ("ok", "")
    yard.book.note(reported(release("a", "stopped", 1, 2), "the attempt has its verdict already"))
    assert yard.fleet._superseded() == {"b": "1.2"}


async def test_a_wish_to_stop_is_heard_with_the_next_beat(yard: Yard) -> None:
    """Of those alone that are not wanted any more."""
    for name in ("a", "b"):
        await yard.fleet.hand_out(yard.order(name), None)
        yard.table.claim(name, "1.1", "me", yard.table.run_id())
    await yard.fleet.poll(100.0)
    await yard.fleet.poll(200.0)
    await yard.fleet.ask_to_stop(lambda name: name == "b")
    assert yard.table.beat("a", "1.1", "me", 1, "{}") == ("ok", "stop", 0)
    assert yard.table.beat("b", "1.1", "me", 1, "{}") == ("ok", "", 0)


async def test_a_cancelled_unit_is_asked_to_go_home_at_once(yard: Yard) -> None:
    """Not only at its next step; the others are."""
    for name in ("a", "b"):
        await yard.fleet.hand_out(yard.order(name), None)
        yard.table.claim(name, "1.1", "me", yard.table.run_id())
    await yard.polls(2)
    await yard.fleet.ask_to_stop(lambda _: False, lambda name: name == "a")
    assert [yard.table.beat(name, "1.1", "me", 1, "{}")[1] for name in ("a", "b")] == ["cancel", "stop"]


async def test_what_people_say_reaches_whoever_is_at_work(yard: Yard, redis_server: Any) -> None:
    """Also after Redis lost it and under a new epoch; it is forgotten once the unit is at work no more."""
    said = [asked("tell", "a", number, text=f"word {number}") for number in (1, 2)]
    yard.book.note(said[0])
    await yard.fleet.hand_out(yard.order(), None)
    await yard.polls(2)
    assert [told.text for told in yard.table.told("a")] == ["word 1"]
    yard.book.note(said[1])
    await yard.polls(1)
    assert yard.table.claim("a", "1.1", "me", yard.table.run_id())
    assert yard.table.beat("a", "1.1", "me", 1, "{}") == ("ok", "", 2)
    redis_server.kill()
    redis_server.forget_everything()
    redis_server.start()
    await yard.polls(3)
    assert [told.text for told in yard.table.told("a")] == ["word 1", "word 2"]
    assert yard.table.beat("a", "1.1", "me", 7, "{}") == ("ok", "", 2)
    await yard.fleet.hand_out(yard.order(epoch=2), None)
    assert yard.order(epoch=3).told == yard.book.ledger.unit("a").told
    await yard.polls(2)
    assert yard.table.poll(["a"])["a"].told == 2
    yard.book.note(reported(verdict("a", "fail", 1, 2)))
    await yard.polls(1)
    assert yard.table.told("a") == []
