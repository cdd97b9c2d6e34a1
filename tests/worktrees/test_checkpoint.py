from __future__ import annotations

import os
from pathlib import Path

import pytest
from checkouts import Checkout

from worktrees.checkpoint import Checkpoint, checkpoint
from worktrees.errors import GitError, NestedRepository, RefMoved, RepositoryError
from worktrees.repository import Repository
from worktrees.worktree import Worktree, Worktrees

PROTECTED = ("tests/**", "**/conftest.py", "pytest.ini")


@pytest.fixture
def base(checkout: Checkout) -> str:
    return checkout.commit({"src/b.py": "b = 1\n", "src/conftest.py": "", "run.sh": ""}, "base")


@pytest.fixture
def tree(worktrees: Worktrees, base: str) -> Worktree:
    return worktrees.create("u", base)


@pytest.fixture
def agent(tree: Worktree) -> Checkout:
    """What an agent can do that got hold of git."""
    return Checkout(tree.path)


def take(tree: Worktree, base: str, **more: object) -> Checkpoint:
    made = checkpoint(tree, base=base, message="checkpoint 1", **more)  # type: ignore[arg-type]
    assert tree.head() == made.commit
    assert Checkout(tree.path).is_clean()
    assert (tree.admin_dir / "HEAD").read_text().strip() == made.commit
    return made


def test_everything_not_ignored_is_committed(
    tree: Worktree, base: str, repository: Repository, agent: Checkout
) -> None:
    """Modified, added, deleted, made executable; awkward names; ignored files are left alone."""
    odd = ["sp ace/é ü.py", "-rf", "new\nline", "quo\"te'", "*.py", ":(top)x", "back\\slash"]
    for name in odd:
        (tree.path / name).parent.mkdir(exist_ok=True)
        (tree.path / name).write_text(name)
    raw = os.fsencode(tree.path) + b"/raw\xff"
    with open(raw, "w", encoding="ascii") as file:  # noqa: PTH123 - a name that is no text
        file.write("raw")
    (tree.path / "a.py").write_text("a = 2\n")
    (tree.path / "src/b.py").unlink()
    (tree.path / "run.sh").chmod(0o755)
    (tree.path / "debug.log").touch()
    made = take(tree, base)
    assert set(made.changed) == {*odd, "raw\udcff", "a.py", "src/b.py", "run.sh"}
    assert (made.parent, made.taken_back) == (base, ())
    assert agent.parents(made.commit) == (base,)
    assert repository.tree(made.commit) == made.tree
    assert agent.show(made.commit, "sp ace/é ü.py") == "sp ace/é ü.py"
    assert "debug.log" not in agent.files(made.commit)
    listing = repository.git.run("log", "-1", "--format=%an <%ae>|%cn|%s", made.commit).stdout
    assert listing == "overnight <overnight@localhost>|overnight|checkpoint 1\n"


def test_without_a_change_there_is_no_commit(tree: Worktree, base: str) -> None:
    """The commit is the parent then; a touched file is no change."""
    os.utime(tree.path / "a.py", (1, 1))
    made = take(tree, base)
    assert (made.commit, made.parent, made.changed) == (base, base, ())
    (tree.path / "a.py").write_text("a = 2\n")
    second = take(tree, base)
    third = take(tree, base)
    assert third.commit == second.commit == third.parent
    assert third.changed == ("a.py",)


def test_the_ref_moves_with_it_or_the_caller_learns(tree: Worktree, base: str, repository: Repository) -> None:
    """By compare-and-swap from `expected`."""
    ref = "refs/overnight/n/u/1.1"
    first = take(tree, base, ref=ref)
    (tree.path / "a.py").write_text("a = 2\n")
    second = take(tree, base, ref=ref, expected=first.commit)
    assert repository.read_ref(ref) == second.commit
    (tree.path / "a.py").write_text("a = 3\n")
    with pytest.raises(RefMoved):
        checkpoint(tree, base=base, message="m", ref=ref, expected=first.commit)
    assert repository.read_ref(ref) == second.commit


def test_protected_paths_go_back_to_the_base(tree: Worktree, base: str, agent: Checkout) -> None:
    """Modified, deleted, added and renamed: in the commit and on disk; the rest of the work stays."""
    agent.write({"tests/test_a.py": "pass\n", "a.py": "a = 2\n", "tests/new/deep/t.py": "", "conftest.py": ""})
    agent.write({"pytest.ini": "[pytest]", "sub/conftest.py": "", "sub/ok.py": ""})
    (tree.path / "src/conftest.py").rename(tree.path / "src/renamed.py")
    made = take(tree, base, protected=PROTECTED)
    back = ("conftest.py", "pytest.ini", "src/conftest.py", "sub/conftest.py", "tests/new/deep/t.py", "tests/test_a.py")
    assert made.taken_back == back
    assert made.changed == ("a.py", "src/renamed.py", "sub/ok.py")
    assert (tree.path / "tests/test_a.py").read_text() == "assert True\n"
    assert (tree.path / "src/conftest.py").exists()
    assert not (tree.path / "tests/new").exists()
    assert not (tree.path / "pytest.ini").exists()


