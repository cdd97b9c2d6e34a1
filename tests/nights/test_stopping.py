"""Ctrl-C once, twice, and `overnight stop`: what was at work goes on in the next run, in the same session."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from night_stand import Project, asked_again, bash, check_night, makes, orders, plays, says, until

from worktrees.containment import tagged

MakeNight = Callable[..., Project]
UNITS = ("create-foo", "create-bar", "create-baz")


def test_ctrl_c_once_finishes_the_step_and_checkpoints(night: MakeNight) -> None:
    """Exit 3; nothing is handed out any more; the work so far is committed; the next run goes on with what is left."""
    project = night({"units": {}})
    gate = project.root.parent / "gate"
    held = [bash(f"echo half > half.txt; until test -f {gate}; do sleep 0.05; done"), says("Done.")]
    project = night(plays({"create-foo": held, "create-bar": held, "create-baz": makes("baz.txt")}), name="it")
    for unit in UNITS:
        project.unit(unit, "test -f baz.txt" if unit == "create-baz" else "test -f half.txt")
    project.queue(*UNITS)
    run = project.start("run", "-j", "2")
    until(lambda: project.calls("create-foo") and project.calls("create-bar"), "both are at work")

    run.signal(signal.SIGINT)
    for unit in UNITS[:2]:
        project.wait_until_asked_to_stop(unit)
    gate.touch()
    ended = run.wait()

    assert ended.code == 3, ended.text
    assert "stopped" in ended.out
    assert project.ids("open") == list(UNITS)
    assert project.calls("create-baz") == 0
    night_id = project.night()
    for unit in UNITS[:2]:
        ends = [record.data for record in project.session(unit) if record.type == "turn/end"]
        assert [(end["reason"], end["facts"]["cause"]) for end in ends] == [("aborted", "stopped")]
        assert project.git("show", f"overnight/{night_id}/unit/{unit}.1:half.txt") == "half"

    ended = project.overnight("run", "-j", "2")

    assert ended.code == 0, ended.text
    check_night(project, UNITS)
    assert asked_again(project) == []
    assert {attempt for _, attempt, _ in orders(project)} == {1}
    assert [project.calls(unit) for unit in UNITS] == [2, 2, 2]


def test_ctrl_c_twice_stops_at_once(night: MakeNight) -> None:
    """Exit 3 within seconds, no process of a unit is left; the next run mends the session and goes on in it."""
    steps = [bash("echo half > half.txt; sleep 300"), bash("echo foo > foo.txt"), says("Done.")]
    project = night(plays({"create-foo": steps}))
    project.unit("create-foo")
    run = project.start("run")
    until(lambda: project.night() and tagged(f"{project.night()}.create-foo"), "its command runs")
    tag = f"{project.night()}.create-foo"

    run.signal(signal.SIGINT)
    until(lambda: "stopping" in run.out.read_text(), "the first signal is heard")
    began = time.monotonic()
    run.signal(signal.SIGINT)
    ended = run.wait()

    assert ended.code == 3, ended.text
    assert time.monotonic() - began < 15
    until(lambda: not tagged(tag), "the unit's processes are gone")

    ended = project.overnight("run")

    assert ended.code == 0, ended.text
    check_night(project, ("create-foo",))
    assert orders(project) == [("create-foo", 1, 1), ("create-foo", 1, 2)]
    assert project.calls("create-foo") == 3
    assert "taken this session up again" in project.messages("create-foo")[1]


def test_stop_is_ctrl_c_from_elsewhere(night: MakeNight) -> None:
    """`overnight stop` lets the current steps finish; exit 3, said to have been asked for."""
    project = night({"units": {}})
    gate = project.root.parent / "gate"
    held = [bash(f"until test -f {gate}; do sleep 0.05; done"), *makes("foo.txt")]
    project = night(plays({"create-foo": held}), name="it")
    project.unit("create-foo")
    run = project.start("run")
    until(lambda: project.calls("create-foo"), "it is at work")
    asked = project.overnight("stop")
    assert asked.code == 0, asked.text
    project.wait_until_asked_to_stop("create-foo")
    gate.touch()
    ended = run.wait()
    assert ended.code == 3, ended.text
    assert "asked to stop" in ended.out
    assert project.calls("create-foo") == 1
