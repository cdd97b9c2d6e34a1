"""Files of a worktree opened without ever following a symbolic link the agent made, at any level of the path.

Each component is opened relative to its parent's descriptor with O_NOFOLLOW, so there is no moment between a check
and its use.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from workers.errors import ToolError

__all__ = ["directory", "is_directory", "list_directory", "read_bytes", "relative", "write_bytes"]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LARGEST = 10 * 1024 * 1024
_LONGEST = 3000  # bytes: git and others need the whole path below the kernel's 4096


def relative(root: Path, name: str) -> PurePosixPath:
    """Return a path the model named, relative to the root. Raises ToolError for one outside it or one of git's."""
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded or len(encoded) > _LONGEST:
        raise ToolError(f"{name[:200]!r} cannot be a path")
    path = PurePosixPath(name)
    if path.is_absolute():
        try:
            path = path.relative_to(PurePosixPath(root))
        except ValueError:
            raise ToolError(f"{name} is outside the worktree {root}") from None
    if ".." in path.parts:
        raise ToolError(f"{name}: `..` is not allowed; name the path from the worktree's root")
    if path.parts[:1] == (".git",):
        raise ToolError("git's own files are not yours to edit: the harness owns git")
    return path


def read_bytes(root: Path, path: PurePosixPath) -> bytes:
    """Return a regular file's bytes. Raises ToolError."""
    with _reported(path), _parent(root, path, create=False) as parent:
        fd = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise ToolError(f"{path} is not a regular file")
            if info.st_size > _LARGEST:
                raise ToolError(f"{path} has {info.st_size:,} bytes; look at it with bash instead")
            with os.fdopen(fd, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(fd)


def write_bytes(root: Path, path: PurePosixPath, data: bytes, *, new: bool) -> None:
    """Write a regular file, with its folders where `new`; an existing file keeps its mode. Raises ToolError.

    The bytes go to a new file that then takes the name, so a full disk leaves the old content.
    """
    if not path.name:
        raise ToolError("a file name is needed")
    with _reported(path), _parent(root, path, create=new) as parent:
        mode = _existing_mode(parent, path, new=new)
        temporary = f".overnight-{os.urandom(8).hex()}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                os.fchmod(fd, mode)
            os.replace(temporary, path.name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            os.unlink(temporary, dir_fd=parent)
            raise


@contextmanager
def directory(root: Path, path: PurePosixPath, *, create: bool = False) -> Iterator[int]:
    """Lend the descriptor of a directory that is reached without a symbolic link. Raises ToolError, OSError."""
    with _reported(path):
        fd = _descend(root, path.parts, create=create)
    try:
        yield fd
    finally:
        os.close(fd)


def is_directory(root: Path, path: PurePosixPath) -> bool:
    """Tell whether a path is a directory that is reached without a symbolic link."""
    try:
        os.close(_descend(root, path.parts))
    except OSError:
        return False
    return True


def list_directory(root: Path, path: PurePosixPath, *, depth: int = 2) -> list[str]:
    """Return names below a directory, hidden ones left out, directories with a trailing slash. Raises ToolError."""
    with _reported(path):
        fd = _descend(root, path.parts)
        try:
            return sorted(_walk(fd, "", depth))
        finally:
            os.close(fd)


def _walk(fd: int, prefix: str, depth: int) -> Iterator[str]:
    with os.scandir(fd) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        if name.startswith("."):
            continue
        yield f"{prefix}{name}/" if is_directory else f"{prefix}{name}"
        if is_directory and depth > 1:
            child = os.open(name, _DIRECTORY, dir_fd=fd)
            try:
                yield from _walk(child, f"{prefix}{name}/", depth - 1)
            finally:
                os.close(child)


def _existing_mode(parent: int, path: PurePosixPath, *, new: bool) -> int:
    try:
        info = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        if not new:
            raise
        return 0o644
    if not stat.S_ISREG(info.st_mode):
        raise ToolError(f"{path} is not a regular file")
    return stat.S_IMODE(info.st_mode)


@contextmanager
def _parent(root: Path, path: PurePosixPath, *, create: bool) -> Iterator[int]:
    fd = _descend(root, path.parts[:-1], create=create)
    try:
        yield fd
    finally:
        os.close(fd)


def _descend(root: Path, parts: tuple[str, ...], *, create: bool = False) -> int:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            if create:
                _make_directory(fd, part)
            child = os.open(part, _DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = child
    return fd


def _make_directory(parent: int, name: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)


@contextmanager
def _reported(path: PurePosixPath) -> Iterator[None]:
    """Turn what the system said into what the model should know; a full disk is the harness's own trouble."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
            raise
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and error.filename):
            raise ToolError(f"{path}: a part of it is a symbolic link or no directory; name the real path") from error
        raise ToolError(f"{path}: {error.strerror}") from error