def test_protected_changes_that_an_agent_committed_go_back_too(tree: Worktree, base: str, agent: Checkout) -> None:
    """The comparison is with the base, not with HEAD."""
    cheat = agent.commit({"tests/test_a.py": "pass\n", "a.py": "a = 2\n"})
    made = take(tree, base, protected=PROTECTED)
    assert made.parent == cheat
    assert (made.taken_back, made.changed) == (("tests/test_a.py",), ("a.py",))


def test_may_edit_opens_a_protected_path(tree: Worktree, base: str, agent: Checkout) -> None:
    """What a unit may edit is not taken back."""
    agent.write({"tests/test_a.py": "new\n", "tests/test_b.py": "b\n"})
    made = take(tree, base, protected=PROTECTED, may_edit=["tests/test_a.py"])
    assert (made.taken_back, made.changed) == (("tests/test_b.py",), ("tests/test_a.py",))


def test_a_protected_directory_replaced_by_a_symlink_or_a_file(
    tree: Worktree, base: str, agent: Checkout, tmp_path: Path
) -> None:
    """It is a directory again, and what the symlink led to is untouched."""
    for replace in (lambda path: path.symlink_to(tmp_path / "elsewhere"), Path.touch):
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        (tmp_path / "elsewhere" / "test_a.py").write_text("evil")
        (tree.path / "tests/test_a.py").unlink()
        (tree.path / "tests").rmdir()
        replace(tree.path / "tests")
        made = take(tree, base, protected=PROTECTED)
        assert made.taken_back == ("tests", "tests/test_a.py")
        assert made.changed == ()
        assert not (tree.path / "tests").is_symlink()
        assert (tmp_path / "elsewhere" / "test_a.py").read_text() == "evil"


def test_a_protected_file_replaced_by_a_directory(tree: Worktree, base: str, agent: Checkout) -> None:
    """It is a file again."""
    (tree.path / "src/conftest.py").unlink()
    agent.write({"src/conftest.py/inside.py": ""})
    made = take(tree, base, protected=PROTECTED)
    assert made.taken_back == ("src/conftest.py", "src/conftest.py/inside.py")
    assert (tree.path / "src/conftest.py").read_text() == ""


def test_symlinks_are_stored_and_never_followed(tree: Worktree, base: str, tmp_path: Path, agent: Checkout) -> None:
    """A link to a directory outside is a link in the commit; a tracked directory may become one."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (tree.path / "link").symlink_to(outside)
    for file in (tree.path / "src").iterdir():
        file.unlink()
    (tree.path / "src").rmdir()
    (tree.path / "src").symlink_to(outside)
    made = take(tree, base)
    assert {"link", "src"} < set(agent.files(made.commit))
    assert agent.show(made.commit, "link") == str(outside)


@pytest.mark.parametrize("where", ["nested", "src", "new/deep"])
@pytest.mark.parametrize("kind", ["repository", "with a commit", "file"])
def test_a_nested_repository_is_refused(tree: Worktree, base: str, where: str, kind: str) -> None:
    """In a new or a tracked directory, with or without commits, or as a `.git` file: nothing is committed."""
    inner = Checkout(tree.path / where)
    inner.path.mkdir(parents=True, exist_ok=True)
    inner.write({"file": "x"})
    if kind == "file":
        (inner.path / ".git").write_text("gitdir: /nowhere\n")
    else:
        inner.git("init", "-q", ".")
        if kind == "with a commit":
            inner.commit({"file": "y"})
    with pytest.raises(NestedRepository) as caught:
        checkpoint(tree, base=base, message="m")
    assert caught.value.path == inner.path
    assert tree.head() == base


def test_an_ignored_nested_repository_is_nobodys_business(tree: Worktree, base: str) -> None:
    """Dependencies are often clones."""
    inner = Checkout(tree.path / "dep.log")
    inner.path.mkdir()
    inner.git("init", "-q", ".")
    assert take(tree, base).changed == ()


def test_hooks_and_signing_do_not_run(checkout: Checkout, tree: Worktree, base: str) -> None:
    """A failing pre-commit and a demanded signature change nothing."""
    hooks = checkout.path / ".git/hooks"
    for hook in ("pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch {checkout.path}/ran\nexit 1\n")
        (hooks / hook).chmod(0o755)
    checkout.git("config", "commit.gpgSign", "true")
    checkout.git("config", "core.fsmonitor", f"touch {checkout.path}/ran; false")
    (tree.path / "a.py").write_text("a = 2\n")
    assert take(tree, base).changed == ("a.py",)
    assert not (checkout.path / "ran").exists()


@pytest.mark.parametrize("setting", ["assume-unchanged", "skip-worktree"])
def test_flags_in_the_index_hide_nothing(tree: Worktree, base: str, agent: Checkout, setting: str) -> None:
    """A file that git was told not to look at is committed like any other."""
    agent.git("update-index", f"--{setting}", "a.py")
    agent.write({"a.py": "a = 2\n"})
    assert take(tree, base).changed == ("a.py",)


def test_an_index_that_was_emptied_corrupted_or_locked(tree: Worktree, base: str, agent: Checkout) -> None:
    """Tracked files that are also ignored stay tracked, whatever was done to the index."""
    agent.write({"kept.log": "tracked though ignored"})
    agent.git("add", "-f", "kept.log")
    second = agent.commit({})
    assert "kept.log" in agent.git("ls-tree", "--name-only", second)
    agent.git("rm", "-r", "-q", "--cached", ".")
    (tree.admin_dir / "index.lock").touch()
    assert take(tree, second).changed == ()
    (tree.admin_dir / "index").write_bytes(b"rubbish")
    assert take(tree, second).changed == ()
    (tree.admin_dir / "index").unlink()
    assert take(tree, second).changed == ()


def test_a_rewritten_pointer_does_not_lead_elsewhere(
    checkout: Checkout, tree: Worktree, base: str, agent: Checkout
) -> None:
    """The commit goes into our repository though `.git` names another; that one is not touched."""
    (tree.path / ".git").unlink()
    agent.git("init", "-q", ".")
    agent.write({"a.py": "a = 2\n"})
    made = take(tree, base)
    assert made.changed == ("a.py",)
    assert checkout.git("cat-file", "-t", made.commit) == "commit"


def test_agents_commits_on_a_plain_line_stay(tree: Worktree, base: str, agent: Checkout) -> None:
    """They are in the history, on no branch of the agent's: that one keeps its place."""
    agent.git("checkout", "-q", "-b", "mine")
    theirs = agent.commit({"a.py": "a = 2\n"})
    agent.write({"b.py": ""})
    made = take(tree, base)
    assert made.parent == theirs
    assert agent.git("rev-parse", "mine") == theirs


