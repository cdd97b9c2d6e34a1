"""One small night, and every command that looks back at it: log, replay, fork, notes, fsck, prune."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from night_stand import QUICK, Ended, Project, bash, plays, project_with, says, until

from dispatcher.journal import Ordered

CONFIG = QUICK + "[limits]\nattempts = 2\nrounds = 1\n"
NOTE = 'echo "the parser is a dead end" >> "$OVERNIGHT_SCRATCH/notes.md"'


@dataclass
class Looks:
    """What was seen on the way."""

    project: Project
    bar_done: Path
    foo_may_pass: Path
    seen: dict[str, Ended] = field(default_factory=dict)
    forked_at: int = 0

    def look(self, name: str, *words: str) -> Ended:
        self.seen[name] = self.project.overnight(*words)
        return self.seen[name]


def script(bar_done: Path, foo_may_pass: Path) -> dict[str, Any]:
    """`foo` fails until a file is there, and notes why; `bar` works until another one is."""
    return plays(
        {
            "create-foo": [
                bash(NOTE),
                bash(f"test -e {foo_may_pass} && echo made > foo.txt; true"),
                says("Done \x1b[31m."),
            ],
            "create-bar": [
                bash("ls"),
                bash(f"while [ ! -e {bar_done} ]; do sleep 0.05; done; echo made > bar.txt"),
                says("Done."),
            ],
        }
    )


@pytest.fixture(scope="module")
def looks(module_folder: Path) -> Iterator[Looks]:
    bar_done, foo_may_pass = module_folder / "bar-done", module_folder / "foo-may-pass"
    with project_with(module_folder, script(bar_done, foo_may_pass), config=CONFIG) as project:
        project.unit("create-foo")
        project.unit("create-bar")
        seen = Looks(project, bar_done, foo_may_pass)
        first_run(seen)
        fork(seen)
        end(seen)
        yield seen


def first_run(seen: Looks) -> None:
    project = seen.project
    run = project.start("run", "-j", "2")
    until(lambda: project.state_path.exists() and "create-foo" in project.ids("blocked"), "foo has failed twice")
    seen.look("fork in flight", "fork", "create-bar", "--at", "3")
    follow = project.start("log", "create-bar", "--follow")
    until(lambda: "turn 1" in follow.out.read_text(), "the follower shows what is there")
    assert "report" not in follow.out.read_text()
    seen.look("fsck at work", "fsck")
    seen.look("rebuild at work", "fsck", "--rebuild-state")
    seen.bar_done.touch()
    seen.seen["run"] = run.wait()
    seen.seen["follow"] = follow.wait(20)
    seen.look("fsck", "fsck")
    seen.look("log", "log", "create-foo", "--attempt", "1")
    seen.look("log --json", "log", "create-foo", "--attempt", "1", "--json", "--turn", "1")
    seen.look("replay", "replay", "create-foo")


def fork(seen: Looks) -> None:
    project = seen.project
    starts = [record.seq for record in project.session("create-foo", 1) if record.type == "step/start"]
    seen.forked_at = starts[1]
    seen.look("fork of passed", "fork", "create-bar", "--at", "3")
    seen.look("fork beyond", "fork", "create-foo", "--at", "999")
    seen.look("fork", "fork", "create-foo", "--attempt", "1", "--at", str(seen.forked_at))
    seen.foo_may_pass.touch()
    seen.look("second run", "run")
    seen.look("replay of fork", "replay", "create-foo", "--json")
    seen.look("request", "replay", "create-foo", "--step", "2")
    seen.look("log of fork", "log", "create-foo")
    seen.look("fsck after fork", "fsck")


def end(seen: Looks) -> None:
    """Break the state file, mend it, and start over: the night is then an old one."""
    project, night = seen.project, seen.project.night()
    project.state_path.write_text("- create-foo\n- tidy-up: Tidy up\n<<<<<<< mine\n")
    seen.look("fsck of broken", "fsck")
    seen.look("rebuild", "fsck", "--rebuild-state")
    seen.seen["rebuilt"] = Ended(0, project.state_path.read_text(), "")
    project.state_path.write_text(project.state_path.read_text().replace("- tidy-up: Tidy up\n", ""))
    seen.look("prune of current", "prune", "--sessions-older-than", "0d", "--journals-older-than", "0d", "--yes")
    seen.look("rebuild again", "fsck", "--rebuild-state")
    project.state_path.unlink()
    seen.look("prune too early", "prune")
    seen.look("prune of unfinished", "prune", "--sessions-older-than", "0d", "--yes")
    seen.seen["night"] = Ended(0, night, "")


def test_a_follower_sees_what_comes_and_ends_with_the_hand_out(looks: Looks) -> None:
    """It shows the events of the running session as they are flushed, and stops when the unit was handed back."""
    told = looks.seen["follow"]
    assert told.code == 0, told.text
    assert "report      pass" in told.out
    assert "total" in told.out.splitlines()[-1]
    assert "$" in told.out.splitlines()[-1]


def test_a_log_has_numbers_costs_and_endings_and_no_control_characters(looks: Looks) -> None:
    """What `fork --at` takes stands at the left, and nothing that a model said can reach the terminal."""
    told = looks.seen["log"]
    records = looks.project.session("create-foo", 1)
    assert f"{next(r.seq for r in records if r.type == 'turn/start'):>5}  turn 1" in told.out.splitlines()
    assert "turn end    completed" in told.out
    assert "report      fail" in told.out
    assert "\x1b" not in told.out
    lines = [json.loads(line) for line in looks.seen["log --json"].out.splitlines()]
    numbers = [line["seq"] for line in lines]
    first = next(r.seq for r in records if r.type == "turn/start")
    assert numbers == list(range(first, len(records)))
    assert all(line["time"] for line in lines)


def test_every_request_can_be_rebuilt(looks: Looks) -> None:
    """Of an ordinary attempt and of a forked one, each step's hash is that of what was sent."""
    assert looks.seen["replay"].code == 0, looks.seen["replay"].text
    assert "3 requests, none differ" in looks.seen["replay"].out
    rows = [json.loads(line) for line in looks.seen["replay of fork"].out.splitlines()]
    assert [(row["step"], row["ok"]) for row in rows] == [(1, True), (2, True), (3, True)]
    asked = json.loads(looks.seen["request"].out)
    assert set(asked) == {"system", "tools", "messages"}
    assert "create-foo" in asked["messages"][0]["content"][0]["text"]


