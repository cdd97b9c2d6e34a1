"""What can go wrong with git, files, locks and processes.

WorktreesError
├── GitError            a git command failed
├── RepositoryError     the repository, a revision or a worktree is not as it must be
├── RefMoved            a compare-and-swap of a ref lost
├── NestedRepository    a `.git` inside the tree
├── LockBusy            somebody else holds the lock
├── DiskError           full, read-only or broken disk; the OSError is `__cause__`
├── StartError          a command could not even be started
└── ProcessesLeft       processes that a kill did not end
"""

from __future__ import annotations

from pathlib import Path

SHOWN_STDERR = 600


class WorktreesError(Exception):
    """Base of everything this package raises on purpose."""


class GitError(WorktreesError):
    """A git command failed: what was run, how it ended, and what git said."""

    def __init__(self, command: tuple[str, ...], exit_code: int, stderr: str) -> None:
        self.command = command
        self.exit_code = exit_code
        self.stderr = stderr
        ending = f"was killed by signal {-exit_code}" if exit_code < 0 else f"failed with exit code {exit_code}"
        said = stderr.strip()[-SHOWN_STDERR:] or "(git said nothing)"
        super().__init__(f"`git {' '.join(command)}` {ending}: {said}")


class RepositoryError(WorktreesError):
    """The repository (or a worktree or revision of it) is not as it must be; the message has the remedy."""

    def __init__(self, message: str, path: Path) -> None:
        self.path = path
        super().__init__(message)


class RefMoved(WorktreesError):
    """A compare-and-swap lost: the ref is not where the caller last saw it. None means "does not exist"."""

    def __init__(self, ref: str, expected: str | None, found: str | None) -> None:
        self.ref = ref
        self.expected = expected
        self.found = found
        super().__init__(
            f"{ref} moved: expected {expected or 'no such ref'}, found {found or 'no such ref'}. "
            "Nothing was changed; read it again and decide anew."
        )


class NestedRepository(WorktreesError):
    """A `.git` inside the tree: committing it would store a link to a repository that nobody else has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"{path} is a git repository inside the worktree and cannot be committed. "
            "Remove its .git (to commit the files), move it out of the tree, or ignore it."
        )


class LockBusy(WorktreesError):
    """Somebody else holds the lock. `holder` is the text they left: for display, never for deciding."""

    def __init__(self, path: Path, holder: str) -> None:
        self.path = path
        self.holder = holder
        super().__init__(f"{path} is held by {holder or 'a process that left no note'}. Wait for it or stop it.")


class DiskError(WorktreesError):
    """The disk is full, read-only or broken. Never try the same fsync again: the next one may lie."""

    def __init__(self, message: str, path: Path) -> None:
        self.path = path
        super().__init__(message)


class StartError(WorktreesError):
    """A command could not be started: its directory is gone, a program is missing, no more processes."""

    def __init__(self, message: str, path: Path) -> None:
        self.path = path
        super().__init__(message)


class ProcessesLeft(WorktreesError):
    """Processes that SIGKILL did not end in time (stuck in the kernel); their files are still in use."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(
            f"processes tagged OVERNIGHT_TAG={tag} survived SIGKILL (a hung disk or network mount?). "
            "Do not reuse their directory; look for them with `ps` and free what they wait for."
        )
