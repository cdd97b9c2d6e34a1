"""Units that are listed and that nobody could work on: named at the start, and while a run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from night_stand import Project, bash, makes, plays

MakeNight = Callable[..., Project]
SLOW: dict[str, Any] = {"latency": 1.0}
HEAD = "# Loop State: Ours\n# A unit lives in exactly one bucket.\n\n## tried\n\n## passed\n\n## open\n"


@pytest.fixture
def project(night: MakeNight) -> Project:
    """A project with one good unit."""
    made = night(plays({"aa": makes("aa.txt"), "create-foo": makes("foo.txt")}))
    made.unit("create-foo")
    return made


def test_a_listed_unit_without_a_file_is_bad_input_and_add_gives_it_one(project: Project) -> None:
    """Id, line and what to do are named, wherever one looks; `add --id` writes the file, and all goes on."""
    project.write(".overnight/state.md", f"{HEAD}- create-foo\n- aa\n\n## blocked\n")
    for words in (("run",), ("run", "--at", "23:59"), ("doctor",)):
        ended = project.overnight(*words)
        assert ended.code == 2, ended.text
        assert "state.md:10: aa is listed, and has no unit file" in ended.text
        assert "overnight add" in ended.text
    assert "aa  cannot be worked on: aa is listed" in project.overnight("status").text
    assert "aa  cannot be worked on: aa is listed" in project.overnight("report").text
    assert project.overnight("add", "Do foo", "--id", "create-foo", "--verify", "true").code == 2
    added = project.overnight("add", "Do a", "--id", "aa", "--verify", "test -f aa.txt")
    assert (added.code, added.text.strip()) == (0, "aa → open")
    assert project.overnight("run").code == 0
    assert sorted(project.ids("passed")) == ["aa", "create-foo"]


def test_a_file_that_is_deleted_between_two_runs_is_missed(project: Project) -> None:
    """It ends neither the unit nor its being named; deleting the line, too, is a person's word."""
    path = project.unit("aa")
    assert project.overnight("run", "--limit", "1").code == 3
    path.unlink()
    ended = project.overnight("run")
    assert ended.code == 2
    assert "aa is listed, and has no unit file" in ended.err
    assert "aa is listed, and has no unit file" in project.overnight("fsck").text
    state = project.root / ".overnight" / "state.md"
    state.write_text(state.read_text().replace("- aa\n", ""))
    assert project.overnight("run").code == 0


def test_a_typed_goal_without_any_verify_is_refused_by_the_first_run(night: MakeNight) -> None:
    """Not only by the second one, when its file is there; a run that would wait says so, too."""
    project = night(plays({"aa": makes("aa.txt")}))
    project.config("")
    project.write(".overnight/state.md", f"{HEAD}- aa: Do a\n\n## blocked\n")
    for words in (("run", "--at", "23:59"), ("run",), ("run",)):
        ended = project.overnight(*words)
        assert ended.code == 2, ended.text
        assert "aa.md: verify: the unit has no verify" in ended.err
    assert "aa  cannot be worked on: the unit has no verify" in project.overnight("status").text


def test_what_happens_to_a_file_in_mid_run_is_said_by_the_run(night: MakeNight) -> None:
    """And by its end, while the others are worked on."""
    project = night(plays({"slow": [bash("sleep 4"), *makes("slow.txt")]}))
    project.config("")
    project.unit("slow", verify="test -f slow.txt")
    gone = project.unit("gone", verify="true")
    run = project.start("run", "-j", "1")
    deadline = time.monotonic() + 30
    while not project.server.requests or not [one for one in project.server.requests if one.path == "/v1/messages"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    gone.unlink()
    state = project.root / ".overnight" / "state.md"
    state.write_text(state.read_text().replace("- gone\n", "- gone\n- typed: Do it\n"))
    ended = run.wait()
    assert ended.code == 1, ended.text
    lines = [line for line in ended.text.splitlines() if "unit files" in line]
    assert any("gone is listed, and has no unit file" in line for line in lines)
    assert any("typed.md: verify: the unit has no verify" in line for line in lines)
    assert "gone  cannot be worked on" in ended.text
    assert "typed  cannot be worked on" in ended.text
    assert project.ids("passed") == ["slow"]
