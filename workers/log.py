"""The append-only log that sessions and the journal stand on: one JSON object a line, checksummed, one writer.

`append` makes records readable in this process; only a returned `flush` promises that they survive a crash (spec
L3). It never edits, cuts or repairs a valid record (spec L4). The first flush of a new log makes the file whole or
not at all, so what a log begins with (a fork's whole past) is never there by half.

Bytes whose fsync failed may be readable and yet never reach the disk, and no later fsync says so. So a writer that
fails cuts off what it had not promised, and every writer leaves a mark beside the log (`.unsure`) until it has closed
it whole. Who finds the mark of a dead one does not append to what that one left: its first flush writes the whole log
into a new file, syncs it and renames it. The mark itself need not be durable: after a power cut only the disk speaks.
This costs one copy of the log, and the room for it, after each crash. It trusts the disk with what an fsync has
confirmed.
"""

import gc
import json
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic_core import from_json

from worktrees.errors import DiskError, LockBusy
from worktrees.files import FileLock, sync_directory

from .errors import LogAlreadyOwned, LogCorrupt, LogError, LogWriteFailed

__all__ = ["Contents", "Log", "Record", "encode", "offset_of", "only_growing", "parse", "read", "unsure"]

TORN = "log/torn"
_MANY_OBJECTS = 10_000
_SEAL = len(',"sum":"00000000"}')
_WRITE = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode


class Record(NamedTuple):
    """One line: `seq` counts from 0 without gaps, `time` is UTC in ISO 8601."""

    seq: int
    time: str
    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a log file holds: its records, and the torn bytes behind them from offset `end` on."""

    records: tuple[Record, ...]
    end: int
    tail: bytes


def encode(record: Record) -> bytes:
    """Return the record's line, sealed with the CRC-32 of everything before the seal."""
    fields = {"seq": record.seq, "time": record.time, "type": record.type, "data": record.data}
    body = _WRITE(fields).encode("ascii")
    return b'%s,"sum":"%08x"}\n' % (body[:-1], zlib.crc32(body))


def decode(line: bytes) -> Record:
    """Return the record of one line without its newline. Raises ValueError saying what is wrong with it."""
    if line[-_SEAL:] != b',"sum":"%08x"}' % zlib.crc32(b"}", zlib.crc32(line[:-_SEAL])):
        raise ValueError("does not match its checksum")
    fields = _parsed(line)
    return Record(fields["seq"], fields["time"], fields["type"], fields["data"])


def _parsed(line: bytes) -> Any:
    try:
        return from_json(line, cache_strings="keys")  # twice as fast as `json`
    except ValueError:
        return json.loads(line)  # which takes what `from_json` does not: half a surrogate pair, deep nesting


def read(path: Path) -> Contents:
    """Return the physically valid, contiguous log (spec L4); a missing file is an empty log.

    Raises LogCorrupt for a bad line before the tail and for a gap or a repeat in `seq`, LogError when the file
    cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Contents((), 0, b"")
    except OSError as error:
        raise LogError(path, f"cannot be read: {error.strerror}") from error
    with only_growing():
        return parse(path, data)


@contextmanager
def only_growing() -> Iterator[None]:
    """Keep the garbage collector away while much is built and nothing thrown away: it would go through all of it.

    Half of the time to open 100,000 events. Threads in here at once only make each other slower.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Where nobody else freezes, this only makes all that is new old, unvisited. Counting what is frozen walks
            # through it, 20 ms in a worker: not for a few objects.
            if gc.get_count()[0] > _MANY_OBJECTS and gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def unsure(path: Path) -> Path:
    """Return where the mark of a writer of the log is, from its first write on until it closes the log whole."""
    return path.with_name(f"{path.name}.unsure")


def offset_of(records: Sequence[Record], seq: int) -> int:
    """Return the byte at which a record's line begins, for naming one that cannot be understood, from a whole log."""
    return sum(len(encode(record)) for record in records[:seq])


def parse(path: Path, data: bytes) -> Contents:
    """Return what the bytes of a log hold; `path` is for messages. Raises LogCorrupt."""
    records: list[Record] = []
    start = 0
    while (stop := data.find(b"\n", start)) >= 0:
        try:
            record = decode(data[start:stop])
        except (ValueError, KeyError, TypeError) as error:
            if _is_torn(data[start:]):
                break
            raise LogCorrupt(path, line=len(records) + 1, offset=start, reason=str(error)) from error
        if record.seq != len(records):
            reason = f"has seq {record.seq} where {len(records)} was due"
            raise LogCorrupt(path, line=len(records) + 1, offset=start, reason=reason)
        records.append(record)
        start = stop + 1
    return Contents(tuple(records), start, data[start:])


def _is_torn(tail: bytes) -> bool:
    """Tell whether bytes that begin with a bad line are what a crash leaves, and not damage to a promise.

    A process that dies leaves a prefix without its newline; a machine that dies may leave NUL padding. A complete
    last line with a wrong checksum is neither: it may have been flushed.
    """
    return b"\0" in tail and not any(_is_record(line) for line in tail.split(b"\n"))


def _is_record(line: bytes) -> bool:
    try:
        decode(line)
    except (ValueError, KeyError, TypeError):
        return False
    return True


