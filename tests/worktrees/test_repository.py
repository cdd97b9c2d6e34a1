from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from checkouts import Checkout

from worktrees.errors import DiskError, GitError, RefMoved, RepositoryError
from worktrees.git import Git
from worktrees.repository import Repository

UNKNOWN = "12" * 20


def test_discovery_works_from_below_and_from_a_linked_worktree(checkout: Checkout, tmp_path: Path) -> None:
    """All of them share one common directory; each has its own root."""
    (checkout.path / "sub dir").mkdir()
    below = Repository.discover(checkout.path / "sub dir")
    assert (below.root, below.git_dir, below.common_dir) == (checkout.path, *[checkout.path / ".git"] * 2)
    linked = tmp_path / "linkéd tree"
    checkout.git("worktree", "add", "-q", "--detach", str(linked))
    found = Repository.discover(linked)
    assert (found.root, found.common_dir) == (linked, checkout.path / ".git")
    assert found.git_dir != found.common_dir


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.mkdir(), "git init"),
        (lambda path: path.touch(), "not a directory"),
        (lambda path: subprocess.run(["git", "init", "-q", "--bare", path], check=True), "bare"),
        (lambda path: subprocess.run(["git", "init", "-q", path], check=True), "no commits yet"),
    ],
    ids=["nothing", "a file", "bare", "empty"],
)
def test_what_cannot_be_used_is_refused_with_a_remedy(tmp_path: Path, make: object, says: str) -> None:
    """Each kind of place has its own message and names the path."""
    make(tmp_path / "place")  # type: ignore[operator]
    with pytest.raises(RepositoryError, match=says) as caught:
        Repository.discover(tmp_path / "place")
    assert caught.value.path == tmp_path / "place"


def test_the_git_directory_is_no_checkout(checkout: Checkout) -> None:
    """Started inside .git, it says so."""
    with pytest.raises(RepositoryError, match=r"inside a \.git directory|bare"):
        Repository.discover(checkout.path / ".git")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_somebody_elses_repository_is_refused_with_the_setting(checkout: Checkout) -> None:
    """git's "dubious ownership" becomes the command that trusts it."""
    for place, directories, files in os.walk(checkout.path):
        for entry in (place, *directories, *files):
            os.chown(Path(place) / entry, 12345, 12345)
    with pytest.raises(RepositoryError, match=r"safe\.directory"):
        Repository.discover(checkout.path)


