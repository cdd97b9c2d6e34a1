"""The one atomic replace and the one lock. Nothing here knows what the bytes mean."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import os
import re
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from worktrees.errors import DiskError, LockBusy

LOCK_POLL_SECONDS = 0.01
NOTE_LIMIT = 2_000
SWEPT_AFTER_SECONDS = 86_400.0
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs"})  # flock there excludes nobody, or only this host


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace the file at `path` by `data` (bytes), durably: readers see the old content or the new.

    `mode` is narrowed by the umask. Raises DiskError; the old content is then still there, except
    when only the last step (the directory's fsync) failed: then either may be found after a power cut.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        _write_new(temporary, data, mode)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise disk_error("write", path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def create_atomic(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Make the file at `path` of `data` (bytes), durably: nobody ever sees it empty or by half.

    Of several who do it at once one succeeds. Raises FileExistsError when it is there already, DiskError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        _write_new(temporary, data, mode)
        _name(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        raise disk_error("write", path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def _name(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        temporary.replace(path)


def exchange_atomic(
    path: Path, data: bytes, *, mode: int = 0o644, taken: Callable[[bytes], None] = lambda _replaced: None
) -> bytes:
    """Do what `write_atomic` does, and return the content that was replaced (b"" where there was none).

    By RENAME_EXCHANGE, so that what somebody else wrote at the last moment is returned and not lost; where
    the file system has none, a moment between looking and replacing remains. `taken` is called with it while it still
    lies beside the file: `left_over` finds it should we die before `taken` returns. Raises DiskError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        _write_new(temporary, data, mode)
        replaced = _swap(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise disk_error("write", path, error) from error
    sync_directory(path.parent)
    taken(replaced)
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)
    return replaced


def left_over(path: Path) -> list[Path]:
    """Return what processes that were killed while they replaced `path` left beside it. Only for its one writer.

    After an exchange such a file holds what was replaced, which nobody may have looked at yet.
    """
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.*.tmp"))


def sweep(folder: Path, older: float = SWEPT_AFTER_SECONDS) -> int:
    """Delete the temporaries that killed processes left in a folder, once they are `older` (seconds); return how many.

    Not where an exchange takes place: there such a file may hold what nobody has looked at (`left_over`).
    """
    before, count = time.time() - older, 0
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if _TEMPORARY.fullmatch(path.name) and path.lstat().st_mtime < before:
                path.unlink()
                count += 1
    return count


_TEMPORARY = re.compile(r"\..+\.[0-9]+\.[0-9a-f]{8}\.tmp")
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP})  # a file system that has no hard links
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NO_EXCHANGE = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})


def _swap(temporary: Path, path: Path) -> bytes:
    if not path.exists():
        temporary.replace(path)
        return b""
    libc = ctypes.CDLL(None, use_errno=True)
    rename = getattr(libc, "renameat2", None)  # not in every C library
    if rename is not None and rename(_AT_FDCWD, bytes(temporary), _AT_FDCWD, bytes(path), _RENAME_EXCHANGE) == 0:
        return temporary.read_bytes()
    number = ctypes.get_errno() if rename is not None else errno.ENOSYS
    if number not in _NO_EXCHANGE:
        raise OSError(number, os.strerror(number), str(path))
    replaced = path.read_bytes()
    temporary.replace(path)
    return replaced


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable (fsync). Raises DiskError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise disk_error("flush the directory", path, error) from error


def disk_error(doing: str, path: Path, error: OSError) -> DiskError:
    """Return the typed error for a failed `doing` on `path`; the caller raises it from `error`."""
    return DiskError(
        f"could not {doing} {path}: {error.strerror or error}. "
        "Free space or repair the disk; what was there before is kept.",
        path,
    )


