"""A session: the append-only log of one attempt, typed. Log first, then derive the request, then call the model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from workers.blocking import blocking
from workers.errors import LeaseLost, LogCorrupt, LogTooNew, SessionAlreadyOwnedError
from workers.log import Log, Record, offset_of, only_growing, read

from . import events as ev
from .repair import interrupted_turn_closers
from .surface import Surface

__all__ = ["Session", "load_events", "read_session"]


def load_events(path: Path, records: Sequence[Record]) -> list[Any]:
    """Return the typed events of records. Raises LogCorrupt, LogTooNew naming the line that cannot be understood."""
    return [_load(path, records, record) for record in records]


def _load(path: Path, records: Sequence[Record], record: Record) -> Any:
    try:
        return ev.load(record.type, record.data)
    except ValueError as error:
        offset = offset_of(records, record.seq)
        refusal = LogTooNew if isinstance(error, ev.WrittenByNewer) else LogCorrupt
        raise refusal(path, line=record.seq + 1, offset=offset, reason=str(error)) from error


def read_session(path: Path) -> list[Any]:
    """Return what a cold reader sees: the events, with the closers of a cut-off turn computed in memory (spec L6)."""
    with only_growing():
        history = load_events(path, read(path).records)
    return [*history, *interrupted_turn_closers(history)]


class Session:
    """A session opened for writing by its one owner. The surface follows every append."""

    def __init__(self, log: Log, fenced: Callable[[], bool]) -> None:
        self._log = log
        self._fenced = fenced
        self.path = log.path
        self.events: list[Any] = load_events(log.path, log.records)
        self.surface = Surface().extend(self.events)

    @classmethod
    def open(cls, path: Path, note: str = "", fenced: Callable[[], bool] = lambda: False) -> Self:
        """Take the right to write. Raises SessionAlreadyOwnedError, LogCorrupt, LogError. Writes nothing.

        Once `fenced` says True the lease is lost: nothing more is accepted or written (protocol rule 8).
        """
        with only_growing():
            log = Log.open(path, owned=SessionAlreadyOwnedError, note=note)
            try:
                return cls(log, fenced)
            except BaseException:
                log.close()
                raise

    def append(self, *batch: Any) -> int:
        """Accept events in order and return the first one's seq. A fenced session accepts nothing."""
        if self._fenced():
            return len(self.events)
        records = self._log.append([event.stored() for event in batch])
        self.events += batch
        self.surface.extend(batch)
        return records[0].seq if records else len(self.events)

    async def flush(self) -> None:
        """Return once everything appended is durable (spec L3). The fsync leaves the event loop.

        Raises LeaseLost when the session is fenced: nothing was written, so nothing may be promised or go on.
        """
        if self._fenced():
            raise LeaseLost(f"{self.path}: the lease is lost, so nothing more is written")
        await blocking(self._log.flush)

    async def record(self, *batch: Any) -> int:
        """Append and flush in one."""
        seq = self.append(*batch)
        await self.flush()
        return seq

    def repair(self) -> list[Any]:
        """Append what a cut-off turn is missing, as its owner (spec L5), and return it."""
        closers = interrupted_turn_closers(self.events)
        if closers:
            self.append(*closers)
        return closers

    def close(self) -> None:
        """Give up the right to write."""
        self._log.close()

    def last(self, kind: type) -> Any | None:
        """Return the newest event of a type, or None."""
        return next((event for event in reversed(self.events) if isinstance(event, kind)), None)

    def count(self, kind: type) -> int:
        """Return how many events of a type there are."""
        return sum(isinstance(event, kind) for event in self.events)