@pytest.mark.parametrize(("answer", "says"), [("git version 2.30.2", "too old"), (None, "does not run")])
def test_an_old_or_missing_git_is_refused(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None, says: str
) -> None:
    """2.38 brought `merge-tree --write-tree`; the message says what to install."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "env").symlink_to(shutil.which("env") or "")
    if answer:
        (programs / "git").write_text(f"#!/bin/sh\necho {answer}\n")
        (programs / "git").chmod(0o755)
    Repository.discover(checkout.path)
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(RepositoryError, match=rf"{says}.*Install git 2\.38"):
        Repository.discover(checkout.path)


def test_strangers_in_the_environment_are_ignored(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIT_DIR and the like, set by a hook or an editor that started us, do not lead anywhere else."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.bare")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    repository = Repository.discover(checkout.path)
    assert repository.root == checkout.path
    assert repository.resolve("HEAD") == checkout.git("rev-parse", "HEAD")
    repository.git.run("config", "alias.show-env", "!env")
    shown = repository.git.run("show-env", env={"EXTRA": "1"}).stdout
    assert "canary" not in shown
    assert "elsewhere" not in shown
    assert "EXTRA=1" in shown


def test_revisions_are_resolved_to_full_ids(checkout: Checkout, repository: Repository) -> None:
    """Branches, tags and short ids; unknown ones are named in the error."""
    first = checkout.git("rev-parse", "HEAD")
    checkout.git("tag", "-a", "v1", "-m", "tag")
    second = checkout.commit({"b.py": ""})
    assert repository.resolve("main") == second
    assert repository.resolve("v1") == first
    assert repository.resolve(first[:10]) == first
    assert repository.parents(second) == (first,)
    assert repository.parents(first) == ()
    assert repository.tree(second) == checkout.git("rev-parse", "HEAD^{tree}")
    assert repository.is_ancestor(first, second)
    assert not repository.is_ancestor(second, first)
    assert repository.has_commit(first)
    assert not repository.has_commit(UNKNOWN)
    assert not repository.has_commit("main")
    for wrong in ("nope", "", "--all", UNKNOWN, "main:a.py", "a\0b"):
        with pytest.raises(RepositoryError) as caught:
            repository.resolve(wrong)
        assert repr(wrong) in str(caught.value)


def test_contents_are_read_from_commits(checkout: Checkout, repository: Repository) -> None:
    """Texts and differences, for awkward names too; what is not there is None."""
    first = checkout.git("rev-parse", "HEAD")
    odd = "dir/with space é\n-x"
    (checkout.path / "latin").write_bytes(b"caf\xe9")
    second = checkout.commit({odd: "text\n\n", "a.py": "a = 2\n"})
    assert repository.read_text(second, odd) == "text\n\n"
    assert repository.read_text(second, "latin") == "caf�"
    assert repository.read_text(first, odd) is None
    assert repository.read_text(second, "dir") is None
    assert repository.changed_paths(first, second) == ["a.py", odd, "latin"]
    with pytest.raises(RepositoryError):
        repository.read_text("nope", "a.py")


def test_refs_move_by_compare_and_swap(checkout: Checkout, repository: Repository) -> None:
    """Whoever expects the wrong commit changes nothing and learns what is there."""
    first = checkout.git("rev-parse", "HEAD")
    second = checkout.commit({"b.py": ""})
    ref = "refs/overnight/n/u/1.1"
    assert repository.read_ref(ref) is None
    repository.update_ref(ref, first, None, message="made")
    with pytest.raises(RefMoved) as caught:
        repository.update_ref(ref, second, None, message="made twice")
    assert (caught.value.ref, caught.value.expected, caught.value.found) == (ref, None, first)
    with pytest.raises(RefMoved):
        repository.update_ref(ref, first, second, message="lost")
    repository.update_ref(ref, second, first, message="moved")
    assert repository.read_ref(ref) == second
    assert repository.read_ref("refs/overnight/n/u") is None
    checkout.git("update-ref", "-d", ref)
    assert repository.read_ref(ref) is None
    with pytest.raises(RefMoved) as caught:
        repository.update_ref(ref, second, first, message="gone")
    assert caught.value.found is None
    with pytest.raises(ValueError, match="full ref"):
        repository.update_ref("main", second, first, message="")


def test_one_of_many_swaps_wins(checkout: Checkout, repository: Repository) -> None:
    """Eight threads move one ref from the same commit: one does, seven learn that they lost."""
    first = checkout.git("rev-parse", "HEAD")
    tree = repository.tree(first)
    news = [repository.git.run("commit-tree", tree, "-p", first, "-m", f"{n}").stdout.strip() for n in range(8)]
    repository.update_ref("refs/overnight/x", first, None, message="")
    outcomes: list[str] = []

    def swap(new: str) -> None:
        try:
            repository.update_ref("refs/overnight/x", new, first, message="race")
            outcomes.append(new)
        except RefMoved:
            outcomes.append("lost")

    threads = [threading.Thread(target=swap, args=(new,)) for new in news]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("lost") == 7
    assert repository.read_ref("refs/overnight/x") in outcomes


def test_a_branch_in_the_way_is_named(checkout: Checkout, repository: Repository) -> None:
    """A branch `overnight` keeps `overnight/…` from being made; a branch below it does not."""
    assert repository.branch_collision("overnight/n1") is None
    checkout.git("branch", "overnight/n1/merged")
    assert repository.branch_collision("overnight/n1/") is None
    checkout.git("branch", "-m", "overnight/n1/merged", "overnight")
    assert repository.branch_collision("overnight/n1") == "overnight"


def test_errors_carry_command_code_and_words(repository: Repository) -> None:
    """A failing git is a GitError with everything a person needs; `check=False` hands it back."""
    with pytest.raises(GitError, match="exit code 128") as caught:
        repository.git.run("cat-file", "-p", UNKNOWN)
    assert caught.value.command == ("cat-file", "-p", UNKNOWN)
    assert caught.value.exit_code == 128
    assert "Not a valid object" in caught.value.stderr
    assert repository.git.run("cat-file", "-e", UNKNOWN, check=False).code != 0
    with pytest.raises(GitError):
        Git(repository.git_dir, repository.root / "gone").run("status")


def test_disk_faults_are_told_apart(repository: Repository) -> None:
    """What git says of a full disk is a DiskError, also for callers that look at exit codes themselves."""
    repository.git.run("config", "alias.full", "!echo 'fatal: write error: No space left on device' >&2; exit 1")
    with pytest.raises(DiskError, match="No space left") as caught:
        repository.git.run("full", check=False)
    assert isinstance(caught.value.__cause__, OSError)


def test_races_with_an_unfinished_add_are_tried_again(repository: Repository, tmp_path: Path) -> None:
    """`failed to read …/commondir` goes away by itself a moment later."""
    mark = tmp_path / "mark"
    script = (
        f"!test -e {mark} || {{ touch {mark}; echo 'fatal: failed to read .git/worktrees/x/commondir' >&2; exit 128; }}"
    )
    repository.git.run("config", "alias.racy", script)
    assert repository.git.run("racy").code == 0


def test_stdin_and_surrogates_survive(repository: Repository) -> None:
    """Bytes that are no UTF-8 go in and come out unchanged."""
    blob = repository.git.run("hash-object", "-w", "--stdin", stdin="a\udcffé\n").stdout.strip()
    assert repository.git.run("cat-file", "blob", blob).stdout == "a\udcffé\n"
