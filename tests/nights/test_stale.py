"""A unit that no run ever comes to is raised to `blocked` for a person to see (spec S8)."""

from __future__ import annotations

from collections.abc import Callable

from night_stand import QUICK, Project, makes, orders, plays

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
