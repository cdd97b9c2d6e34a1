"""Worktrees of a repository: made and removed under one lock between processes, always detached at a commit.

They live outside every checkout, since linters, test runners and git itself walk into nested ones. Git's
list of them and its lock against itself are not enough: parallel adds fail, and a killed one leaves ruins.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from worktrees.errors import GitError, RefMoved, RepositoryError, WorktreesError
from worktrees.files import FileLock, disk_error, write_atomic
from worktrees.git import Git
from worktrees.repository import COMMIT_ID, Repository, update_ref

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,199}")
LOCK_SECONDS = 120.0
READY = "overnight-ready"  # in the admin directory: all files were written once
INITIALIZING = "initializing"  # what git's own lock says while an add is under way


@dataclass(frozen=True)
class Worktree:
    """A worktree: its files at `path`, and git's knowledge of it in `admin_dir`, which no agent writes."""

    name: str
    path: Path
    admin_dir: Path

    @property
    def common_dir(self) -> Path:
        """The git directory that all worktrees of the repository share."""
        return self.admin_dir.parent.parent

    def git(self) -> Git:
        """Git on this worktree, whatever became of its `.git` file and `commondir`."""
        return Git(self.admin_dir, self.path, common_dir=self.common_dir)

    def head(self) -> str:
        """Return the id of the commit that is checked out. Raises GitError if HEAD is broken."""
        return self.git().run("rev-parse", "--verify", "HEAD^{commit}").stdout.strip()

    def restore_pointer(self) -> bool:
        """Write back what links the files to the admin directory; True if somebody had changed it.

        A directory in place of the `.git` file is moved into the admin directory, not deleted.
        """
        links = {
            self.path / ".git": f"gitdir: {self.admin_dir}\n",
            self.admin_dir / "gitdir": f"{self.path / '.git'}\n",
            self.admin_dir / "commondir": "../..\n",
        }
        changed = [file for file, text in links.items() if not _says(file, text)]
        for file in changed:
            if file.is_dir() and not file.is_symlink():
                self._set_aside(file)
            write_atomic(file, links[file].encode())
        return bool(changed)

    def clear_locks(self) -> None:
        """Delete the locks of a git that was killed. Only when no process works in the worktree."""
        for stale in ("index.lock", "HEAD.lock"):
            try:
                (self.admin_dir / stale).unlink(missing_ok=True)
            except OSError as error:
                raise disk_error("delete", self.admin_dir / stale, error) from error

    def _set_aside(self, directory: Path) -> None:
        try:
            shutil.move(directory, self.admin_dir / f"replaced-{secrets.token_hex(4)}")
        except OSError as error:
            raise disk_error("move away", directory, error) from error


