"""What a person wrote and nobody can use: exit 2, one message, no traceback, nothing lost, no token spent."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from night_stand import Ended, Project, makes, plays

MakeNight = Callable[..., Project]
FOO: dict[str, Any] = plays({"create-foo": makes("foo.txt"), "create-bar": makes("bar.txt")})
HEAD = "# Loop State: Ours\n# A unit lives in exactly one bucket.\n\n"


@pytest.fixture
def project(night: MakeNight) -> Project:
    """A project with one good unit."""
    made = night(FOO)
    made.unit("create-foo")
    return made


def refused(ended: Ended, *words: str, code: int = 2) -> None:
    assert ended.code == code, ended.text
    assert "Traceback" not in ended.text
    for word in words:
        assert word in ended.err, f"{word!r} is not in: {ended.err}"
    assert ended.err.startswith("overnight: ")


def spent_nothing(project: Project) -> None:
    """No model was asked and no unit was handed out."""
    assert project.server.requests == []
    assert orders_of(project) == []


def orders_of(project: Project) -> list[Any]:
    return [entry for entry in project.journal() if entry.type == "order"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{HEAD}## tried\n\n## passed\n\n## open\n* create-foo\n\n## blocked\n", ("state.md:9", "'- '")),
        (
            f"{HEAD}## tried\n- create-foo\n\n## passed\n\n## open\n- create-foo\n\n## blocked\n",
            ("state.md:10", "create-foo", "line 5"),
        ),
        (f"{HEAD}## tried\n\n## passed\n\n## open\n- Create_Foo\n\n## blocked\n", ("state.md:9", "Create_Foo")),
    ],
    ids=["unparsable", "in two buckets", "bad id"],
)
def test_a_state_file_that_cannot_be_read_is_kept_byte_for_byte(
    project: Project, text: str, words: tuple[str, ...]
) -> None:
    """The file and line are named, the file stays as it is, nothing is handed out."""
    path = project.write(".overnight/state.md", text)
    refused(project.overnight("run"), *words)
    assert path.read_text() == text
    spent_nothing(project)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "create-bar",
            "---\nverify: 'true'\nafter: create-fooo\n---\n\nBar.\n",
            ("create-bar.md", "after", "create-fooo", "did you mean 'create-foo'"),
        ),
        ("Bad Name", "---\nverify: 'true'\n---\n\nBar.\n", ("Bad Name", "cannot be")),
        ("create-bar", "Bar, and nothing that decides.\n", ("create-bar.md", "verify")),
        ("create-bar", "---\nverify: 'true'\nverfy: x\n---\n\nBar.\n", ("create-bar.md:3", "verfy", "verify")),
        ("create-bar", "---\nverify: no-such-command-here\n---\n\nBar.\n", ("create-bar.md", "verify", "127")),
        ("create-bar", "---\nverify: 'if then ('\n---\n\nBar.\n", ("create-bar.md", "verify", "syntax error near")),
    ],
    ids=["after unknown", "bad id", "no verify", "unknown key", "verify cannot start", "verify cannot be read"],
)
def test_a_unit_file_that_cannot_be_used_is_named(
    project: Project, name: str, text: str, words: tuple[str, ...]
) -> None:
    """The file and field are named before anybody is handed out."""
    path = project.write(f".overnight/units/{name}.md", text)
    refused(project.overnight("run"), *words)
    assert path.read_text() == text
    spent_no_message(project)


def spent_no_message(project: Project) -> None:
    """Preflight may look the model up, but nothing is asked of it."""
    assert [record for record in project.server.requests if record.path == "/v1/messages"] == []
    assert orders_of(project) == []


def test_units_that_wait_for_each_other_are_named(project: Project) -> None:
    """A circle of `after` is shown as one."""
    project.unit("create-foo", after="create-bar")
    project.unit("create-bar", after="create-foo")
    refused(project.overnight("run"), "create-bar → create-foo", "create-foo → create-bar", "after")
    spent_nothing(project)


def test_a_setup_that_fails_on_the_base_is_bad_input(project: Project) -> None:
    """The setup's own words are shown, and no token is spent."""
    project.config('[setup]\nrun = "echo no network >&2; exit 3"\n')
    refused(project.overnight("run"), "config.toml", "setup.run", "no network")
    spent_no_message(project)


def test_an_unknown_key_of_the_config_is_named(project: Project) -> None:
    """File, line and what was probably meant."""
    project.config('[verify]\nrunn = "true"\n')
    refused(project.overnight("run"), "config.toml:2", "verify.runn", 'did you mean "run"?')
    spent_nothing(project)


def test_without_a_key_nothing_starts(project: Project) -> None:
    """The message says which variable to set."""
    project.extra_env["ANTHROPIC_API_KEY"] = ""
    refused(project.overnight("run"), "ANTHROPIC_API_KEY")
    spent_nothing(project)


def test_a_wrong_key_stops_at_once_and_spends_no_attempt(project: Project) -> None:
    """The endpoint's own words are shown; with the right key the same unit has all its attempts."""
    project.extra_env["ANTHROPIC_API_KEY"] = "wrong"
    refused(project.overnight("run"), "ANTHROPIC_API_KEY", "refused")
    assert orders_of(project) == []
    assert project.ids("open") == ["create-foo"]


def test_a_model_that_the_endpoint_does_not_know_is_named(project: Project) -> None:
    """It is the config's field that is wrong."""
    project.config('[model]\nname = "claude-nobody"\nprice = { input = 1, output = 1 }\n')
    refused(project.overnight("run"), "config.toml", "model.name", "claude-nobody")
    spent_no_message(project)


