"""A Redis and workers of one's own: they outlive the dispatcher, and the next run takes in what they did."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from night_stand import QUICK, Project, asked_again, bash, check_night, makes, orders, plays, until

from workers.outbox import Outbox

MakeNight = Callable[..., Project]
UNITS = ("create-foo", "create-bar", "create-baz")


def test_workers_on_a_broker_outlive_the_dispatcher(night: MakeNight, redis_server: Any) -> None:
    """The dispatcher is killed, the workers finish, the next run takes their verdicts in without a model call."""
    project = night({"units": {}})
    gate = project.root.parent / "gate"
    held = [bash(f"until test -f {gate}; do sleep 0.05; done")]
    script = plays(
        {
            "create-foo": [*held, *makes("foo.txt")],
            "create-bar": [*held, *makes("bar.txt")],
            "create-baz": makes("baz.txt"),
        }
    )
    project = night(script, name="it", config=f'{QUICK}broker = "{redis_server.url}"\n')
    for unit in UNITS:
        project.unit(unit)
    project.queue(*UNITS)
    workers = [project.start("worker", "-j", "1", "--name", f"own{number}") for number in (1, 2)]
    run = project.start("run", "-j", "2")
    until(lambda: project.calls("create-foo") and project.calls("create-bar"), "both workers are at work")

    run.kill()
    gate.touch()
    until(lambda: len(Outbox(project.home.outbox).pending()) == 2, "the workers finish on their own")
    assert [worker.process.poll() for worker in workers] == [None, None]
    calls = [project.calls(unit) for unit in UNITS]
    assert calls == [3, 3, 0]

    ended = project.overnight("run", "-j", "2")

    assert ended.code == 0, ended.text
    check_night(project, UNITS)
    assert [project.calls(unit) for unit in UNITS] == [3, 3, 2]
    assert asked_again(project) == []
    assert orders(project) == [(unit, 1, 1) for unit in UNITS]
    assert [worker.process.poll() for worker in workers] == [None, None]
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait(30).code == 0
    assert list(project.home.outbox.iterdir()) == []


def test_a_broker_that_is_not_there_is_said_so(night: MakeNight, tmp_path: Any) -> None:
    """Exit 4, naming the setting; nothing is handed out. A worker without a broker is bad input."""
    project = night(
        plays({"create-foo": makes("foo.txt")}), config=f'[engine]\nbroker = "redis+socket://{tmp_path}/none"\n'
    )
    project.unit("create-foo")
    ended = project.overnight("run")
    assert ended.code == 4, ended.text
    assert "[engine] broker" in ended.err
    assert orders(project) == []
    project.config("")
    ended = project.overnight("worker")
    assert ended.code == 2
    assert "broker" in ended.err
