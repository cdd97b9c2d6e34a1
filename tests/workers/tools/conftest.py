"""A worktree's root for tools, and something outside it that they must never reach."""

from pathlib import Path

import pytest

from workers.tools import Workspace
from worktrees.process import base_environment


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    made.mkdir()
    return made


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the root, with a file that says `secret`."""
    made = tmp_path / "outside"
    made.mkdir()
    (made / "file").write_text("secret")
    return made


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root, base_environment(), f"test-{root}")
