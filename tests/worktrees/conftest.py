from __future__ import annotations

from pathlib import Path

import pytest
from checkouts import Checkout

from worktrees.repository import Repository
from worktrees.worktree import Worktrees


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A repository with two files and one commit on `main`."""
    files = {"a.py": "a = 1\n", "tests/test_a.py": "assert True\n", ".gitignore": "*.log\n"}
    return Checkout.make(tmp_path / "checkout", files)


@pytest.fixture
def repository(checkout: Checkout) -> Repository:
    return Repository.discover(checkout.path)


@pytest.fixture
def worktrees(repository: Repository, tmp_path: Path) -> Worktrees:
    return Worktrees(repository, tmp_path / "state" / "worktrees")
