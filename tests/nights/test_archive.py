"""A finished night is put away (spec S7), its units still count for later ones, and it can be committed (spec S13)."""

from __future__ import annotations

from collections.abc import Callable

from night_stand import QUICK, Project, bash, makes, orders, plays, says, until

from dispatcher.archive import ARCHIVE_PATH, archived_units
from dispatcher.journal import StateCommitted
from dispatcher.state import Bucket, render
from workers.closed import packed

MakeNight = Callable[..., Project]
COMMIT = f"{QUICK}[state]\ncommit = true\n"


def archived(project: Project, night: str) -> str:
    return (project.root / ARCHIVE_PATH / f"{night}.md").read_text()


def test_a_night_that_passed_is_put_away_when_there_is_something_new(night: MakeNight) -> None:
    """Not before: until then the file shows the result. A new night begins, and what was done is not done again."""
    project = night(plays({"create-foo": makes("foo.txt"), "create-bar": makes("bar.txt")}))
    project.unit("create-foo")
    assert project.overnight("run").code == 0
    first, commit = project.night(), project.git("rev-parse", f"overnight/{project.night()}/merged")
    assert project.ids("passed") == ["create-foo"]
    project.git("merge", "-q", "--ff-only", f"overnight/{first}/merged")
    project.unit("create-bar", after="create-foo")

    ended = project.overnight("run")

    assert ended.code == 0, ended.text
    assert "archived    1 units" in ended.out
    assert project.night() != first
    assert (project.ids("passed"), project.ids("open")) == (["create-bar"], [])
    assert orders(project) == [("create-bar", 1, 1)]
    text = archived(project, first)
    assert "## passed\n- create-foo\n" in text
    assert f"- create-foo  {commit}\n" in text
    assert "    1 passed and merged" in text
    assert not (project.root / ".overnight/units/create-foo.md").exists()
    assert (project.root / ARCHIVE_PATH / "units" / first / "create-foo.md").exists()
    log = project.home.session(first, "create-foo", 1)
    assert (packed(log).exists(), log.exists()) == (True, False)


def test_a_unit_after_an_archived_one_waits_until_the_base_holds_it(night: MakeNight) -> None:
    """The merged commit must be an ancestor of the base: that it passed once is not enough."""
    project = night(plays({"create-foo": makes("foo.txt"), "create-bar": makes("bar.txt")}))
    project.unit("create-foo")
    assert project.overnight("run").code == 0
    assert project.overnight("archive").code == 0
    project.unit("create-bar", after="create-foo")

    ended = project.overnight("run")

    assert ended.code == 1, ended.text
    assert project.ids("open") == ["create-bar"]
    assert "waits for create-foo" in project.overnight("status").out
    assert orders(project) == []


def test_an_unfinished_night_is_put_away_only_when_all_is_asked_for(night: MakeNight) -> None:
    """What is not done is carried over with what was learned, and its next attempt hears of it."""
    script = plays({"create-foo": makes("foo.txt"), "never": {"attempts": {1: [says("No.")], 2: makes("never.txt")}}})
    project = night(script, config=f"{QUICK}[limits]\nattempts = 1\nrounds = 1\n")
    project.unit("create-foo")
    project.unit("never", "echo RED; test -f never.txt")
    assert project.overnight("run").code == 1
    refused = project.overnight("archive")
    assert refused.code == 2
    assert "never" in refused.err
    assert "--all" in refused.err
    first = project.night()

    assert project.overnight("archive", "--all").code == 0

    assert archived_units(project.root).keys() == {"create-foo"}
    assert "- never  1 attempt used up" in archived(project, first)
    state = project.state()
    assert (state.night, state.ids()) == ("", ("never",))
    assert state.bucket_of("never") is Bucket.blocked
    project.state_path.write_text(render(state.move("never", Bucket.tried, state.note_of("never"))))
    assert project.overnight("run").code == 1
    assert "in an earlier night: 1 attempt used up; last: RED" in project.messages("never")[0]


def test_archiving_is_refused_while_a_run_goes_on(night: MakeNight) -> None:
    """And where there is nothing to put away."""
    project = night({"units": {}})
    nothing = project.overnight("archive")
    assert (nothing.code, "no night" in nothing.err) == (2, True)
    gate = project.root.parent / "gate"
    held = [bash(f"until test -f {gate}; do sleep 0.05; done"), *makes("foo.txt")]
    project = night(plays({"create-foo": held}), name="it")
    project.unit("create-foo")
    run = project.start("run")
    until(lambda: project.calls("create-foo"), "it is at work")
    refused = project.overnight("archive", "--all")
    gate.touch()
    assert (refused.code, "is held by" in refused.err) == (2, True)
    assert run.wait().code == 0


def test_state_and_archive_are_committed_with_the_work(night: MakeNight) -> None:
    """On the merged branch alone: the checkout's branch, index and files stay as they are."""
    project = night(plays({"create-foo": makes("foo.txt"), "create-bar": makes("bar.txt")}), config=COMMIT)
    project.unit("create-foo")
    head, status = project.git("rev-parse", "HEAD"), project.git("status", "--porcelain")
    assert project.overnight("run").code == 0
    first, ref = project.night(), f"overnight/{project.night()}/merged"
    assert project.git("show", f"{ref}:.overnight/state.md") == project.state_path.read_text().strip()
    assert (project.git("rev-parse", "HEAD"), project.git("status", "--porcelain")) == (head, status)
    assert [entry.is_done for entry in project.journal(StateCommitted)] == [False, True]
    assert "not verified: nothing" in project.overnight("report").out
    assert project.git("show", f"{ref}:foo.txt") == "made"
    assert project.overnight("fsck").code == 0

    project.unit("create-bar")
    assert project.overnight("run").code == 0

    shown = project.git("show", f"overnight/{project.night()}/merged:.overnight/archive/{first}.md")
    assert shown == archived(project, first).strip()
