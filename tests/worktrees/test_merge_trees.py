from __future__ import annotations

from pathlib import Path

import pytest
from checkouts import Checkout

from worktrees.errors import GitError, RefMoved, RepositoryError
from worktrees.merge import Clean, Conflict, advance, commit_merge, merge_trees
from worktrees.repository import Repository


def _branch(checkout: Checkout, name: str, files: dict[str, str]) -> str:
    checkout.git("checkout", "-q", "-b", name, "main")
    commit = checkout.commit(files, name)
    checkout.git("checkout", "-q", "main")
    return commit


def test_different_files_merge_in_memory(checkout: Checkout, repository: Repository) -> None:
    """The merged tree holds both sides; the checkout is not touched."""
    one, two = _branch(checkout, "one", {"b.py": "1"}), _branch(checkout, "two", {"c é.py": "2"})
    merged = merge_trees(repository, one, two)
    assert isinstance(merged, Clean)
    commit = commit_merge(repository, tree=merged.tree, parents=[one, two], message="merge two\n\n-- é")
    assert checkout.parents(commit) == (one, two)
    assert set(checkout.files(commit)) >= {"a.py", "b.py", "c é.py"}
    assert checkout.git("log", "-1", "--format=%an %ae %cn%n%B", commit).splitlines() == [
        "overnight overnight@localhost overnight",
        "merge two",
        "",
        "-- é",
    ]
    assert checkout.git("status", "--porcelain") == ""


def test_a_conflict_names_its_paths_and_says_what_git_said(checkout: Checkout, repository: Repository) -> None:
    """Each path once, awkward names included, and git's words, limited."""
    odd = "dir/sp ace\né.py"
    checkout.commit({odd: "0\n"})
    one = _branch(checkout, "one", {"a.py": "a = 2\n", odd: "1\n"})
    two = _branch(checkout, "two", {"a.py": "a = 3\n", odd: "2\n"})
    found = merge_trees(repository, one, two)
    assert isinstance(found, Conflict)
    assert found.paths == ("a.py", odd)
    assert "CONFLICT (content): Merge conflict in a.py" in found.detail
    assert "\0" not in found.detail


def test_a_deleted_and_modified_file_is_a_conflict_and_long_details_are_cut(
    checkout: Checkout, repository: Repository
) -> None:
    """Forty conflicts: forty paths, at most 2,000 characters of detail."""
    names = [f"file-with-a-long-name-{number:02}.py" for number in range(40)]
    checkout.commit(dict.fromkeys(names, "0\n"))
    one = _branch(checkout, "one", dict.fromkeys(names, "1\n"))
    checkout.git("checkout", "-q", "-b", "two", "main")
    checkout.git("rm", "-q", *names)
    two = checkout.commit({})
    found = merge_trees(repository, one, two)
    assert isinstance(found, Conflict)
    assert found.paths == tuple(names)
    assert "modify/delete" in found.detail
    assert len(found.detail) == 2_000


def test_an_unknown_commit_is_no_conflict(checkout: Checkout, repository: Repository) -> None:
    """git exits 1 for it as for a conflict; here it is an error, and so is a history without a common start."""
    with pytest.raises(RepositoryError):
        merge_trees(repository, "main", "12" * 20)
    checkout.git("checkout", "-q", "--orphan", "other")
    stranger = checkout.commit({"z": ""})
    with pytest.raises(GitError, match="unrelated"):
        merge_trees(repository, "main", stranger)


def test_a_ref_advances_once(checkout: Checkout, repository: Repository) -> None:
    """The second of two merges that started from the same tip loses and changes nothing."""
    start = checkout.git("rev-parse", "main")
    one, two = _branch(checkout, "one", {"b": ""}), _branch(checkout, "two", {"c": ""})
    ref = "refs/heads/overnight/n/merged"
    advance(repository, ref, new=start, old=None, message="start")
    advance(repository, ref, new=one, old=start, message="land one")
    with pytest.raises(RefMoved) as caught:
        advance(repository, ref, new=two, old=start, message="land two")
    assert caught.value.found == one
    assert repository.read_ref(ref) == one
    assert "land one" in checkout.git("reflog", "show", ref)


def test_a_checked_out_branch_is_not_moved(checkout: Checkout, repository: Repository, tmp_path: Path) -> None:
    """The refusal names the checkout: here or in a linked worktree."""
    start = checkout.git("rev-parse", "main")
    new = _branch(checkout, "one", {"b": ""})
    with pytest.raises(RepositoryError, match="main is checked out") as caught:
        advance(repository, "refs/heads/main", new=new, old=start, message="")
    assert caught.value.path == checkout.path
    linked = tmp_path / "linked tree"
    checkout.git("worktree", "add", "-q", "-b", "two", str(linked))
    with pytest.raises(RepositoryError, match="linked tree"):
        advance(repository, "refs/heads/two", new=new, old=start, message="")
    assert checkout.git("rev-parse", "two", "main").split() == [start, start]
