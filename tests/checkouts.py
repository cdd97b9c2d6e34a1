"""A person's own git, for all tests: independent of the code under test, with a pinned identity and time."""

import os
import subprocess
from pathlib import Path

from worktrees.worktree import Worktrees

__all__ = ["PINNED", "Checkout", "trees_of"]

PINNED = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_AUTHOR_DATE": "2026-11-17T20:00:00Z",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
    "GIT_COMMITTER_DATE": "2026-11-17T20:00:00Z",
}


class Checkout:
    """A repository, or a worktree, worked on by plain git."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls, path: Path, files: dict[str, str]) -> "Checkout":
        """Make a repository whose first commit, on `main`, holds these files."""
        path.mkdir(parents=True)
        made = cls(path)
        made.git("init", "-q", "-b", "main")
        made.commit(files, "first")
        return made

    def git(self, *args: str) -> str:
        """Run git and return what it printed."""
        outside = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(
            ["git", "-C", str(self.path), *args],
            env={**outside, **PINNED},
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def write(self, files: dict[str, str]) -> None:
        """Write files into the working tree."""
        for name, text in files.items():
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def commit(self, files: dict[str, str], message: str = "work") -> str:
        """Write files, commit everything, and return the commit's id."""
        self.write(files)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def show(self, commit: str, path: str) -> str:
        """Return a file's text in a commit."""
        return self.git("show", f"{commit}:{path}")

    def files(self, commit: str) -> list[str]:
        """Return the paths in a commit."""
        return [path for path in self.git("ls-tree", "-r", "-z", "--name-only", commit).split("\0") if path]

    def parents(self, commit: str) -> tuple[str, ...]:
        """Return the ids of a commit's parents, the first one first."""
        return tuple(self.git("rev-parse", f"{commit}^@").split())

    def is_clean(self) -> bool:
        """Tell whether there is nothing to commit; no hook of the repository is asked."""
        quiet = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
        return not self.git(*quiet, "status", "--porcelain", "--ignore-submodules=all")


def trees_of(worktrees: Worktrees) -> list[str]:
    """Return the names of all worktrees below the root, ruins included: those that git lists, and what is there."""
    listed = Checkout(worktrees.repository.root).git("worktree", "list", "--porcelain", "-z").split("\0")
    paths = [Path(line.removeprefix("worktree ")) for line in listed if line.startswith("worktree ")]
    known = {path.name for path in paths if path.parent == worktrees.root}
    there = {entry.name for entry in worktrees.root.iterdir()} if worktrees.root.is_dir() else set()
    return sorted((known | there) - {".trash"})
