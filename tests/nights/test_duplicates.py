"""One order delivered twice, to two processes at once and once more afterwards: one of everything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from night_stand import Project, makes, until

from dispatcher.config import Config
from dispatcher.decide import HandOut
from dispatcher.ledger import UnitFacts
from dispatcher.orders import order_of
from dispatcher.units import UnitFile
from workers.lease import LeaseTable
from workers.log import read
from workers.orders import UnitOrder
from workers.outbox import Mailbox

MakeNight = Callable[..., Project]
NIGHT = "1130-k3v"
HOSTS = 2


class Hosts:
    """Two worker processes on one Redis, and the dispatcher's side of it."""

    def __init__(self, project: Project, broker: str, client: Any) -> None:
        self.project = project
        self.base = project.git("rev-parse", "HEAD")
        self.table = LeaseTable(client, NIGHT)
        self.mailbox = Mailbox(client, NIGHT)
        script = str(Path(__file__).with_name("twin_host.py"))
        self.processes = [
            subprocess.Popen(
                [sys.executable, script, broker],
                cwd=Path(__file__).parents[2],
                env={**project.env, "PYTHONPATH": str(Path(__file__).parents[2])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(HOSTS)
        ]

    def order(self, unit: str) -> UnitOrder:
        """Publish the hand-out of a unit."""
        return order_of(
            UnitFile(id=unit, goal="Make it.", verify="test -f made.txt"),
            HandOut(unit, 1, 1, None),
            UnitFacts(),
            Config(),
            night=NIGHT,
            base=self.base,
            run_id=self.table.publish(unit, "1.1", "open"),
            repository=self.project.root,
            home=self.project.home.root,
        )

    def deliver(self, order: UnitOrder) -> list[str]:
        """Give the order to every host at once, and return what each said."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(order.model_dump_json() + "\n")
            process.stdin.flush()
        return [process.stdout.readline() for process in self.processes if process.stdout is not None]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def hosts(night: MakeNight, redis_server: Any, redis_client: Any) -> Iterator[Hosts]:
    project = night({"default": makes("made.txt")})
    project.home.make()
    made = Hosts(project, redis_server.url, redis_client)
    yield made
    made.close()


def once_for_all(hosts: Hosts, unit: str) -> None:
    order = hosts.order(unit)
    said = sorted(hosts.deliver(order))
    assert [line.split(":")[0].split()[0] for line in said] == ["not", "pass"], said
    (report,) = until(hosts.mailbox.receive, "the report arrives")
    again = hosts.deliver(order)  # redelivered when everything is done, and before it is acknowledged
    assert all(line.startswith("not ours") for line in again), again
    hosts.mailbox.acknowledge(report.task_id)
    records = read(hosts.project.home.session(NIGHT, unit, 1)).records
    kinds = [record.type for record in records]
    assert [kinds.count(kind) for kind in ("session/start", "claim", "report")] == [1, 1, 1]
    refs = hosts.project.git("for-each-ref", "--format=%(refname)", f"refs/overnight/{NIGHT}/{unit}")
    assert refs == order.ref
    assert hosts.project.calls(unit) == 2


def test_an_order_that_comes_twice_is_taken_once(hosts: Hosts) -> None:
    """Twenty orders, each to two processes at once and again later: one claim, one session, one ref, one report."""
    for number in range(20):
        once_for_all(hosts, f"unit-{number}")


@pytest.mark.soak
def test_two_hundred_orders_that_come_twice_are_taken_once(hosts: Hosts) -> None:
    """The same, two hundred times over."""
    for number in range(200):
        once_for_all(hosts, f"unit-{number}")
