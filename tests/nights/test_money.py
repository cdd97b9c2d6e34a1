"""Caps on money, of a unit and of the night: exact to the step in flight."""

from __future__ import annotations

import signal
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from night_stand import QUICK, Project, bash, check_night, plays, says, until

from dispatcher.journal import Spent

MakeNight = Callable[..., Project]
NOTHING_CACHED = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
DEAR: dict[str, Any] = {"usage": {"input_tokens": 10_000, "output_tokens": 1_000, **NOTHING_CACHED}}
"""Three cents a step at $2 and $10 per million tokens."""


def test_a_unit_that_has_spent_its_limit_is_blocked(night: MakeNight) -> None:
    """No further call is made once the limit is reached, over all attempts; a person may raise it and retry."""
    endless = [*[bash("ls", **DEAR) for _ in range(20)], says("Done.")]
    cheap = [bash("touch bar.txt", **DEAR), says("Done.", **DEAR)]
    project = night(plays({"create-foo": endless, "create-bar": cheap}))
    project.unit("create-foo", limits='{money: "$0.08"}')
    project.unit("create-bar")

    ended = project.overnight("run", "-j", "2")

    assert ended.code == 1, ended.text
    assert project.calls("create-foo") == 3  # 3, 6, 9 cents
    assert project.ids("passed") == ["create-bar"]
    assert project.state().note_of("create-foo") == "unit limit of money used up: $0.09; raise it, then retry"
    check_night(project, ("create-foo", "create-bar"))
    assert "$0.15" in ended.out


def test_what_the_nights_limit_cannot_cover_is_not_begun(night: MakeNight) -> None:
    """Exit 3 with the reason; what was not begun stays in `open`; with a higher limit the next run goes on."""
    steps = [bash("touch made.txt", **DEAR), says("Done.", **DEAR)]
    units = ("unit-1", "unit-2", "unit-3")
    project = night(plays(dict.fromkeys(units, steps)), config=f'{QUICK}[limits]\nunit = "$0.08"\nnight = "$0.17"\n')
    for unit in units:
        project.unit(unit, "test -f made.txt")

    ended = project.overnight("run", "-j", "1")

    assert ended.code == 3, ended.text
    assert "the night's limit of $0.17 is reached" in ended.out
    assert project.ids("passed") == ["unit-1", "unit-2"]
    assert project.ids("open") == ["unit-3"]
    assert project.calls("unit-3") == 0

    project.config(f'{QUICK}[limits]\nunit = "$0.08"\nnight = "$1"\n')
    assert project.overnight("run").code == 0
    assert project.ids("passed") == list(units)


def test_what_a_killed_run_had_spent_is_booked(night: MakeNight) -> None:
    """Nobody reported it: the sessions' own logs say it, also of an attempt that nobody comes back to."""
    steps = [bash("true", **DEAR), bash("sleep 60", **DEAR), says("Done.", **DEAR)]
    again = [bash("touch foo.txt", **DEAR), says("Done.", **DEAR)]
    project = night(plays({"create-foo": {"steps": steps, "attempts": {2: again}}}))
    project.unit("create-foo")
    run = project.start("run")
    until(lambda: project.calls("create-foo") == 2 and project.count("create-foo", "tool/call") == 2, "it sleeps")
    run.signal(signal.SIGKILL)
    run.wait()
    assert project.overnight("retry", "create-foo").code == 0

    ended = project.overnight("run")

    assert ended.code == 0, ended.text
    assert "$0.12" in ended.out
    (spent,) = project.journal(Spent)
    assert (spent.attempt, spent.cost) == (1, Decimal("0.06"))
    assert project.overnight("fsck").code == 0
