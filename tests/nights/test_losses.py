"""Redis dies in mid-run, and a second dispatcher comes along: the night ends as it would have without."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from night_stand import NAMES, SHARED, Project, asked_again, bash, check_night, made_by, makes, orders, plays, until

MakeNight = Callable[..., Project]


def test_a_redis_that_dies_in_mid_run_comes_back_and_nothing_happened(night: MakeNight, tmp_path: object) -> None:
    """SIGKILL twice: everybody waits, nobody aborts, no call is asked again, no attempt is spent."""
    project = night(plays({name: makes(made_by(name), looks=4, latency=0.2) for name in NAMES}), config=SHARED)
    for name in NAMES:
        project.unit(name)
    run = project.start("run", "-j", "3")
    for calls in (3, 12):
        until(lambda wanted=calls: len(project.server.requests) > wanted, "the model is asked")
        (redis,) = until(project.redis, "Redis runs")
        os.kill(redis, signal.SIGKILL)
        until(lambda old=redis: project.redis() not in ([], [old]), "Redis is started again")

    ended = run.wait()

    assert ended.code == 0, ended.text
    check_night(project, NAMES)
    assert asked_again(project) == []
    assert {attempt for _, attempt, _ in orders(project)} == {1}
    assert all(project.count(name, "session/start") == 1 for name in NAMES)


def test_a_second_run_is_refused_naming_the_first(night: MakeNight) -> None:
    """Exit 2, at once; the first goes on undisturbed, also from a linked checkout of the same repository."""
    project = night({"units": {}})
    gate = project.root.parent / "gate"
    units = {"create-foo": [bash(f"until test -f {gate}; do sleep 0.05; done"), *makes("foo.txt")]}
    project = night(plays(units), name="other")
    project.unit("create-foo")
    run = project.start("run")
    until(lambda: project.calls("create-foo"), "it works")
    linked = project.root.parent / "linked"
    project.git("worktree", "add", "-q", "--detach", str(linked))
    before = project.state_path.read_bytes()

    second = project.overnight("run")

    assert second.code == 2, second.text
    assert str(run.process.pid) in second.err
    assert "overnight stop" in second.err
    project.root, root = linked, project.root
    assert project.overnight("run").code == 2
    project.root = root
    assert project.state_path.read_bytes() == before
    gate.touch()
    ended = run.wait()
    assert ended.code == 0, ended.text
    check_night(project, ("create-foo",))
