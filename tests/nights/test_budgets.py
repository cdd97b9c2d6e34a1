"""Budgets of a run: money, attempts and time, over the real command."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

from night_stand import QUICK, Project, bash, check_night, orders, plays, says, until

from dispatcher.upkeep.remains import gather

MakeNight = Callable[..., Project]
DEAR: dict[str, Any] = {"usage": {"input_tokens": 50_000, "output_tokens": 5_000}}
"""Fifteen cents a step at $2 and $10 per million tokens."""
STEP = Decimal("0.16")
UNITS = tuple(f"unit-{number}" for number in range(1, 7))


def test_a_run_never_spends_more_than_its_budget_and_the_report_adds_up(night: MakeNight) -> None:
    """$1.00, six units of $0.30: three are done, and the report says the same as the sessions, to the cent."""
    steps = [bash("touch made.txt", **DEAR), says("Done.", **DEAR)]
    project = night(plays(dict.fromkeys(UNITS, steps)), config=f'{QUICK}[limits]\nunit = "$0.30"\n')
    for unit in UNITS:
        project.unit(unit, "test -f made.txt")

    ended = project.overnight("run", "-j", "4", "--budget", "1")

    assert ended.code == 3, ended.text
    line = "the run's limit of $1 is reached: what is left does not cover $0.30 for the next unit"
    assert line in ended.out
    assert "budget      the run's limit of $1 is " in ended.out
    assert sorted(project.ids("passed")) == list(UNITS[:3])
    assert project.ids("open") == list(UNITS[3:])
    seen = gather(project.home, project.night())
    costs = [log.cost for log in seen.sessions if log.cost is not None]
    assert len(costs) == 3
    assert sum(costs) == seen.ledger.spent
    assert seen.ledger.spent <= Decimal("1.00") + 3 * STEP
    assert f"${sum(costs):.2f}" in project.overnight("report").out

    again = project.overnight("run", "-j", "4", "--budget", "$1")

    assert again.code == 0, again.text
    check_night(project, UNITS)


def test_the_whole_budget_can_be_used_and_its_end_is_no_units_failure(night: MakeNight) -> None:
    """$1.00 and units of $0.30 that might take $5: one at a time, and said; whoever runs out of it goes on."""
    steps = [bash("touch made.txt", **DEAR), says("Done.", **DEAR)]
    dear = [bash("ls", **DEAR), bash("ls", **DEAR), *steps]
    project = night(plays({"unit-1": steps, "unit-2": steps, "unit-3": dear}), config=QUICK)
    for unit in UNITS[:3]:
        project.unit(unit, "test -f made.txt")
    project.queue(*UNITS[:3])

    ended = project.overnight("run", "-j", "2", "--budget", "1")

    assert ended.code == 3, ended.text
    assert ended.out.count("1 of 2 slots stay empty") == 1
    assert "a lower [limits] unit reserves less for each" in ended.out
    assert (project.ids("passed"), project.ids("open")) == (["unit-1", "unit-2"], ["unit-3"])
    assert "the run's limit of $1 is reached" in ended.out
    spent = gather(project.home, project.night()).ledger.spent
    assert Decimal("0.9") <= spent <= Decimal("1.00") + STEP

    again = project.overnight("run", "-j", "2", "--budget", "1")

    assert again.code == 0, again.text
    assert orders(project)[2:] == [("unit-3", 1, 1), ("unit-3", 1, 2)]


def test_a_run_begins_no_more_attempts_than_it_may(night: MakeNight) -> None:
    """`--rounds`: each try counts, also the second one at the same unit."""
    script = plays({"never": [says("No.")], "unit-1": [bash("touch made.txt"), says("Done.")]})
    project = night(script, config=f"{QUICK}[limits]\nrounds = 1\n")
    project.unit("never", "false")
    project.unit("unit-1", "test -f made.txt")
    project.queue("never", "unit-1")
    ended = project.overnight("run", "-j", "1", "--rounds", "3")
    assert ended.code == 3, ended.text
    assert "--rounds 3: 3 attempts begun" in ended.out
    assert orders(project) == [("never", 1, 1), ("unit-1", 1, 1), ("never", 2, 1)]
    told = project.messages("never", 2)[0]
    assert "attempt 1: " in told
    assert "It ended with the words:\n    No." in told


def test_a_run_out_of_time_leaves_what_runs_at_a_checkpoint(night: MakeNight) -> None:
    """`hours`: those at work finish their step and are committed; the next run goes on in the same session."""
    project = night({"units": {}})
    gate = project.root.parent / "gate"
    held = [bash(f"echo half > made.txt; until test -f {gate}; do sleep 0.05; done"), says("Done.")]
    config = f"{QUICK}[limits]\nhours = 0.003\n"
    project = night(plays({"unit-1": held, "unit-2": held}), name="it", config=config)
    for unit in UNITS[:2]:
        project.unit(unit, "test -f made.txt")
    run = project.start("run", "-j", "1")
    until(lambda: project.calls("unit-1"), "it is at work")
    project.wait_until_asked_to_stop("unit-1")
    gate.touch()
    ended = run.wait()
    assert ended.code == 3, ended.text
    assert f"stopped: it is {datetime.now().astimezone():%H:}" in ended.out
    assert orders(project) == [("unit-1", 1, 1)]
    assert project.git("show", f"overnight/{project.night()}/unit/unit-1.1:made.txt") == "half"
    project.config(QUICK)
    assert project.overnight("run", "-j", "2").code == 0
    assert orders(project)[1:] == [("unit-1", 1, 2), ("unit-2", 1, 1)]
