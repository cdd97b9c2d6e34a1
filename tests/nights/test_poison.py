"""A unit that kills its own worker process every time ends in front of a person; its neighbours lose no attempt."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from night_stand import SHARED, Project, bash, check_night, made_by, plays, says

from dispatcher.decide import LOSSES_UNTIL_ALONE, MOST_LOSSES
from dispatcher.journal import Lost, Ordered, Reported
from dispatcher.state import Bucket

MakeNight = Callable[..., Project]
OTHERS = ("create-foo", "create-bar", "create-baz", "create-qux")
POISON = "kill-it"
# Without namespaces (the folder of programs has no `unshare`), a command's parent is the worker process itself.
KILL = bash("kill -9 $PPID", repeat=20)


def without_unshare(folder: Path) -> str:
    """Make a PATH that has everything but `unshare`."""
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if program.name != "unshare":
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(folder)


def works_again(path: str) -> list[dict[str, Any]]:
    """The steps of a slow unit that does again what is gone: its tree is made anew when its worker died (rule 7)."""
    made = bash(f"echo made > {path}", latency=0.3)
    return [made, made, made, made, says("Done.", latency=0.3), made, says("Done again."), made, says("And again.")]


def poisoned(night: MakeNight, poison: list[dict[str, Any]], **options: Any) -> Project:
    """A night of five units, of which the first kills its worker."""
    slow = {name: works_again(made_by(name)) for name in OTHERS}
    project = night(plays({POISON: poison, **slow}), **options)
    project.extra_env["PATH"] = without_unshare(project.root.parent / "programs")
    for name in (POISON, *OTHERS):
        project.unit(name)
    project.queue(POISON, *OTHERS)
    return project


def alone(project: Project) -> list[bool]:
    """For each hand-out of the poison, whether nobody else was at work at any time while it was."""
    found: list[bool] = []
    flying: set[str] = set()
    for entry in project.journal():
        if isinstance(entry, Ordered):
            if entry.unit == POISON:
                found.append(not flying)
            elif POISON in flying:
                found[-1] = False
            flying.add(entry.unit)
        elif isinstance(entry, Lost):
            flying.discard(entry.unit)
        elif isinstance(entry, Reported):
            flying.discard(entry.report.unit)
    return found


def test_a_unit_whose_worker_is_killed_every_time_is_blocked(night: MakeNight) -> None:
    """Three losses, the last of them alone in the fleet; the reason is its note; everybody else passes at once."""
    project = poisoned(night, [KILL])

    ended = project.overnight("run", "-j", "4")

    assert ended.code == 1, ended.text
    check_night(project, (POISON, *OTHERS))
    assert project.ids("blocked") == [POISON]
    assert "worker was lost 3 times" in project.state().note_of(POISON)
    assert sorted(project.ids("passed")) == sorted(OTHERS)
    assert alone(project) == [False] * LOSSES_UNTIL_ALONE + [True] * (MOST_LOSSES - LOSSES_UNTIL_ALONE)
    assert {entry.attempt for entry in project.journal(Ordered)} == {1}
    for unit in OTHERS:
        losses = [entry for entry in project.journal(Lost) if entry.unit == unit]
        assert len(losses) <= LOSSES_UNTIL_ALONE, losses
    assert project.state().bucket_of(POISON) is Bucket.blocked


@pytest.mark.soak
def test_a_unit_that_gets_a_little_further_each_time_is_blocked_too(night: MakeNight) -> None:
    """Progress does not make it immortal; where it may, it runs alone."""
    steps = [step for _ in range(12) for step in (bash("true"), bash("true"), bash("sleep 0.5"), bash("kill -9 $PPID"))]
    project = poisoned(night, steps, config=SHARED)

    ended = project.overnight("run", "-j", "4")

    assert ended.code == 1, ended.text
    check_night(project, (POISON, *OTHERS))
    assert "worker was lost" in project.state().note_of(POISON)
    assert sorted(project.ids("passed")) == sorted(OTHERS)
    assert {entry.attempt for entry in project.journal(Ordered)} == {1}
    assert alone(project)[-1]
