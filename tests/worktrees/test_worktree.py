from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkouts import Checkout, trees_of

from worktrees import worktree
from worktrees.checkpoint import checkpoint
from worktrees.errors import GitError, LockBusy, RepositoryError
from worktrees.files import FileLock
from worktrees.repository import Repository
from worktrees.worktree import READY, Worktrees


def test_a_worktree_is_detached_clean_and_whole(checkout: Checkout, worktrees: Worktrees) -> None:
    """It holds the commit's files, no branch, and can be adopted."""
    made = worktrees.create("n1.unit.1", "main")
    assert made.head() == checkout.git("rev-parse", "main")
    assert (made.path / "tests/test_a.py").read_text() == "assert True\n"
    assert Checkout(made.path).is_clean()
    assert subprocess.run(["git", "-C", made.path, "symbolic-ref", "-q", "HEAD"], check=False).returncode == 1
    assert worktrees.adopt("n1.unit.1") == made
    assert trees_of(worktrees) == ["n1.unit.1"]
    (made.path / "new").touch()
    assert not Checkout(made.path).is_clean()
    with pytest.raises(RepositoryError, match="Adopt it"):
        worktrees.create("n1.unit.1", "main")


def test_paths_with_spaces_and_dollars(checkout: Checkout, tmp_path: Path) -> None:
    """Neither the checkout's nor the root's name is expanded or cut."""
    odd = tmp_path / "odd $HOME é\tplace"
    shutil.copytree(checkout.path, odd)
    trees = Worktrees(Repository.discover(odd), tmp_path / "trees $HOME ü here")
    made = trees.create("u", "main")
    assert made.path == tmp_path / "trees $HOME ü here" / "u"
    assert Checkout(made.path).is_clean()
    trees.remove("u")
    assert trees_of(trees) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a..b", "x.lock", "x.", "é", "a b", "a\n", "x" * 201])
def test_unusable_names_are_refused(worktrees: Worktrees, name: str) -> None:
    """A name is a folder, a ref component and an argument; what fails as any of them is refused."""
    for use in (worktrees.adopt, worktrees.remove, lambda name: worktrees.create(name, "main")):
        with pytest.raises(RepositoryError, match="cannot name"):
            use(name)


def test_a_root_inside_the_checkout_is_refused(checkout: Checkout, repository: Repository, tmp_path: Path) -> None:
    """Also through a symlink, and inside .git."""
    (tmp_path / "link").symlink_to(checkout.path)
    for inside in (checkout.path, checkout.path / "sub", checkout.path / ".git" / "x", tmp_path / "link" / "sub"):
        with pytest.raises(RepositoryError, match="inside"):
            Worktrees(repository, inside)


def test_an_unknown_commit_leaves_nothing(worktrees: Worktrees) -> None:
    """The error names it and no directory stays."""
    with pytest.raises(RepositoryError, match="nope"):
        worktrees.create("u", "nope")
    assert trees_of(worktrees) == []


