"""One worker process's host: claims an order, works on it in its one loop, and beats until the report is taken."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from attempt_stand import AttemptStand

from workers.host import Host
from workers.lease import LeaseTable
from workers.orders import UnitOrder
from workers.outbox import Mailbox, Outbox
from worktrees.errors import DiskError


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Worker:
    """A host, the dispatcher's side of its Redis, and orders for one unit."""

    def __init__(self, at: AttemptStand, host: Host, client: redis.Redis) -> None:
        self.at = at
        self.host = host
        self.table = LeaseTable(client, at.night)
        self.mailbox = Mailbox(client, at.night)
        self.outbox = Outbox(at.home / "outbox")

    def order(self, epoch: int = 1) -> UnitOrder:
        """Publish a hand-out and return its order."""
        return self.at.order(epoch=epoch, run_id=self.table.publish("a", f"1.{epoch}", "open"))

    def beat(self) -> int:
        return self.table.poll(["a"])["a"].beat

    def stands_still(self) -> bool:
        """Whether the lease is no longer beaten for."""
        before = self.beat()
        time.sleep(0.2)
        return self.beat() == before


@pytest.fixture
def worker(
    make_repository: Any, rehearse: Any, redis_server: Any, redis_client: redis.Redis, tmp_path: Path
) -> Iterator[Worker]:
    """A started host whose units make a file, slowly enough to be watched."""
    steps = [
        {"blocks": [{"tool": "bash", "input": {"command": "touch done"}}]},
        {"blocks": [{"text": "Done."}], "latency": 0.3},
    ]
    server = rehearse({"units": {"a": {"steps": steps}}})
    repository = make_repository({"README.md": "# A\n"})
    at = AttemptStand(repository, tmp_path / "home", server, None, repository.git("rev-parse", "HEAD"))
    host = Host(redis_server.url, beat=0.05, patience=5, show=lambda *_: None)
    host.start()
    yield Worker(at, host, redis_client)
    host._beater.stop()
    host._courier.stop()


def test_an_order_to_its_end(worker: Worker) -> None:
    """A claimed order is worked on while the lease beats; the report waits on disk and in Redis until it is taken."""
    line = worker.host.run(worker.order())
    assert line.startswith("pass  1 turns  2 steps")
    until(worker.mailbox.receive)
    (report,) = worker.mailbox.receive()
    assert report == worker.outbox.pending()[0]
    assert not worker.stands_still()  # whoever has not been heard is not dead
    worker.mailbox.acknowledge(report.task_id)
    until(worker.host._courier.idle)
    assert worker.outbox.pending() == []
    assert worker.stands_still()


def test_not_ours(worker: Worker) -> None:
    """An order that somebody else claimed is left alone."""
    order = worker.order()
    assert worker.table.claim("a", order.token, "other", order.run_id)
    assert worker.host.run(order).startswith("not ours")
    assert worker.at.server.requests == []


def test_given_up_when_the_lease_is_lost(worker: Worker) -> None:
    """A newer hand-out cancels the work: nothing is reported, and nothing is beaten for."""
    order = worker.order()
    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.append(worker.host.run(order)))
    thread.start()
    until(lambda: len(worker.at.server.requests) == 2)
    worker.table.publish("a", "1.2", "open")
    thread.join(timeout=10)
    assert lines[0].startswith("given up")
    assert (worker.outbox.pending(), worker.mailbox.receive()) == ([], [])
    until(lambda: worker.at.server.requests[1].disconnected)
    assert worker.host.run(worker.at.order(epoch=2, run_id=worker.table.run_id())).startswith("pass")


def test_a_wish_to_stop(worker: Worker) -> None:
    """What the dispatcher wishes reaches the unit with a beat, and it is released."""
    order = worker.order()
    worker.table.wish("a", "stop")
    assert worker.host.run(order).startswith("released: stopped")
    assert len(worker.at.server.requests) < 2


def test_a_report_that_cannot_be_stored(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the outbox's disk is full the unit is released, at no loss; handed out again it reports and asks nothing."""

    def full(self: Outbox, report: Any) -> None:
        message = "No space left on device"
        raise DiskError(message, self.folder)

    with monkeypatch.context() as patched:
        patched.setattr(Outbox, "put", full)
        assert worker.host.run(worker.order()) == "released: disk No space left on device"
    until(worker.mailbox.receive)
    (told,) = worker.mailbox.receive()
    assert (told.kind, told.reason, told.steps, told.cost is None) == ("release", "disk", 2, False)
    assert not worker.stands_still()
    worker.mailbox.acknowledge(told.task_id)
    until(worker.host._courier.idle)
    asked = len(worker.at.server.requests)
    assert worker.host.run(worker.order(epoch=2)).startswith("pass")
    assert len(worker.at.server.requests) == asked


def test_reports_of_a_dead_process_go_out_first(worker: Worker, redis_server: Any) -> None:
    """A new host sends what a dead one left in the outbox before it has an order of its own."""
    worker.host._courier.stop()
    worker.host.run(worker.order())
    assert worker.mailbox.receive() == []
    successor = Host(redis_server.url, beat=0.05, patience=5, show=lambda *_: None)
    successor.start(worker.outbox.folder)
    until(worker.mailbox.receive)
    successor._beater.stop()
    successor._courier.stop()
