"""What was asked of the server: one record a request, and counts by unit that stay when bodies are not kept."""

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Record", "Recording", "Tally"]


@dataclass(slots=True)
class Record:
    """One request. Times are `time.time()`; what is not known (yet) is None or ""."""

    n: int
    time: float
    path: str
    headers: dict[str, str]
    unit: str = ""
    attempt: int = 0
    step: int = -1
    session: str = ""
    request_hash: str = ""
    body: dict[str, Any] | None = None
    status: int | None = None
    error: str = ""
    fault: str = ""
    finished: float | None = None
    disconnected: float | None = None
    usage: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


@dataclass(slots=True)
class Tally:
    """The calls of one unit: how many, and when the first and the last came in (`time.time()`)."""

    calls: int
    first: float
    last: float


class Recording:
    """The records, in order of arrival. With `bodies` off, requests are counted but their bodies are not kept."""

    def __init__(self, *, bodies: bool = True) -> None:
        self.bodies = bodies
        self._records: list[Record] = []
        self._tallies: dict[str, Tally] = {}
        self._same: Counter[tuple[str, int, int, str]] = Counter()

    def open(self, path: str, headers: dict[str, str]) -> Record:
        """Start the record of a request that has just come in."""
        record = Record(n=len(self._records) + 1, time=time.time(), path=path, headers=headers)
        self._records.append(record)
        return record

    def identified(self, record: Record, unit: str, attempt: int, step: int, digest: str) -> None:
        """Note who asked and count it; the same (unit, attempt, step, hash) again is a repeat."""
        record.unit, record.attempt, record.step, record.request_hash = unit, attempt, step, digest
        tally = self._tallies.setdefault(unit, Tally(0, record.time, record.time))
        tally.calls += 1
        tally.last = record.time
        self._same[unit, attempt, step, digest] += 1

    @property
    def records(self) -> list[Record]:
        """A copy of the list; the records in it are live."""
        return list(self._records)

    @property
    def tallies(self) -> dict[str, Tally]:
        """Calls by unit."""
        return dict(self._tallies)

    @property
    def repeats(self) -> dict[tuple[str, int, int, str], int]:
        """(unit, attempt, step, hash of the request) -> calls, for those that were asked more than once."""
        return {key: calls for key, calls in self._same.items() if calls > 1}

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain data, for `GET /rehearsal/requests`."""
        return {
            "requests": [record.as_json() for record in self.records],
            "units": {unit: asdict(tally) for unit, tally in self._tallies.items()},
            "repeats": [
                {"unit": unit, "attempt": attempt, "step": step, "request_hash": digest, "calls": calls}
                for (unit, attempt, step, digest), calls in self.repeats.items()
            ],
        }