def test_the_next_attempt_is_given_the_notes(looks: Looks) -> None:
    """What attempt 1 wrote into its scratch folder, and why it failed, stand in attempt 2's first message."""
    first, second = (looks.project.messages("create-foo", attempt)[0] for attempt in (1, 2))
    assert "dead end" not in first
    assert "the parser is a dead end" in second
    assert "Earlier attempts did not pass:\n- attempt 1:" in second


def test_a_fork_goes_on_from_its_prefix_in_a_new_attempt_on_the_old_base(looks: Looks) -> None:
    """Attempt 3 begins with attempt 1's events, costs only what it did itself, and its unit is merged."""
    project = looks.project
    assert looks.seen["fork"].code == 0, looks.seen["fork"].text
    assert looks.seen["second run"].code == 0, looks.seen["second run"].text
    orders = [entry for entry in project.journal(Ordered) if entry.unit == "create-foo"]
    assert [entry.attempt for entry in orders] == [1, 2, 3]
    assert orders[2].fork is not None
    assert (orders[2].fork.attempt, orders[2].fork.at) == (1, looks.forked_at)
    assert orders[2].base == orders[0].base != project.git("rev-parse", f"overnight/{project_night(looks)}/merged^1")
    copied = [record.type for record in project.session("create-foo", 1)[: looks.forked_at] if record.type != "claim"]
    mine = [record.type for record in project.session("create-foo", 3)]
    assert mine[: len(copied) + 1] == [*copied, "session/fork"]
    assert "fresh worktree" in project.messages("create-foo", 3)[-1]
    assert "2 steps" in looks.seen["log of fork"].out.splitlines()[-1]


def project_night(looks: Looks) -> str:
    return looks.seen["night"].out


def test_what_cannot_be_forked_is_said_at_once(looks: Looks) -> None:
    """A unit at work, a unit that passed, and an event that is not there."""
    for name, why in (
        ("fork in flight", "it is being worked on"),
        ("fork of passed", "it has passed"),
        ("fork beyond", "--at 999 is beyond them"),
    ):
        assert looks.seen[name].code == 2, name
        assert why in looks.seen[name].err


def test_a_night_agrees_with_itself(looks: Looks) -> None:
    """While it goes on, when it has ended, and with a fork in it."""
    for name in ("fsck at work", "fsck", "fsck after fork"):
        assert looks.seen[name].code == 0, looks.seen[name].text
    assert "1 night, 4 sessions: all agree" in looks.seen["fsck after fork"].out


def test_a_state_file_is_rebuilt_and_loses_nobody(looks: Looks) -> None:
    """Not while a run is going; then from the journal, and what only the broken file had is in `open`."""
    assert looks.seen["rebuild at work"].code == 2
    assert "is held by" in looks.seen["rebuild at work"].err
    assert looks.seen["fsck of broken"].code == 2
    assert "tidy-up stood only in the file" in looks.seen["rebuild"].out
    text = looks.seen["rebuilt"].out
    assert "## open\n- tidy-up: Tidy up\n" in text
    assert "- create-foo\n" in text.partition("## passed")[2].partition("## open")[0]
    kept = looks.project.home.night(project_night(looks)).glob("state-before-rev-*.md")
    assert any("<<<<<<< mine" in path.read_text() for path in kept)


def test_nothing_is_pruned_that_is_current_young_or_unfinished(looks: Looks) -> None:
    """The state file's night stays, whatever the periods say; so does one with a unit that did not pass."""
    for name in ("prune of current", "prune too early", "prune of unfinished"):
        assert looks.seen[name].code == 0, looks.seen[name].text
        assert "nothing to prune" in looks.seen[name].out
    assert looks.project.home.journal(project_night(looks)).exists()