def test_an_agents_merge_is_not_in_the_history(
    checkout: Checkout, tree: Worktree, base: str, agent: Checkout, repository: Repository
) -> None:
    """`merge -s ours` would claim that other work is in; only the files count, and the commit is kept aside."""
    others = checkout.commit({"others.py": "important\n"})
    agent.git("merge", "-q", "-s", "ours", "-m", "cheat", others)
    merge = agent.git("rev-parse", "HEAD")
    agent.write({"a.py": "a = 2\n"})
    made = take(tree, base)
    assert (made.parent, made.changed) == (base, ("a.py",))
    assert not repository.is_ancestor(others, made.commit)
    assert repository.read_ref(f"refs/overnight/kept/u-{merge[:12]}") == merge


@pytest.mark.parametrize("harm", ["reset", "orphan", "deleted", "rubbish", "symlink"])
def test_a_moved_or_broken_head_is_put_back(tree: Worktree, base: str, agent: Checkout, harm: str) -> None:
    """The checkpoint builds on the last one known, whatever HEAD says."""
    agent.write({"a.py": "a = 2\n"})
    first = take(tree, base)
    head = tree.admin_dir / "HEAD"
    if harm == "reset":
        agent.git("reset", "-q", "--soft", f"{base}~1")
    elif harm == "orphan":
        agent.git("checkout", "-q", "--orphan", "nothing")
    else:
        head.unlink()
    if harm == "rubbish":
        head.write_text("rubbish")
    elif harm == "symlink":
        head.symlink_to(tree.path / "a.py")
    agent.write({"b.py": ""})
    made = take(tree, base, expected=first.commit)
    assert (made.parent, made.changed) == (first.commit, ("a.py", "b.py"))


def test_unreadable_things_are_errors_not_losses(tree: Worktree, base: str) -> None:
    """A tracked file that became a pipe cannot be committed: git's words, and nothing is committed."""
    (tree.path / "a.py").unlink()
    os.mkfifo(tree.path / "a.py")
    os.mkfifo(tree.path / "stray pipe")
    with pytest.raises(GitError, match=r"a\.py"):
        checkpoint(tree, base=base, message="m")
    assert tree.head() == base
    (tree.path / "a.py").unlink()
    assert take(tree, base).changed == ("a.py",)


def test_an_unknown_base_is_refused(tree: Worktree) -> None:
    """By name, before anything is touched."""
    with pytest.raises(RepositoryError, match="nope"):
        checkpoint(tree, base="nope", message="m")


def test_submodules_are_left_as_they_are(checkout: Checkout, worktrees: Worktrees, tmp_path: Path) -> None:
    """A gitlink of the base stays, checked out or not, and git is not run inside of it."""
    other = Checkout(tmp_path / "other")
    other.path.mkdir()
    other.git("init", "-q", ".")
    commit = other.commit({"x": ""})
    checkout.git("update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    checkout.git("commit", "-q", "-m", "sub")
    base = checkout.git("rev-parse", "HEAD")
    tree = worktrees.create("u", base)
    assert take(tree, base).changed == ()
    inner = Checkout(tree.path / "sub")
    inner.git("init", "-q", ".")
    inner.commit({"y": ""})
    inner.git("config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    (inner.path / "y").write_text("dirty")
    assert take(tree, base).changed == ()
    assert not (tmp_path / "ran").exists()