def _write_new(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        rest = memoryview(data)
        while rest:  # a full disk first shows as a short write
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_holder(path: Path) -> str:
    """Return what the last holder of the lock wrote into it ("" if nothing): for display only."""
    try:
        with path.open("rb") as file:
            return file.readline(NOTE_LIMIT).decode(errors="replace").strip()
    except OSError:
        return ""


class FileLock:
    """An exclusive lock between processes: flock on a file of its own that is never unlinked.

    Two FileLock objects on one path exclude each other within a process as well. Neither a forked child nor a
    started program has the lock, unless `fd` is passed to a program on purpose.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        _objects.add(self)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock, in this process: in a forked child it never does."""
        return self._fd is not None

    @property
    def fd(self) -> int:
        """The locked descriptor, for `pass_fds`: whoever inherits it keeps the lock held too."""
        if self._fd is None:
            message = f"{self.path} is not locked by this object"
            raise ValueError(message)
        return self._fd

    def acquire(self, note: str = "") -> None:
        """Take the lock at once. Raises LockBusy if it is held (also by this object), DiskError."""
        if self._fd is not None:
            raise LockBusy(self.path, lock_holder(self.path))
        try:
            self._fd = _open_locked(self.path)
        except _RemoteError as error:
            message = f"{self.path} is on a network file system, where locks cannot be trusted. Choose a local folder."
            raise DiskError(message, self.path) from error
        except BlockingIOError:
            raise LockBusy(self.path, lock_holder(self.path)) from None
        except OSError as error:
            raise disk_error("lock", self.path, error) from error
        _leave_note(self._fd, note)

    def wait(self, seconds: float, note: str = "") -> None:
        """Take the lock, waiting up to `seconds` for it. Raises LockBusy when the time is up."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.acquire(note)
            except LockBusy:
                if self._fd is not None or time.monotonic() >= deadline:
                    raise
                time.sleep(LOCK_POLL_SECONDS)
            else:
                return

    def release(self) -> None:
        """Let go; doing it twice changes nothing.

        By closing alone: LOCK_UN would also unlock a copy that was passed on to a child on purpose.
        """
        if self._fd is not None:
            descriptor, self._fd = self._fd, None
            _close(descriptor)

    def __enter__(self) -> Self:
        if self._fd is None:
            self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _RemoteError(OSError):
    pass


def _refuse_remote(descriptor: int) -> None:
    if _file_system(descriptor) in REMOTE:
        raise _RemoteError


def _file_system(descriptor: int) -> str:
    """Return the type of the file system ("" if the kernel's list does not say)."""
    device = os.fstat(descriptor).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:  # noqa: PTH123 - /proc
        for line in mounts:
            fields = line.split()
            if fields[2] == number:
                return fields[fields.index("-") + 1]
    return ""


def _open_locked(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = _open(path)
        try:
            _refuse_remote(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, descriptor):
                return descriptor
        except BaseException:
            _close(descriptor)
            raise
        _close(descriptor)  # somebody unlinked the file after it was opened: that lock excludes nobody


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _leave_note(descriptor: int, note: str) -> None:
    since = datetime.now(UTC).astimezone().isoformat(timespec="seconds")
    text = f"{note + ': ' if note else ''}pid {os.getpid()} on {socket.gethostname()} since {since}\n"
    with contextlib.suppress(OSError):  # for display only: a full disk must not cost the lock
        note_bytes = text.encode()[:NOTE_LIMIT]
        os.pwrite(descriptor, note_bytes, 0)  # before the cut, so that nobody reads an empty note
        os.ftruncate(descriptor, len(note_bytes))


# A forked child shares the open files of its parent, and with them its locks: a child that outlives the parent would
# keep them held. So the child closes its copies, which leaves the parent's lock alone (LOCK_UN would not).
_descriptors: set[int] = set()
_objects: weakref.WeakSet[FileLock] = weakref.WeakSet()
_forking = threading.RLock()  # no fork between opening or closing a descriptor and taking note of it


def _open(path: Path) -> int:
    with _forking:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _descriptors.add(descriptor)
        return descriptor


def _close(descriptor: int) -> None:
    with _forking:
        _descriptors.discard(descriptor)
        os.close(descriptor)


def _drop_in_child() -> None:
    for descriptor in _descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _descriptors.clear()
    for lock in list(_objects):
        lock._fd = None  # noqa: SLF001 - the same module
    _forking.release()


os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_drop_in_child)