def test_a_model_whose_price_is_unknown_would_make_the_limits_mean_nothing(project: Project) -> None:
    """So it is refused before anything is asked."""
    project.config('[model]\nname = "claude-nobody"\n')
    refused(project.overnight("run"), "config.toml", "model.price", "claude-nobody")
    spent_nothing(project)


def test_a_branch_named_overnight_is_in_the_way(project: Project) -> None:
    """Git cannot have both `overnight` and `overnight/…`; the message says how to rename it, and does not."""
    project.git("branch", "overnight")
    refused(project.overnight("run"), "'overnight'", "git branch -m overnight")
    assert "overnight" in project.git("branch", "--format=%(refname:short)").split()
    spent_nothing(project)


def test_a_base_that_is_no_commit_is_named(project: Project) -> None:
    """The config's `base` is checked before a night begins."""
    project.config('base = "no-such-branch"\n')
    refused(project.overnight("run"), "base", "no-such-branch")
    assert not project.state_path.exists()
    spent_nothing(project)


def test_a_night_whose_journal_is_missing_is_not_begun_anew(project: Project) -> None:
    """Without the journal nobody knows what was merged: the state file is kept and the way out is said."""
    text = f"{HEAD.strip()} Night 1130-k3v, rev 4.\n\n## tried\n\n## passed\n\n## open\n- create-foo\n\n## blocked\n"
    project.write(".overnight/state.md", text)
    refused(project.overnight("run"), "state.md:2", "1130-k3v", "journal")
    assert project.state_path.read_text() == text
    spent_nothing(project)


def _elsewhere(project: Project, folder: Path) -> Ended:
    project.root = folder
    return project.overnight("run")


def test_outside_a_repository_nothing_runs(project: Project, tmp_path: Path) -> None:
    """The folder is named."""
    (tmp_path / "plain").mkdir()
    refused(_elsewhere(project, tmp_path / "plain"), str(tmp_path / "plain"))


def test_in_a_bare_repository_nothing_runs(project: Project, tmp_path: Path) -> None:
    """There is no checkout whose units could be read."""
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "bare.git")], check=True)
    refused(_elsewhere(project, tmp_path / "bare.git"), "bare")


def test_in_a_repository_without_commits_nothing_runs(project: Project, tmp_path: Path) -> None:
    """Units start from a commit."""
    subprocess.run(["git", "init", "-q", str(tmp_path / "young")], check=True)
    refused(_elsewhere(project, tmp_path / "young"), "no commits")


@pytest.mark.parametrize(
    "words", [("answer", "create-foo", "yes"), ("retry", "nobody"), ("log", "create-foo"), ("stop",)]
)
def test_asking_before_there_is_a_night_is_said_in_a_line(project: Project, words: tuple[str, ...]) -> None:
    """Commands that need a night or a unit say what is missing."""
    refused(project.overnight(*words))


def test_looking_before_the_first_run_is_fine(project: Project) -> None:
    """`status` and `report` answer from the unit files alone."""
    assert "create-foo" in project.overnight("status").out
    assert "create-foo" in project.overnight("report").out


def test_adding_writes_the_unit_file_and_never_the_state_file(project: Project) -> None:
    """Bad ids, ids that are taken and unknown `after` are refused, and leave no file."""
    units = project.root / ".overnight/units"
    assert project.overnight("add", "Round totals", "--verify", "true").out == "round-totals → open\n"
    refused(project.overnight("add", "Again", "--verify", "true", "--id", "round-totals"), "--id", "round-totals")
    refused(project.overnight("add", "Again", "--verify", "true", "--id", "Bad Id"), "--id", "Bad Id")
    refused(project.overnight("add", "Again", "--verify", "true", "--after", "nobody"), "nobody")
    refused(project.overnight("add", "Again"), "verify")
    assert sorted(path.name for path in units.iterdir()) == ["create-foo.md", "round-totals.md"]
    assert not project.state_path.exists()


def test_bytes_that_are_no_text_are_refused_and_leave_no_file(project: Project) -> None:
    """In a goal, in words for a unit, in a verify: one message each, and the unit files stay usable."""
    project.write(".overnight/state.md", f"{HEAD}## tried\n\n## passed\n\n## open\n- create-foo\n\n## blocked\n")
    for words in (
        ("add", "Round \udcff", "--verify", "true"),
        ("add", "Round", "--verify", "true \udcff"),
        ("tell", "create-foo", "Hurry \udcff"),
        ("deny", "create-foo", "\udcff"),
        ("block", "create-foo", "\udcff"),
    ):
        refused(project.overnight(*words))
    assert [path.name for path in (project.root / ".overnight/units").iterdir()] == ["create-foo.md"]


def test_a_merged_branch_that_is_gone_is_not_said_to_have_lost_its_commits(project: Project) -> None:
    """While its night goes on, `fsck` says how to bring it back, and that does."""
    assert project.overnight("run").code == 0
    ref = project.git("for-each-ref", "--format=%(refname)", "refs/heads/overnight/*/merged")
    project.git("update-ref", "-d", ref)
    told = project.overnight("fsck")
    assert told.code == 1
    assert f"{ref} is gone, while its night goes on" in told.out
    assert "is not here" not in told.out
    project.git(*told.out.partition("`git ")[2].partition("`")[0].split())
    assert project.overnight("fsck").code == 0
