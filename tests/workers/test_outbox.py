"""Reports on their way: on disk until acknowledged, carried again as often as it takes, counted once."""

import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis

from workers.orders import Release, UnitReport
from workers.outbox import Courier, Mailbox, Outbox, decode
from worktrees.errors import DiskError

NIGHT = "1117-k3v"


def report(unit: str = "u", epoch: int = 1) -> UnitReport:
    return UnitReport(
        night=NIGHT, unit=unit, attempt=1, epoch=epoch, verdict="pass", commit="c", tree="t", cost=Decimal("0.10")
    )


RELEASE = Release(night=NIGHT, unit="v", attempt=2, epoch=3, reason="disk", detail="full")


def until(condition: Callable[[], object], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "home" / "outbox")


@pytest.fixture
def mailbox(redis_client: redis.Redis) -> Mailbox:
    return Mailbox(redis_client, NIGHT)


class Carried:
    """A courier at work, and which reports it says are delivered."""

    def __init__(self, client: redis.Redis) -> None:
        self.delivered: list[str] = []
        self.courier = Courier(lambda night: Mailbox(client, night), self.delivered.append, every=0.02)


@pytest.fixture
def carried(redis_client: redis.Redis) -> Iterator[Carried]:
    made = Carried(redis_client)
    made.courier.start()
    yield made
    made.courier.stop()


def test_kept_until_removed(outbox: Outbox) -> None:
    """Reports are found again by another process, as they were, until they are removed; removing twice is fine."""
    assert outbox.pending() == []
    outbox.put(report())
    outbox.put(RELEASE)
    outbox.put(report())  # the same hand-out: one file
    assert Outbox(outbox.folder).pending() == [report(), RELEASE]
    outbox.remove(report().task_id)
    outbox.remove(report().task_id)
    assert outbox.pending() == [RELEASE]
    assert [path.name for path in outbox.folder.iterdir()] == [f"{RELEASE.task_id}.json"]


def test_durable_before_it_returns(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and its name are synced before `put` returns."""
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    outbox.put(report())
    assert len(synced) == 2


def test_a_full_disk(tiny_disk: Path) -> None:
    """A report that does not fit is an error, and what was there before stays."""
    outbox = Outbox(tiny_disk / "outbox")
    outbox.put(report())
    with pytest.raises(DiskError, match="No space left"):
        outbox.put(report("big").model_copy(update={"output": "x" * 100_000}))
    assert outbox.pending() == [report()]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A home that is no folder is a DiskError like any other."""
    (tmp_path / "home").write_text("")
    with pytest.raises(DiskError):
        Outbox(tmp_path / "home" / "outbox").put(report())


def test_unreadable_files_are_left_for_people(outbox: Outbox) -> None:
    """A file that is no report is neither sent nor deleted, and hides no other."""
    outbox.put(report())
    (outbox.folder / "0.json").write_text('{"kind": "verd')
    assert outbox.pending() == [report()]
    assert (outbox.folder / "0.json").exists()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": "rumour"}', b"\xff"])
def test_decode_refuses(text: Any) -> None:
    """What is no report or release is a ValueError that says so."""
    with pytest.raises(ValueError, match="no report"):
        decode(text)


def test_round_trip() -> None:
    """Both kinds come back as what they were, money exact."""
    for closing in (report(), RELEASE):
        assert decode(closing.model_dump_json()) == closing


def test_mailbox(mailbox: Mailbox) -> None:
    """A report waits until it is acknowledged, wakes the dispatcher, and doing anything twice changes nothing."""
    assert not mailbox.wait(0.05)
    for _ in range(2):
        mailbox.send(report())
    mailbox.send(RELEASE)
    assert mailbox.wait(1)
    assert sorted(closing.task_id for closing in mailbox.receive()) == [report().task_id, RELEASE.task_id]
    assert not mailbox.is_acknowledged(report().task_id)
    for _ in range(2):
        mailbox.acknowledge(report().task_id)
    assert mailbox.is_acknowledged(report().task_id)
    assert mailbox.receive() == [RELEASE]


def test_waiting_ends_with_the_report(mailbox: Mailbox, redis_server: Any) -> None:
    """Whoever waits hears of a report at once."""
    with redis_server.client() as client:
        timer = threading.Timer(0.1, lambda: Mailbox(client, NIGHT).send(report()))
        timer.start()
        began = time.monotonic()
        assert mailbox.wait(5)
        assert time.monotonic() - began < 2
        timer.join()


def test_deleted_only_after_the_acknowledgement(carried: Carried, outbox: Outbox, mailbox: Mailbox) -> None:
    """The courier sends until it hears that the journal has the report; only then the file goes, and it says so."""
    outbox.put(report())
    carried.courier.carry(outbox, report())
    until(mailbox.receive)
    time.sleep(0.1)
    assert outbox.pending() == [report()]
    assert (carried.delivered, carried.courier.idle()) == ([], False)
    mailbox.acknowledge(report().task_id)
    until(carried.courier.idle)
    assert outbox.pending() == []
    assert carried.delivered == [report().task_id]
    assert mailbox.receive() == []


def test_delivered_after_redis_was_away(carried: Carried, outbox: Outbox, redis_server: Any) -> None:
    """A report that was written while Redis was away arrives when it is back."""
    redis_server.kill()
    outbox.put(report())
    carried.courier.carry(outbox, report())
    time.sleep(0.1)
    assert outbox.pending() == [report()]
    redis_server.start()
    with redis_server.client() as client:
        mailbox = Mailbox(client, NIGHT)
        until(mailbox.receive)
        mailbox.acknowledge(report().task_id)
    until(carried.courier.idle)
    assert outbox.pending() == []


def test_sent_again_when_redis_lost_it(
    carried: Carried, outbox: Outbox, mailbox: Mailbox, redis_client: redis.Redis
) -> None:
    """A Redis that forgot everything gets the report again."""
    outbox.put(report())
    carried.courier.carry(outbox, report())
    until(mailbox.receive)
    redis_client.flushall()
    until(mailbox.receive)


def test_a_duplicate_is_acknowledged_again(carried: Carried, outbox: Outbox, mailbox: Mailbox) -> None:
    """A host that died after the acknowledgement carries the report once more, and is told at once."""
    mailbox.acknowledge(report().task_id)
    outbox.put(report())
    carried.courier.carry(outbox, report())
    until(carried.courier.idle)
    assert outbox.pending() == []
    assert mailbox.receive() == []


def test_a_disk_that_will_not_forget(
    carried: Carried, outbox: Outbox, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be deleted does not end the courier: it tries again."""
    remove, failures = Outbox.remove, [0]

    def fail_twice(self: Outbox, task_id: str) -> None:
        failures[0] += 1
        if failures[0] <= 2:
            raise OSError(30, "Read-only file system")
        remove(self, task_id)

    monkeypatch.setattr(Outbox, "remove", fail_twice)
    mailbox.acknowledge(report().task_id)
    outbox.put(report())
    carried.courier.carry(outbox, report())
    until(carried.courier.idle)
    assert carried.delivered == [report().task_id]


def test_several_at_once(carried: Carried, outbox: Outbox, mailbox: Mailbox) -> None:
    """Each report has its own way: one that is acknowledged is gone while another still waits."""
    for unit in ("a", "b", "c"):
        outbox.put(report(unit))
        carried.courier.carry(outbox, report(unit))
    until(lambda: len(mailbox.receive()) == 3)
    mailbox.acknowledge(report("b").task_id)
    until(lambda: carried.delivered == [report("b").task_id])
    assert [left.unit for left in outbox.pending()] == ["a", "c"]
