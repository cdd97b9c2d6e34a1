"""The outbox: a report on the worker's disk until the dispatcher has acknowledged it (protocol rule 14).

A report travels: session log (the truth) → outbox → Redis → journal → acknowledged → deleted here, by the host alone.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import redis
from pydantic import TypeAdapter, ValidationError

from worktrees.files import disk_error, write_atomic

from .orders import Report

__all__ = ["Courier", "Mailbox", "Outbox", "decode"]

_REPORT: TypeAdapter[Report] = TypeAdapter(Report)


def decode(text: str | bytes) -> Report:
    """Return a report from its JSON. Raises ValueError."""
    try:
        return _REPORT.validate_json(text)
    except ValidationError as error:
        raise ValueError(f"no report: {error.errors()[0]['msg']}") from error


class Outbox:
    """A folder with one file a report, named by its task id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, report: Report) -> None:
        """Write a report durably. Raises DiskError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error("make", self.folder, error) from error
        write_atomic(self._path(report.task_id), report.model_dump_json().encode())

    def pending(self) -> list[Report]:
        """Return the reports that nobody has acknowledged; unreadable files are left for people to look at."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                found.append(decode(path.read_bytes()))
            except (ValueError, OSError):
                continue
        return found

    def remove(self, task_id: str) -> None:
        """Forget an acknowledged report."""
        self._path(task_id).unlink(missing_ok=True)

    def _path(self, task_id: str) -> Path:
        return self.folder / f"{task_id}.json"


class Mailbox:
    """Where reports wait in Redis, and where their acknowledgements do. Doing anything twice changes nothing."""

    def __init__(self, client: redis.Redis, night: str) -> None:
        self._redis = client
        self._reports = f"overnight:{night}:reports"
        self._acks = f"overnight:{night}:acks"
        self._wake = f"overnight:{night}:wake"

    def send(self, report: Report) -> None:
        """Put a report in and wake the dispatcher."""
        pipeline = self._redis.pipeline()
        pipeline.hset(self._reports, report.task_id, report.model_dump_json())
        pipeline.lpush(self._wake, report.task_id)
        pipeline.ltrim(self._wake, 0, 999)
        pipeline.execute()

    def receive(self) -> list[Report]:
        """Return the reports that wait; one that cannot be read never holds up the others."""
        found = []
        for text in self._redis.hvals(self._reports):
            with suppress(ValueError):  # its sender keeps it; a newer dispatcher may understand it
                found.append(decode(text))
        return found

    def acknowledge(self, task_id: str) -> None:
        """Say that the journal holds the report, accepted or refused."""
        pipeline = self._redis.pipeline()
        pipeline.hset(self._acks, task_id, "1")
        pipeline.hdel(self._reports, task_id)
        pipeline.execute()

    def is_acknowledged(self, task_id: str) -> bool:
        """Tell whether the dispatcher has the report."""
        return bool(self._redis.hexists(self._acks, task_id))

    def wait(self, seconds: float) -> bool:
        """Block until a report arrives or the time is over."""
        return self._redis.brpop([self._wake], timeout=seconds) is not None


class Courier:
    """The thread that carries reports from the outbox to Redis until they are acknowledged."""

    def __init__(self, mailbox: Callable[[str], Mailbox], delivered: Callable[[str], None], *, every: float) -> None:
        """`mailbox` gives a night's mailbox; `delivered` hears each acknowledged task id; `every` is seconds."""
        self._mailbox = mailbox
        self._delivered = delivered
        self._every = every
        self._load: dict[str, tuple[Outbox, Report]] = {}
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)

    def start(self) -> None:
        """Start carrying."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; whatever is left goes out from the outbox at the next start."""
        self._stopped = True
        self._wake.set()
        self._thread.join(timeout=10)

    def carry(self, outbox: Outbox, report: Report) -> None:
        """Take on a report; only what the outbox holds outlives this process."""
        self._load[report.task_id] = (outbox, report)
        self._wake.set()

    def idle(self) -> bool:
        """Tell whether everything has been acknowledged."""
        return not self._load

    def _run(self) -> None:
        while not self._stopped:
            self._wake.wait(self._every if self._load else None)
            self._wake.clear()
            for task_id, (outbox, report) in list(self._load.items()):
                try:
                    self._carry_one(task_id, outbox, report)
                except (redis.RedisError, OSError):
                    break  # everybody waits for Redis, and for a disk that refuses to forget

    def _carry_one(self, task_id: str, outbox: Outbox, report: Report) -> None:
        mailbox = self._mailbox(report.night)
        if mailbox.is_acknowledged(task_id):
            outbox.remove(task_id)
            self._load.pop(task_id, None)
            self._delivered(task_id)
        else:
            mailbox.send(report)  # again and again: Redis may have lost it
