"""Spec S9 over the real command: what one run did, the next one does not do again, whatever was killed between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from night_stand import NAMES, Project, check_night, made_by, makes, orders, plays

MakeNight = Callable[..., Project]


def five(project: Project) -> Project:
    """Five units, in the order in which somebody typed them."""
    for name in NAMES:
        project.unit(name)
    project.queue(*NAMES)
    return project


def answers(**more: Any) -> dict[str, Any]:
    return plays({name: makes(made_by(name), **more) for name in NAMES})


def test_a_second_run_goes_on_where_the_first_ended(night: MakeNight) -> None:
    """Five units, `run --limit 2`, `run`: the second begins with the third and touches nothing of the first two."""
    project = five(night(answers()))
    first = project.overnight("run", "-j", "2", "--limit", "2")
    assert first.code == 3, first.text
    done, left = NAMES[:2], list(NAMES[2:])
    assert sorted(project.ids("passed")) == sorted(done)
    assert project.ids("open") == left
    kept = [project.home.session(project.night(), unit, 1) for unit in done]
    kept += [project.root / f".overnight/units/{unit}.md" for unit in done]
    before = [path.stat().st_mtime_ns for path in kept]

    second = project.overnight("run", "-j", "2")

    assert second.code == 0, second.text
    assert [path.stat().st_mtime_ns for path in kept] == before
    assert orders(project) == [(unit, 1, 1) for unit in NAMES]
    assert sorted(project.ids("passed")) == sorted(NAMES)
    assert project.ids("open") == []
    check_night(project, NAMES)
