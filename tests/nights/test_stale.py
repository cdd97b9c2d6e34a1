"""A unit that no run ever comes to is raised to `blocked` for a person to see (spec S8)."""

from __future__ import annotations

import signal
from collections.abc import Callable

from night_stand import QUICK, Project, bash, makes, orders, plays, says, until

from dispatcher.journal import RunEnded

MakeNight = Callable[..., Project]


def test_a_unit_that_two_runs_never_came_to_is_blocked_at_the_start_of_the_third(night: MakeNight) -> None:
    """With the reason; what waits for another unit was not ready and is not counted; a retry queues it again."""
    units = ("create-foo", "create-bar", "create-baz")
    script = plays({name: makes(f"{name[7:]}.txt") for name in (*units, "create-qux")})
    project = night(script, config=f"{QUICK}[limits]\nstale_after = 2\n")
    for name in units:
        project.unit(name)
    project.unit("create-qux", after="create-baz")
    project.queue(*units, "create-qux")
    for done in units[:2]:
        assert project.overnight("run", "--limit", "1").code == 3
        assert project.ids("passed")[-1] == done
    assert [entry.untouched for entry in project.journal(RunEnded)] == [["create-bar", "create-baz"], ["create-baz"]]

    ended = project.overnight("run", "--limit", "1")

    assert ended.code == 1, ended.text
    assert project.ids("blocked") == ["create-baz"]
    note = project.state().note_of("create-baz")
    assert note.startswith("ready in 2 runs and never handed out; the last run ended: --limit 1"), note
    assert project.ids("open") == ["create-qux"]
    assert "create-qux  waits for create-baz, which is blocked and needs you" in project.overnight("report").out

    assert project.overnight("retry", "create-baz").code == 0
    assert project.overnight("run").code == 0
    assert [unit for unit, _, _ in orders(project)] == [*units, "create-qux"]


def test_a_run_that_was_cut_short_passes_nobody_over(night: MakeNight) -> None:
    """One run is stopped by Ctrl-C, one ends its time under a pause, before they come to a ready unit: not stale."""
    project = night({"units": {}}, name="none")
    gate = project.root.parent / "gate"
    held = [bash(f"until test -f '{gate}'; do sleep 0.05; done"), bash("touch foo.txt"), says("Done.")]
    script = plays({"create-foo": held, "create-bar": makes("bar.txt")})
    project = night(script, config=f"{QUICK}[limits]\nstale_after = 1\n")
    units = ("create-foo", "create-bar")
    for unit in units:
        project.unit(unit)
    project.queue(*units)
    run = project.start("run", "-j", "1")
    until(lambda: project.calls("create-foo"), "the one before it is at work")
    run.signal(signal.SIGINT)
    project.wait_until_asked_to_stop("create-foo")
    gate.touch()
    assert run.wait().code == 3
    assert project.overnight("pause").code == 0
    project.config(f"{QUICK}[limits]\nstale_after = 1\nhours = 0.001\n")
    run = project.start("run", "-j", "1")
    ended = run.wait()
    assert (ended.code, "the night is paused: nothing is handed out" in ended.out) == (3, True), ended.text
    assert [entry.untouched for entry in project.journal(RunEnded)] == [[], []]
    project.config(f"{QUICK}[limits]\nstale_after = 1\n")
    assert project.overnight("resume").code == 0

    ended = project.overnight("run", "-j", "1")

    assert ended.code == 0, ended.text
    assert project.ids("passed") == list(units)