def test_making_adopting_and_removing_take_the_lock(
    checkout: Checkout, worktrees: Worktrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git's own commands race with each other: while another process holds the lock, nothing of ours starts."""
    monkeypatch.setattr(worktree, "LOCK_SECONDS", 0.02)
    with FileLock(checkout.path / ".git/overnight-worktrees.lock"):
        for use in (worktrees.adopt, worktrees.remove, lambda name: worktrees.create(name, "main")):
            with pytest.raises(LockBusy):
                use("u")


MAKER = """
import pathlib, sys
from worktrees.repository import Repository
from worktrees.worktree import Worktrees
checkout, root, first = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
trees = Worktrees(Repository.discover(checkout), root)
for number in range(first, first + 4):
    trees.create(f"u{number}", "main")
"""


def test_sixteen_worktrees_from_four_processes_at_once(checkout: Checkout, worktrees: Worktrees) -> None:
    """All are whole and each is its own."""
    command = [sys.executable, "-c", MAKER, str(checkout.path), str(worktrees.root)]
    makers = [subprocess.Popen([*command, str(first)]) for first in (0, 4, 8, 12)]
    assert [maker.wait(60) for maker in makers] == [0, 0, 0, 0]
    names = [f"u{number}" for number in range(16)]
    assert trees_of(worktrees) == sorted(names)
    adopted = [worktrees.adopt(name) for name in names]
    assert all(tree is not None and Checkout(tree.path).is_clean() for tree in adopted)
    assert len({tree.admin_dir for tree in adopted if tree}) == 16


def test_the_ruins_of_a_killed_add_are_cleared(checkout: Checkout, worktrees: Worktrees) -> None:
    """A git that was killed while it filled the worktree leaves it locked; nobody adopts that, create clears it."""
    checkout.commit({f"f{number}": "x" for number in range(50)} | {".gitattributes": "f* filter=slow\n"})
    checkout.git("config", "filter.slow.smudge", "sleep 30; cat")
    path = worktrees.root / "u"
    adding = subprocess.Popen(
        ["git", "-C", checkout.path, "worktree", "add", "-q", "--detach", path],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    locked = checkout.path / ".git/worktrees/u/locked"
    deadline = time.monotonic() + 10
    while not (path / ".gitattributes").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(adding.pid, signal.SIGKILL)
    adding.wait()
    assert locked.read_text().strip() == "initializing"
    checkout.git("config", "--unset", "filter.slow.smudge")
    assert worktrees.adopt("u") is None
    assert trees_of(worktrees) == ["u"]
    made = worktrees.create("u", "main")
    assert Checkout(made.path).is_clean()
    assert not locked.exists()


def test_an_add_killed_at_its_very_start_is_cleared(checkout: Checkout, worktrees: Worktrees) -> None:
    """An admin directory that does not yet say whose it is does not push ours to another name."""
    ruin = checkout.path / ".git/worktrees/u"
    ruin.mkdir(parents=True)
    (ruin / "locked").write_text("initializing")
    assert worktrees.create("u", "main").admin_dir == ruin


def test_a_checkout_cut_off_halfway_is_not_adopted(worktrees: Worktrees) -> None:
    """Between the two phases a worktree is not whole, and is made anew."""
    made = worktrees.create("u", "main")
    (made.admin_dir / READY).unlink()
    (made.path / "a.py").unlink()
    assert worktrees.adopt("u") is None
    assert Checkout(worktrees.create("u", "main").path).is_clean()


def test_a_directory_deleted_by_hand_does_not_block_the_name(worktrees: Worktrees) -> None:
    """git still knows the worktree; we do not adopt it, and make it again."""
    made = worktrees.create("u", "main")
    shutil.rmtree(made.path)
    assert worktrees.adopt("u") is None
    assert Checkout(worktrees.create("u", "main").path).is_clean()


def test_a_directory_left_over_without_git_does_not_block_the_name(worktrees: Worktrees) -> None:
    """A stray directory, a file or a dangling symlink in the way is moved away."""
    worktrees.root.mkdir(parents=True)
    for leave in (lambda path: (path / "x").mkdir(parents=True), Path.touch, lambda path: path.symlink_to("gone")):
        leave(worktrees.root / "u")
        assert worktrees.adopt("u") is None
        assert Checkout(worktrees.create("u", "main").path).is_clean()
        worktrees.remove("u")


def test_removal_keeps_commits(checkout: Checkout, worktrees: Worktrees) -> None:
    """A HEAD that no ref reaches gets one; a HEAD that a branch holds gets none; twice is fine."""
    made, other = worktrees.create("u", "main"), worktrees.create("other", "main")
    lost = Checkout(made.path).commit({"work": "w"})
    worktrees.remove("u")
    worktrees.remove("other")
    worktrees.remove("u")
    assert not other.path.exists()
    kept = checkout.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/overnight")
    assert kept == f"refs/overnight/kept/u-{lost[:12]} {lost}"
    assert checkout.git("worktree", "list", "--porcelain").count("worktree ") == 1
    assert list((worktrees.root / ".trash").iterdir()) == []


def test_a_commit_that_is_known_to_be_kept_excuses_only_itself(checkout: Checkout, worktrees: Worktrees) -> None:
    """A HEAD that went on from what the caller knows is kept all the same."""
    made = worktrees.create("u", "main")
    known = made.head()
    lost = Checkout(made.path).commit({"work": "w"})
    worktrees.remove("u", kept=known)
    assert lost in checkout.git("for-each-ref", "--format=%(objectname)", "refs/overnight/kept")
    again = worktrees.create("v", "main")
    orphan = Checkout(again.path).commit({"more": "m"})
    worktrees.remove("v", kept=orphan)
    assert orphan not in checkout.git("for-each-ref", "--format=%(objectname)", "refs/overnight/kept")


def test_removal_of_a_dirty_locked_broken_worktree(checkout: Checkout, worktrees: Worktrees) -> None:
    """Whatever state it is in, it goes; what a symlink in it points to stays."""
    made = worktrees.create("u", "main")
    outside = worktrees.root.parent / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (made.path / "link").symlink_to(outside)
    (made.path / "read only").mkdir()
    (made.path / "read only" / "f").touch()
    (made.path / "read only").chmod(0o500)
    checkout.git("worktree", "lock", str(made.path))
    (made.path / ".git").unlink()
    (made.admin_dir / "HEAD").write_text("rubbish")
    worktrees.remove("u")
    assert trees_of(worktrees) == []
    assert not made.admin_dir.exists()
    assert (outside / "precious").exists()


def test_failing_hooks_are_ignored(checkout: Checkout, worktrees: Worktrees) -> None:
    """A husky-like shared hooks path with a failing post-checkout does not fail the making."""
    hooks = checkout.path / ".husky"
    hooks.mkdir()
    (hooks / "post-checkout").write_text("#!/bin/sh\ntouch ran\nexit 1\n")
    (hooks / "post-checkout").chmod(0o755)
    checkout.git("config", "core.hooksPath", str(hooks))
    made = worktrees.create("u", "main")
    assert Checkout(made.path).is_clean()
    assert not (made.path / "ran").exists()


def test_a_failing_checkout_is_undone(checkout: Checkout, worktrees: Worktrees) -> None:
    """A required filter that is not installed (as with LFS) is an error with git's words, and leaves nothing."""
    checkout.commit({".gitattributes": "*.bin filter=missing\n", "x.bin": "x"})
    checkout.git("config", "filter.missing.smudge", "no-such-program")
    checkout.git("config", "filter.missing.required", "true")
    with pytest.raises(GitError, match="no-such-program"):
        worktrees.create("u", "main")
    assert trees_of(worktrees) == []


@pytest.mark.parametrize("harm", ["rewritten", "deleted", "symlink", "repository", "commondir"])
def test_a_changed_pointer_is_restored(checkout: Checkout, worktrees: Worktrees, tmp_path: Path, harm: str) -> None:
    """Whatever an agent does to the `.git` file or `commondir`, the worktree stays ours and works."""
    made = worktrees.create("u", "main")
    pointer = made.path / ".git"
    if harm != "commondir":
        pointer.unlink()
    if harm == "rewritten":
        pointer.write_text(f"gitdir: {tmp_path}/evil\n")
    elif harm == "symlink":
        pointer.symlink_to(checkout.path / ".git")
    elif harm == "repository":
        Checkout(made.path).git("init", "-q", ".")
    elif harm == "commondir":
        (made.admin_dir / "commondir").write_text(str(tmp_path))
    assert made.head() == checkout.git("rev-parse", "main")
    assert worktrees.adopt("u") == made
    assert not made.restore_pointer()
    assert Checkout(made.path).git("rev-parse", "--git-dir") == str(made.admin_dir)
    assert (checkout.path / ".git" / "config").exists()


def test_adopting_clears_the_lock_of_a_killed_git(worktrees: Worktrees) -> None:
    """A stale index.lock would block every checkpoint."""
    made = worktrees.create("u", "main")
    (made.admin_dir / "index.lock").touch()
    assert worktrees.adopt("u") == made
    assert not (made.admin_dir / "index.lock").exists()


def test_the_persons_checkout_is_not_touched(checkout: Checkout, worktrees: Worktrees) -> None:
    """Their branch, their dirty files and their config are as before."""
    checkout.write({"a.py": "dirty", "untracked": ""})
    before = checkout.git("status", "--porcelain", "-b"), (checkout.path / ".git/config").read_bytes()
    worktrees.create("u", "main")
    worktrees.remove("u")
    assert (checkout.git("status", "--porcelain", "-b"), (checkout.path / ".git/config").read_bytes()) == before


def test_a_bare_repository_with_linked_checkouts(checkout: Checkout, tmp_path: Path) -> None:
    """Some people keep a bare clone and only linked checkouts: started in one of those, everything works."""
    bare, linked = Checkout(tmp_path / "bare.git"), tmp_path / "linked"
    checkout.git("clone", "-q", "--bare", ".", str(bare.path))
    bare.git("worktree", "add", "-q", str(linked), "main")
    trees = Worktrees(Repository.discover(linked), tmp_path / "state")
    made = trees.create("u", "main")
    (made.path / "new.py").touch()
    taken = checkpoint(made, base="main", message="m", ref="refs/overnight/n/u/1.1")
    assert taken.changed == ("new.py",)
    trees.remove("u")
    assert bare.git("rev-parse", "refs/overnight/n/u/1.1") == taken.commit