class Log:
    """A log opened for writing: the one writer, by flock on a file beside it."""

    def __init__(self, path: Path, lock: FileLock, contents: Contents) -> None:
        self.path = path
        self.records: list[Record] = list(contents.records)
        self._lock = lock
        self._fd = -1
        self._end = contents.end  # where the next flush begins: a later one never promises what comes before again
        self._was_left = unsure(path).exists()
        self._tail = contents.tail
        self._aside: Path | None = None
        self._pending: list[bytes] = []
        self._failure: LogWriteFailed | None = None
        self._mutex = threading.Lock()  # orders appends, held for microseconds
        self._barrier = threading.Lock()  # one flush at a time
        self._note_torn_tails()

    @classmethod
    def open(cls, path: Path, *, owned: type[LogAlreadyOwned] = LogAlreadyOwned, note: str = "") -> Self:
        """Take the right to write and read what is there. Nothing is written before the first flush.

        Raises `owned` when somebody else has that right, LogCorrupt, LogError.
        """
        lock = FileLock(path.with_suffix(".lock"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(note)
        except LockBusy as busy:
            raise owned(path, busy.holder) from busy
        except (OSError, DiskError) as error:
            raise LogWriteFailed(path, f"cannot be opened: {error}") from error
        try:
            return cls(path, lock, read(path))
        except BaseException:
            lock.release()
            raise

    def append(self, batch: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Record]:
        """Accept (type, data) pairs in order and return their records: readable here, not yet promised."""
        with self._mutex:
            self._refuse_after_failure()
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            first = len(self.records)
            added = [Record(first + i, now, kind, data) for i, (kind, data) in enumerate(batch)]
            lines = [encode(record) for record in added]  # all or nothing: encode before accepting
            self.records += added
            self._pending += lines
            return added

    def flush(self) -> None:
        """Return once everything appended before the call is on disk: the durability barrier (spec L3). Blocks.

        Raises LogWriteFailed, and from then on always: the log is closed for writing.
        """
        with self._barrier:
            with self._mutex:
                self._refuse_after_failure()
                data, self._pending = b"".join(self._pending), []
            if not data:
                return
            try:
                self._write(data)
            except (OSError, DiskError) as error:
                self._failure = LogWriteFailed(self.path, f"could not be written: {error}")
                self._take_back()
                raise self._failure from error
            except BaseException:  # interrupted in the middle: a line may be there by half
                self._failure = LogWriteFailed(self.path, "was interrupted while it was written")
                self._take_back()
                raise

    def close(self) -> None:
        """Give up the right to write. What was not flushed is lost, as it was never promised."""
        with self._barrier, self._mutex:
            if self._failure is None:
                if self._fd >= 0 and self._lock.held:
                    with suppress(OSError):
                        unsure(self.path).unlink(missing_ok=True)
                self._failure = LogWriteFailed(self.path, "is closed")
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._lock.held:
            raise LogWriteFailed(self.path, "belongs to the process that opened it, and not to its forked child")

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            self._set_tail_aside()
            _write_file(unsure(self.path), b"", is_durable=False)
            if self._end == 0 or self._was_left:
                data = self._stored() + data
                self._begin(data)
                self._end = len(data)
                return
            self._open_for_append()
        _write_all(self._fd, data)
        os.fdatasync(self._fd)
        self._end += len(data)

    def _stored(self) -> bytes:
        """Return the valid bytes that another writer left, looked at once more: they come from memory or the disk."""
        if self._end == 0:
            return b""
        data = self.path.read_bytes()[: self._end]
        if parse(self.path, data).end != self._end:
            raise LogWriteFailed(self.path, "has changed since it was opened")
        return data

    def _take_back(self) -> None:
        """Cut off what was written and not promised, as well as one can. Where one cannot, the mark tells of it."""
        with suppress(OSError):
            self.path.with_name(f"{self.path.name}.new").unlink(missing_ok=True)
            if self._fd >= 0:
                os.ftruncate(self._fd, self._end)

    def _set_tail_aside(self) -> None:
        """Keep torn bytes for whoever wants to look at them, before the log's own file loses them."""
        if self._aside is not None:
            _write_file(self._aside, self._tail)
            sync_directory(self.path.parent)

    def _begin(self, data: bytes) -> None:
        """Make the file with all of its first lines, or not at all."""
        new = self.path.with_name(f"{self.path.name}.new")  # left by a crash, it is overwritten by the next owner
        _write_file(new, data)
        fd = os.open(new, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._fd = fd
        new.replace(self.path)
        sync_directory(self.path.parent)

    def _open_for_append(self) -> None:
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if self._tail:
            os.ftruncate(self._fd, self._end)

    def _note_torn_tails(self) -> None:
        """Say where torn bytes go: those found now, and those that a crash kept from being spoken of."""
        *unspoken, free = _asides(self.path, self._end)
        found = [(path.name, path.stat().st_size) for path in unspoken]
        if self._tail:
            self._aside = free
            found.append((free.name, len(self._tail)))
        self.append((TORN, {"offset": self._end, "bytes": size, "file": name}) for name, size in found)


def _asides(path: Path, end: int) -> list[Path]:
    """Return the files with torn bytes from offset `end` of a log, and behind them the first free name."""
    first = f"{path.name}.torn-{end}"
    found: list[Path] = []
    for name in chain((first,), (f"{first}.{number}" for number in count(1))):
        found.append(path.with_name(name))
        if not found[-1].exists():
            break
    return found


def _write_file(path: Path, data: bytes, *, is_durable: bool = True) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(fd, data)
        if is_durable:
            os.fdatasync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:  # a nearly full disk gives short writes before it gives ENOSPC
        view = view[os.write(fd, view) :]
