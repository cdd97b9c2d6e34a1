"""While nobody can read the state file or a unit file, a run can still be stopped, paused, resumed and looked at."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from night_stand import QUICK, Project, bash, check_night, makes, orders, plays, says, until

from dispatcher.journal import Asked

MakeNight = Callable[..., Project]
UNITS = ("create-foo", "create-bar")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """While this file is missing, create-foo is at work."""
    return tmp_path / "gate"


@pytest.fixture
def project(night: MakeNight, gate: Path) -> Project:
    """A unit that waits at the gate, and one behind it."""
    held = [bash(f"until test -f '{gate}'; do sleep 0.05; done"), *makes("foo.txt")]
    made = night(plays({"create-foo": held, "create-bar": makes("bar.txt")}))
    for unit in UNITS:
        made.unit(unit)
    made.queue(*UNITS)
    return made


def spoil(project: Project) -> str:
    """Misspell a heading, and return the text as it was."""
    good = project.state_path.read_text()
    project.state_path.write_text(good.replace("## open", "## opne"))
    return good


def test_a_detached_run_is_steered_and_ended(project: Project, gate: Path) -> None:
    """`pause`, `resume` and `stop` are done and say so; what concerns a unit names the fault."""
    assert project.overnight("run", "--detach", "-j", "1").code == 0
    until(lambda: project.calls("create-foo"), "it is at work")
    good = spoil(project)
    until(lambda: "until it is mended" in project.home.run_log.read_text(), "the run has noticed")
    for word in ("pause", "resume"):
        asked = project.overnight(word)
        assert (asked.code, asked.out) == (0, "done\n"), asked.text
    refused = project.overnight("block", "create-bar")
    assert (refused.code, "state.md:" in refused.err) == (2, True), refused.text

    stopped = project.overnight("stop")

    assert (stopped.code, stopped.out) == (0, "done\n"), stopped.text
    project.wait_until_asked_to_stop("create-foo")
    gate.touch()
    until(lambda: "stopped: asked to stop" in project.home.run_log.read_text(), "the run ends, and says so")
    assert "this is the night as it was written last" in project.home.run_log.read_text()
    assert [(one.request["kind"], one.obeyed) for one in project.journal(Asked)] == [
        ("pause", True),
        ("resume", True),
        ("stop", True),
    ]
    assert project.state_path.read_text() == good.replace("## open", "## opne")
    assert [unit for unit, _, _ in orders(project)] == ["create-foo"]

    project.state_path.write_text(good)
    ended = project.overnight("run")
    assert ended.code == 0, ended.text
    check_night(project, UNITS)


def test_status_shows_what_it_can(project: Project, gate: Path) -> None:
    """The fault with its line, what to do, and the night as it was written last; as one JSON object, too."""
    run = project.start("run", "-j", "1")
    until(lambda: project.calls("create-foo"), "it is at work")
    good = spoil(project)
    line = good.splitlines().index("## open") + 1
    shown = project.overnight("status")
    assert shown.code == 0, shown.text
    assert f"state.md:{line}" in shown.out.splitlines()[0]
    assert "until this is mended; or `overnight fsck --rebuild-state`" in shown.out
    assert f"night {project.home.all_nights()[0]}   open 2   tried 0" in shown.out
    assert "open     create-foo  (at work)" in shown.out
    facts = json.loads(project.overnight("status", "--json").out)
    assert (facts["buckets"]["open"], facts["in_flight"]) == (list(UNITS), ["create-foo"])
    assert f"state.md:{line}" in facts["wrong"]
    project.state_path.write_text(good)
    gate.touch()
    assert run.wait().code == 0
    assert json.loads(project.overnight("status", "--json").out)["wrong"] is None


def test_a_unit_file_that_nobody_can_read_hides_no_night(project: Project, gate: Path) -> None:
    """The run goes on with what it read before; `status` names the file, and `stop` is obeyed."""
    run = project.start("run", "-j", "1")
    until(lambda: project.calls("create-foo"), "it is at work")
    project.write(".overnight/units/broken.md", "---\nverify: [\n---\n\nBroken.\n")
    shown = project.overnight("status")
    assert ("broken.md" in shown.out, "create-foo  (at work)" in shown.out) == (True, True), shown.text
    assert project.overnight("stop").out == "done\n"
    project.wait_until_asked_to_stop("create-foo")
    gate.touch()
    ended = run.wait()
    assert (ended.code, "asked to stop" in ended.out, "broken.md" in ended.out) == (3, True, True), ended.text


def test_before_the_first_night_status_names_the_fault(project: Project) -> None:
    """There is nothing else to show, and that is no error of the command."""
    spoil(project)
    shown = project.overnight("status")
    assert (shown.code, "state.md:" in shown.out, "(not started)" in shown.out) == (0, True, True), shown.text
    assert project.overnight("pause").out == "will be done by the next run\n"


def test_a_unit_that_is_out_of_attempts_keeps_no_run_from_ending(night: MakeNight, gate: Path) -> None:
    """Nobody can be moved to `blocked` while the file is broken; a run that is asked to stop ends all the same."""
    held = [bash(f"until test -f '{gate}'; do sleep 0.05; done"), says("I could not.")]
    project = night(plays({"create-foo": held}), config=f"{QUICK}[limits]\nattempts = 1\nrounds = 1\n")
    project.unit("create-foo")
    run = project.start("run")
    until(lambda: project.calls("create-foo"), "it is at work")
    good = spoil(project)
    gate.touch()
    until(lambda: "report      create-foo 1.1: fail" in run.out.read_text(), "it has used its attempt up")
    assert project.overnight("stop").out == "done\n"
    assert run.wait().code == 3
    project.state_path.write_text(good)
    ended = project.overnight("run")
    assert (ended.code, project.ids("blocked")) == (1, ["create-foo"]), ended.text
