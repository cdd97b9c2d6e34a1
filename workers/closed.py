"""Closed logs: compressed beside where they were written, and read as if nothing had happened.

Only a log that nobody will write to again may be compressed. Readers come here; writers never do.
"""

import gzip
import zlib
from pathlib import Path

from worktrees.errors import LockBusy
from worktrees.files import FileLock, write_atomic

from .errors import LogError
from .log import Contents, only_growing, parse, read, unsure

__all__ = ["compress", "is_stored", "packed", "read_either", "size"]


def packed(path: Path) -> Path:
    """Return where the log of `path` is once it is compressed."""
    return path.with_name(f"{path.name}.gz")


def is_stored(path: Path) -> bool:
    """Tell whether the log is there, in either form."""
    return path.exists() or packed(path).exists()


def size(path: Path) -> int:
    """Return the bytes that the log takes on disk, in either form; 0 where it is not there."""
    return sum(file.stat().st_size for file in (path, packed(path)) if file.exists())


def read_either(path: Path) -> Contents:
    """Return what the log of `path` holds, compressed or not; the plain file wins, and no file is an empty log.

    Raises LogCorrupt and LogError, also for an archive that is damaged.
    """
    archive = packed(path)
    if path.exists() or not archive.exists():
        return read(path)
    try:
        data = gzip.decompress(archive.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise LogError(archive, f"cannot be unpacked: {error}; restore the file from a backup") from error
    with only_growing():
        return parse(archive, data)


def compress(path: Path) -> int:
    """Replace a whole log by its archive and return the bytes that this saved; doing it twice changes nothing.

    Raises LogError (LogCorrupt, a torn tail, or somebody writes it): what cannot be read is not touched. DiskError,
    OSError.
    """
    if not path.exists():
        return 0
    lock = FileLock(path.with_suffix(".lock"))  # a writer that was taken for dead may still hold it
    try:
        lock.acquire("compressing")
    except LockBusy as busy:
        raise LogError(path, f"is being written by {busy.holder}, so it is left as it is") from busy
    try:
        return _compress(path)
    finally:
        lock.release()


def _compress(path: Path) -> int:
    if read(path).tail:
        raise LogError(path, "has a torn tail, so it is left as it is")
    data = path.read_bytes()
    archive = packed(path)
    write_atomic(archive, gzip.compress(data, mtime=0), mode=0o600)
    if gzip.decompress(archive.read_bytes()) != data:
        raise LogError(archive, "does not hold what was written to it: is the disk failing?")
    path.unlink()
    unsure(path).unlink(missing_ok=True)  # of a writer that died: what it left is in the archive, durably
    return len(data) - archive.stat().st_size
