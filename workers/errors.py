"""Everything that can go wrong with one unit, as one tree.

WorkersError
├── LogError                    path: the log it happened to
│   ├── LogCorrupt              line, offset: a bad line *before* the tail, a gap or a repeat in seq
│   │   └── LogTooNew           the file is whole, and a newer version wrote a line that must be understood
│   ├── LogWriteFailed          a write or fsync failed: the log is closed for writing, never retried
│   └── LogAlreadyOwned         holder: somebody else has the right to write
│       └── SessionAlreadyOwnedError   the same, of a session (spec L6)
├── EpochRefused                an order that is not newer than what the session has already seen
├── LeaseLost                   another epoch or holder owns the unit: append nothing more
├── Cancelled                   the harness asked the unit to stop (a person, a shutdown)
├── ToolError                   what an agent asked for cannot be done: goes back to the model, never further
├── BundleFileError             path, line, field: an agent's or a skill's file that cannot be used
├── ImageRefused                a file is no image that can be shown: broken, or too large to decode
├── PriceUnknown                the model has no price, so a money cap would mean nothing
└── ModelError                  a model call that gave no whole answer; `kind` says what is worth doing
"""

import re
from pathlib import Path
from typing import ClassVar, Literal

__all__ = [
    "BundleFileError",
    "Cancelled",
    "EpochRefused",
    "ImageRefused",
    "LeaseLost",
    "LogAlreadyOwned",
    "LogCorrupt",
    "LogError",
    "LogTooNew",
    "LogWriteFailed",
    "ModelError",
    "ModelErrorKind",
    "PriceUnknown",
    "SessionAlreadyOwnedError",
    "ToolError",
    "WorkersError",
]


class WorkersError(Exception):
    """Base of everything that this package raises on purpose."""


class LogError(WorkersError):
    """Something is wrong with an append-only log."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class LogCorrupt(LogError):
    """A log that must not be loaded: a bad line before the tail, or a gap or repeat in `seq`."""

    remedy: ClassVar[str] = "Restore the file from a backup"

    def __init__(self, path: Path, *, line: int, offset: int, reason: str) -> None:
        super().__init__(path, f"line {line} (byte {offset}) {reason}; nothing was written. {self.remedy}")
        self.line = line
        self.offset = offset
        self.reason = reason


class LogTooNew(LogCorrupt):
    """A log that only a newer version understands: nothing is wrong with the file, so no backup would help."""

    remedy = "Use the overnight that wrote it, or a newer one"


class LogWriteFailed(LogError):
    """A write or an fsync failed. A second fsync would say "ok" for lost data, so there is no retry."""


_HOLDER = re.compile(r"pid (?P<pid>\d+) on (?P<host>\S+) since (?P<since>\S+)$")


class LogAlreadyOwned(LogError):
    """Another process holds the right to write.

    `holder`, and its parts `host`, `pid` and `since` (ISO 8601) where they are known, are for display, never for
    deciding.
    """

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(path, f"is being written by {holder or 'another process'}; reading it is always possible")
        self.holder = holder
        found = _HOLDER.search(holder)
        self.pid = int(found["pid"]) if found else None
        self.host = found["host"] if found else ""
        self.since = found["since"] if found else ""


class SessionAlreadyOwnedError(LogAlreadyOwned):
    """A second process opened the same session for writing (spec L6)."""


class EpochRefused(WorkersError):
    """The order is not newer than one this session has already worked on (protocol rule 6)."""


class LeaseLost(WorkersError):
    """Another epoch or another holder owns the unit now (protocol rule 8)."""


class Cancelled(WorkersError):
    """The unit was asked to stop; `reason` is the release's reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"asked to stop: {reason}")
        self.reason = reason


class ToolError(WorkersError):
    """What the agent asked for cannot be done; the text is what the model is told."""


class BundleFileError(WorkersError):
    """The file of an agent or a skill cannot be used; shown as "path:line: field: message".

    `path` is relative to the checkout. `problems` holds the single errors when several were found in one reading.
    """

    def __init__(
        self,
        message: str,
        *,
        path: Path,
        line: int | None = None,
        field: str | None = None,
        problems: tuple["BundleFileError", ...] = (),
    ) -> None:
        where = str(path) if line is None else f"{path}:{line}"
        said = ": ".join(part for part in (where, field, message) if part)
        super().__init__("\n".join(map(str, problems)) or said)
        self.message = message
        self.path = path
        self.line = line
        self.field = field
        self.problems = problems or (self,)


class ImageRefused(WorkersError):
    """A file cannot be shown as an image; `reason` says why, and goes behind the file's name."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PriceUnknown(WorkersError):
    """The price table does not have the model. `model` is its name."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"the price of model {model!r} is unknown, so a money limit would mean nothing; "
            "give it under [model.price] in .overnight/config.toml"
        )
        self.model = model


ModelErrorKind = Literal["transient", "rate_limit", "spend_limit", "auth", "invalid", "too_large"]


class ModelError(WorkersError):
    """A model call without a whole answer.

    `kind`: transient (try again), rate_limit (wait `retry_after` seconds), spend_limit (hand-out stops), auth (the
    key is refused), invalid (the same request would fail again), too_large (the request must shrink).
    """

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        status: int | None = None,
        error_type: str = "",
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.error_type = error_type
        self.request_id = request_id
        self.retry_after = retry_after
