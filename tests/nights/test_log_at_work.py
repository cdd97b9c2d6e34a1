"""What is said of a unit while somebody is at work on it, and after the run was killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from night_stand import Project, bash, plays, says, until

MakeNight = Callable[..., Project]


def test_at_work_and_killed(night: MakeNight) -> None:
    """A running call has not crashed; without a run nobody is at work, the follower ends, and the closers are shown."""
    gate = "$OVERNIGHT_SCRATCH/go"
    steps: list[Any] = [bash(f"until [ -e {gate} ]; do sleep 0.1; done"), bash("echo x > foo.txt"), says("Done.")]
    project = night(plays({"create-foo": steps}))
    project.unit("create-foo")
    run = project.start("run")
    until(lambda: project.night() and project.journal() and "tool/call" in _types(project), "the call runs")
    shown = project.overnight("log", "create-foo").text
    assert "interrupted" not in shown
    assert "(at work: more is to come" in shown
    rows = [json.loads(line) for line in project.overnight("log", "create-foo", "--json").out.splitlines()]
    assert all(row["seq"] is not None for row in rows)
    assert "(at work)" in project.overnight("status").out
    follow = project.start("log", "create-foo", "--follow")
    until(lambda: "turn 1" in follow.out.read_text(), "the follower shows what is there")
    run.kill()
    assert "no run is going" in follow.wait(30).err
    assert "(was at work; no run is going)" in project.overnight("status").out
    assert json.loads(project.overnight("status", "--json").out)["at_work"] == []
    assert "interrupted: closed after a crash" in project.overnight("log", "create-foo").out
    assert "interrupted: closed after a crash" in project.overnight("log", "create-foo", "--follow").out


def _types(project: Project) -> list[str]:
    return [record.type for record in project.session("create-foo")]
