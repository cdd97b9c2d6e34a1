"""One run, in which a person edits the state file and the unit files while it goes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from night_stand import QUICK, Ended, Project, bash, makes, plays, project_with, says, until

from dispatcher.journal import Edited, MergeDone, MergeFailed, Ordered, Reported

UNITS = ("holds", "edited-inflight", "edited-unseen", "fails-once", "drop-me", "waive-me", "wait-last")


@dataclass
class Story:
    """What was seen of the run."""

    project: Project
    ended: Ended
    broken: bytes
    broken_after: bytes
    orders_while_broken: list[str]


def gated(gate: Path, file: str) -> list[dict[str, object]]:
    return [bash(f"until test -f {gate}; do sleep 0.05; done"), *makes(file)]


@pytest.fixture(scope="module")
def story(module_folder: Path) -> Iterator[Story]:
    first, second = module_folder / "first", module_folder / "second"
    script = plays(
        {
            "holds": gated(second, "holds.txt"),
            "edited-inflight": {"attempts": {1: gated(first, "inflight.txt"), 2: makes("inflight.txt", "again")}},
            "edited-unseen": {"attempts": {1: gated(first, "unseen.txt"), 2: makes("unseen.txt", "again")}},
            "fails-once": {"attempts": {1: [says("I cannot.")], 2: makes("once.txt")}},
            "wait-last": makes("last.txt"),
            "newcomer": makes("newcomer.txt"),
            "typed-now": makes("typed.txt"),
        }
    )
    config = f'{QUICK}[verify]\nrun = "true"\n'
    with project_with(module_folder, script, config=config) as project:
        for name in UNITS[:3]:
            project.unit(name)
        for name in ("wait-last", "drop-me", "waive-me"):
            project.unit(name, after="holds")
        project.unit("fails-once", "test -f once.txt", limits="{attempts: 1, rounds: 1}")
        project.queue(*UNITS)
        yield tell(project, first, second)


def tell(project: Project, first: Path, second: Path) -> Story:
    run = project.start("run", "-j", "5")
    until(lambda: project.ids("blocked") == ["fails-once"], "it fails")
    until(lambda: all(project.calls(unit) for unit in UNITS[:3]), "the gated ones are at work")
    edit(
        project,
        lambda text: text.replace(line_of(text, "fails-once"), "").replace("## open\n", "## open\n- fails-once\n"),
    )
    until(lambda: "fails-once" in project.ids("passed"), "a retry by hand")
    edit(project, lambda text: text.replace("- drop-me\n", ""))
    until(lambda: any(entry.cancelled for entry in project.journal(Edited)), "a removal by hand")
    edit(project, lambda text: text.replace("- waive-me\n", "").replace("## passed\n", "## passed\n- waive-me\n"))
    until(lambda: any(entry.waived for entry in project.journal(Edited)), "a waiver by hand")
    project.unit("edited-inflight", "test -f inflight.txt && true")
    edit(project, lambda text: text.replace("## open\n", "## open\n- typed-now: Write typed.txt\n"))
    until(lambda: "typed-now" in project.ids("passed"), "a unit typed by hand")
    good = project.state_path.read_bytes()
    broken = good.replace(b"## open", b"## opne")
    replace(project.state_path, broken)
    until(lambda: "until it is mended" in run.out.read_text(), "the broken file is noticed")
    ordered = len(project.journal(Ordered))
    project.unit("newcomer", "test -f newcomer.txt")
    project.unit("edited-unseen", "test -f unseen.txt && true")
    first.touch()
    until(lambda: set(UNITS[1:3]) <= {entry.report.unit for entry in project.journal(Reported)}, "reports meanwhile")
    until(lambda: project.journal(MergeFailed), "a verdict is void")
    while_broken = [entry.unit for entry in project.journal(Ordered)[ordered:]]
    after = project.state_path.read_bytes()
    replace(project.state_path, good)
    until(lambda: {"newcomer", "edited-inflight"} <= set(project.ids("passed")), "it goes on when it is mended")
    second.touch()
    return Story(project, run.wait(), broken, after, while_broken)


def edit(project: Project, change: Callable[[str], str]) -> None:
    """As `sed -i` does it: read, write another file, rename."""
    text = project.state_path.read_text()
    changed = change(text)
    assert changed != text
    replace(project.state_path, changed.encode())


def replace(path: Path, data: bytes) -> None:
    other = path.with_name("sed-temporary")
    other.write_bytes(data)
    other.replace(path)


def line_of(text: str, unit: str) -> str:
    found = re.search(rf"^- {unit}\b.*\n", text, re.MULTILINE)
    assert found is not None
    return found[0]


def attempts(story: Story, unit: str) -> list[int]:
    return [entry.attempt for entry in story.project.journal(Ordered) if entry.unit == unit]


def test_moving_a_blocked_unit_to_open_is_a_retry(story: Story) -> None:
    """It gets its attempts back and a fresh context."""
    assert [entry.retried for entry in story.project.journal(Edited) if entry.retried] == [["fails-once"]]
    assert attempts(story, "fails-once") == [1, 2]
    assert "fails-once" in story.project.ids("passed")


def test_removing_a_line_cancels_the_unit(story: Story) -> None:
    """It is not handed out, and not adopted again although its unit file is still there."""
    assert attempts(story, "drop-me") == []
    assert "drop-me" not in story.project.state().ids()
    assert (story.project.root / ".overnight/units/drop-me.md").exists()


def test_a_unit_typed_into_passed_is_waived_and_never_merged(story: Story) -> None:
    """The report says so."""
    assert "waive-me" in story.project.ids("passed")
    assert attempts(story, "waive-me") == []
    assert "waive-me" not in [entry.unit for entry in story.project.journal(MergeDone)]
    assert "waive-me" not in story.project.merged()
    assert "waived by a person, not merged\n  waive-me" in story.ended.out


def test_a_goal_typed_while_a_run_goes_on_is_worked_on_in_it(story: Story) -> None:
    """Adopted into a unit file, handed out, merged."""
    assert attempts(story, "typed-now") == [1]
    assert (story.project.root / ".overnight/units/typed-now.md").read_text() == "Write typed.txt\n"


def test_a_file_that_is_broken_meanwhile_stops_the_hand_out_and_is_not_touched(story: Story) -> None:
    """The line is named, nothing is handed out or written, reports are still taken; mended, the night goes on."""
    assert story.broken_after == story.broken
    assert story.orders_while_broken == []
    assert re.search(r"state file .*state\.md:\d+: unknown heading .*opne.*mended", story.ended.out)
    assert "newcomer" in story.project.ids("passed")


def test_a_unit_edited_in_flight_has_its_verdict_voided(story: Story) -> None:
    """A pass under another verify is no pass: it is done again under the one in force."""
    assert ("edited-inflight", "voided") in [(entry.unit, entry.why) for entry in story.project.journal(MergeFailed)]
    assert attempts(story, "edited-inflight") == [1, 2]
    goal = story.project.messages("edited-inflight", 2)[0]
    assert "test -f inflight.txt && true" in goal
    assert "was edited while it was at work" in goal


def test_a_unit_edited_while_the_state_file_is_broken_has_its_verdict_voided_too(story: Story) -> None:
    """Rule 17 knows no exception: what is merged has passed under the digest in force."""
    assert attempts(story, "edited-unseen") == [1, 2]


def test_the_run_ends_with_all_that_was_left_passed(story: Story) -> None:
    """Exit 0: a waived unit counts, a cancelled one does not."""
    assert story.ended.code == 0, story.ended.text
    left = {*UNITS, "newcomer", "typed-now"} - {"drop-me"}
    assert set(story.project.ids("passed")) == left
    done = [entry.unit for entry in story.project.journal(MergeDone)]
    assert sorted(done) == sorted(left - {"waive-me"})
    assert sorted(story.project.merged()) == sorted(done)