class Worktrees:
    """The worktrees of one repository below `root`. Raises RepositoryError for a root inside the checkout."""

    def __init__(self, repository: Repository, root: Path) -> None:
        self.repository = repository
        self.root = root.resolve()
        for inside in (repository.root.resolve(), repository.common_dir.resolve()):
            if self.root.is_relative_to(inside):
                message = f"worktrees cannot live in {self.root}, inside {inside}. Choose a folder outside of it."
                raise RepositoryError(message, self.root)

    def create(self, name: str, commit: str, *, replace: bool = False) -> Worktree:
        """Make a worktree of that name, detached at `commit`, clearing the ruins of an earlier try first.

        With `replace` a whole one goes too, as by `remove`. Raises RepositoryError (a whole worktree is there already;
        unknown commit), GitError, DiskError, LockBusy.
        """
        path = self._path(name)
        if not COMMIT_ID.fullmatch(commit):
            commit = self.repository.resolve(commit)
        with self._locked(f"create {name}"):
            if not replace and self._whole(name) is not None:
                message = f"the worktree {path} is there and in order. Adopt it, or remove it first."
                raise RepositoryError(message, path)
            trash = self._clear(name)
            try:
                self._common().run("worktree", "add", "--no-checkout", "--detach", str(path), commit)
            except GitError:
                self.repository.resolve(commit)  # says so where the commit is what git does not know
                raise
            worktree = Worktree(name, path, self._admin_dirs(name)[0])
        _delete_all(trash)
        try:
            worktree.git().run("-c", "checkout.workers=0", "reset", "--hard", "--quiet", commit)
            write_atomic(worktree.admin_dir / READY, b"")
        except WorktreesError:
            self.remove(name)
            raise
        return worktree

    def adopt(self, name: str) -> Worktree | None:
        """Return the worktree of that name if it is whole, else None.

        Only when no process of an earlier holder lives: what a killed git left locked is unlocked.
        """
        with self._locked(f"adopt {name}"):
            worktree = self._whole(name)
            if worktree is None:
                return None
            worktree.clear_locks()
            worktree.restore_pointer()
            return worktree

    def remove(self, name: str, *, kept: str | None = None) -> None:
        """Remove the worktree with all its files, in whatever state it is; one that is gone is fine.

        No commit is lost: a HEAD that no ref reaches is kept as `refs/overnight/kept/<name>-<short id>`.
        What was never committed is gone: make a checkpoint first. `kept` is a commit that a ref is known to reach:
        while HEAD is still there git need not be asked.
        """
        self._path(name)
        with self._locked(f"remove {name}"):
            trash = self._clear(name, kept)
        _delete_all(trash)

    def empty_trash(self) -> None:
        """Delete what a crash left between moving something away and deleting it. Several may do so at once."""
        for place in (self.root / ".trash", self.repository.common_dir / "overnight-trash"):
            _delete_all(list(place.iterdir()) if place.is_dir() else [])

    def _path(self, name: str) -> Path:
        if not NAME.fullmatch(name) or name.endswith((".", ".lock")):
            message = f"{name!r} cannot name a worktree. Use letters, digits, dots, dashes and underscores."
            raise RepositoryError(message, self.root)
        return self.root / name

    def _common(self) -> Git:
        return Git(self.repository.common_dir)

    @contextlib.contextmanager
    def _locked(self, note: str) -> Iterator[None]:
        self._make_root()
        lock = FileLock(self.repository.common_dir / "overnight-worktrees.lock")
        with _thread_lock(lock.path):  # a process's threads queue here: only one of them has to poll for the file's
            lock.wait(LOCK_SECONDS, note)
            try:
                yield
            except OSError as error:
                raise disk_error(note, self.root, error) from error
            finally:
                lock.release()

    def _make_root(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error("make", self.root, error) from error

    def _whole(self, name: str) -> Worktree | None:
        """Return the worktree if it was filled once, its directory is there, and its HEAD can be read."""
        path, admin_dirs = self._path(name), self._admin_dirs(name)
        if len(admin_dirs) != 1 or path.is_symlink() or not path.is_dir():
            return None
        worktree = Worktree(name, path, admin_dirs[0])
        is_filled = (worktree.admin_dir / READY).exists() and not _is_initializing(worktree.admin_dir)
        return worktree if is_filled and _head_of(worktree.git()) is not None else None

    def _named(self, name: str) -> list[Path]:
        """Return the admin directories that git may have made for a worktree of that name: it appends a number."""
        numbered = re.compile(re.escape(name) + r"\d*")
        place = self.repository.common_dir / "worktrees"
        return sorted(entry for entry in place.glob("*") if numbered.fullmatch(entry.name))

    def _admin_dirs(self, name: str) -> list[Path]:
        """Return what git knows under that path. Found by git's record, never by the agent's `.git` file."""
        return [entry for entry in self._named(name) if _target(entry) == self.root / name]

    def _ruins(self, name: str) -> list[Path]:
        """Return admin directories of that name whose add was killed before it wrote where the files are."""
        return [entry for entry in self._named(name) if not _target(entry)]

    def _clear(self, name: str, kept: str | None = None) -> list[Path]:
        """Move everything of that name out of the way, commits kept; under the lock, fast at any size.

        Returns what is to be deleted once the lock is free.
        """
        path = self.root / name
        admin_dirs = self._admin_dirs(name)
        for admin_dir in admin_dirs:
            if kept is not None and _says(admin_dir / "HEAD", f"{kept}\n"):
                continue
            git = Git(admin_dir, common_dir=self.repository.common_dir)
            head = _head_of(git)
            if head is not None:
                keep(git, name, head)
        trash = [_move(path, self.root / ".trash")] if os.path.lexists(path) else []
        bin_of_git = self.repository.common_dir / "overnight-trash"
        return trash + [_move(admin_dir, bin_of_git) for admin_dir in [*admin_dirs, *self._ruins(name)]]


@cache
def _thread_lock(_path: Path) -> threading.Lock:
    """The one lock of this process for a lock file."""
    return threading.Lock()


def _delete_all(trash: Iterable[Path]) -> None:
    for entry in trash:
        try:
            _delete(entry)
        except OSError as error:
            raise disk_error("delete", entry, error) from error


def keep(git: Git, name: str, commit: str) -> str | None:
    """Give a commit that no ref reaches a ref under `refs/overnight/kept/`, and return that; else None."""
    if git.run("for-each-ref", "--count=1", f"--contains={commit}").stdout:
        return None
    ref = f"refs/overnight/kept/{name}-{commit[:12]}"
    with contextlib.suppress(RefMoved):  # somebody else kept the same commit meanwhile
        update_ref(git, ref, commit, None, message=f"kept when the worktree {name} went on without it")
    return ref


def _head_of(git: Git) -> str | None:
    result = git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", check=False)
    found = result.stdout.strip()
    return found if result.code == 0 and COMMIT_ID.fullmatch(found) else None


def _target(admin_dir: Path) -> Path | None:
    """Return the directory that an admin directory says it belongs to."""
    try:
        text = (admin_dir / "gitdir").read_text(errors="surrogateescape").removesuffix("\n")
    except OSError:
        return None
    return (admin_dir / text).parent if text else None  # an absolute path stands for itself


def _is_initializing(admin_dir: Path) -> bool:
    return _says(admin_dir / "locked", INITIALIZING) or _says(admin_dir / "locked", INITIALIZING + "\n")


def _says(file: Path, text: str) -> bool:
    """Whether it is a plain file with that content."""
    try:
        return not file.is_symlink() and file.read_bytes() == text.encode(errors="surrogateescape")
    except OSError:
        return False


def _move(path: Path, trash: Path) -> Path:
    trash.mkdir(exist_ok=True)
    return path.rename(trash / f"{path.name}-{secrets.token_hex(4)}")


def _delete(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    is_opened = False
    while path.exists():
        try:
            shutil.rmtree(path)
        except FileNotFoundError:  # another process deletes the same
            continue
        except PermissionError:
            if is_opened:
                raise
            _open_directories(path)
            is_opened = True


def _open_directories(path: Path) -> None:
    """Make every directory below writable: some tools (Go's module cache) leave read-only ones."""
    for place, _, _ in os.walk(path):
        with contextlib.suppress(FileNotFoundError):
            Path(place).chmod(stat.S_IRWXU)
