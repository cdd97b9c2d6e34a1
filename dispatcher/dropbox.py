"""The drop-box: a folder of small files by which everything else asks the dispatcher for something.

Dropping needs no dispatcher: the running one obeys, or the next. A file that cannot be read is put aside with the
reason and never holds up the others. Obeying, and refusing to obey twice, is the dispatcher's and its journal's.
"""

import contextlib
import errno
import os
import secrets
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from dispatcher.config import Effort
from dispatcher.errors import EngineError
from dispatcher.units import UnitId
from worktrees.files import write_atomic

__all__ = [
    "Answer",
    "Approve",
    "Block",
    "Cancel",
    "Deny",
    "Fork",
    "Pause",
    "Request",
    "Resume",
    "Retry",
    "Stop",
    "Tell",
    "Unblock",
    "done",
    "drop",
    "peek",
    "pending",
    "was_refused",
    "withdraw",
]

MAX_BYTES = 1024 * 1024
"""A person's words; more is no request."""

MOST_CHARACTERS = 200_000
"""Of a person's words: they go to a model, which reads no books on the way."""

Words = Annotated[str, StringConstraints(max_length=MOST_CHARACTERS)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=MOST_CHARACTERS, pattern=r"\S")]


def new_id() -> str:
    """Return a unique id; a later one of the same clock sorts behind (nanoseconds, then chance)."""
    return f"{time.time_ns():020d}-{secrets.token_hex(4)}"


class _Asked(BaseModel):
    """What every request has: a version, a unique id in the order of time, and the time itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    id: Annotated[str, StringConstraints(pattern=r"^[0-9]{20}-[0-9a-f]{8}$")] = Field(default_factory=new_id)
    at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))


class _Decided(_Asked):
    """What a person says to the call that `unit` waits with; `call` is the one that they were shown ("": unknown)."""

    unit: UnitId
    call: str = ""


class Answer(_Decided):
    """Answer the question that `unit` is blocked on."""

    kind: Literal["answer"] = "answer"
    text: Text


class Approve(_Decided):
    """Let the action that `unit` is blocked on happen."""

    kind: Literal["approve"] = "approve"


class Deny(_Decided):
    """Refuse the action that `unit` is blocked on; the model is told `reason`."""

    kind: Literal["deny"] = "deny"
    reason: Words = ""


class Tell(_Asked):
    """Say something to `unit`: at work it hears it between two steps, else with its next order."""

    kind: Literal["tell"] = "tell"
    unit: UnitId
    text: Text
    effort: Effort | None = None


class Retry(_Asked):
    """Put `unit` back into `open`, with its attempts."""

    kind: Literal["retry"] = "retry"
    unit: UnitId


class Cancel(_Asked):
    """Take `unit` out of the night, at once where it is at work."""

    kind: Literal["cancel"] = "cancel"
    unit: UnitId


class Block(_Asked):
    """Put `unit` into `blocked`, for `reason`; whoever is at work stops at the next step."""

    kind: Literal["block"] = "block"
    unit: UnitId
    reason: Words = ""


class Unblock(_Asked):
    """Put `unit` back into `open`, as it was: its attempts go on counting."""

    kind: Literal["unblock"] = "unblock"
    unit: UnitId


class Fork(_Asked):
    """Go on with `unit` in a new attempt, from the first `keep` events of `attempt` (spec L11)."""

    kind: Literal["fork"] = "fork"
    unit: UnitId
    attempt: Annotated[int, Field(ge=1)]
    keep: Annotated[int, Field(ge=1)]


class Stop(_Asked):
    """Hand out nothing more and end the run."""

    kind: Literal["stop"] = "stop"


class Pause(_Asked):
    """Hand out nothing until somebody resumes; those at work go on, and so does the run."""

    kind: Literal["pause"] = "pause"


class Resume(_Asked):
    """Hand out again."""

    kind: Literal["resume"] = "resume"


Request = Annotated[
    Answer | Approve | Deny | Tell | Retry | Fork | Cancel | Block | Unblock | Stop | Pause | Resume,
    Field(discriminator="kind"),
]
"""Whatever can be asked for. A new kind is a new class here, with its own `kind`."""

_REQUEST: TypeAdapter[Request] = TypeAdapter(Request)


def drop(folder: Path, request: Request) -> Path:
    """Put `request` into `folder`, durably and never half visible; return its file.

    Raises worktrees.errors.DiskError; then nothing was asked for. EngineError: the folder cannot be made.
    """
    _make(folder)
    path = _path(folder, request)
    write_atomic(path, _REQUEST.dump_json(request) + b"\n", mode=0o600)
    return path


def pending(folder: Path) -> list[tuple[Path, Request]]:
    """Return what waits in `folder`, oldest first; no folder means nothing.

    What is no request goes to `rejected/`, with a `.reason` file beside it. Raises EngineError if the folder
    itself cannot be listed.
    """
    found = []
    for path in _files(folder):
        try:
            found.append((path, _load(path)))
        except _NotNowError:
            continue  # it stays; the next look tries again
        except _UnreadableError as error:
            _reject(path, str(error))
    return found


def peek(folder: Path) -> list[Request]:
    """Return what waits in `folder`, oldest first, without moving anything: for those who only look.

    Raises EngineError if the folder itself cannot be listed.
    """
    found = []
    for path in _files(folder):
        with contextlib.suppress(_NotNowError, _UnreadableError):
            found.append(_load(path))
    return found


def was_refused(folder: Path, request: Request) -> str:
    """Return why the dispatcher put a request aside as none, "" where it did not (an older version may)."""
    with contextlib.suppress(OSError):
        return (folder / "rejected" / f"{request.id}.json.reason").read_text(encoding="utf-8").strip()
    return ""


def done(path: Path) -> None:
    """Delete a request that was journalled; doing it twice changes nothing. Raises EngineError.

    Should a crash bring the file back, its id is in the journal.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise EngineError(f"{path} cannot be deleted: {error.strerror}", component="drop-box") from error


def withdraw(folder: Path, request: Request) -> None:
    """Delete a request that needs no journal, or that nobody is there for any more. Raises EngineError."""
    done(_path(folder, request))


def _path(folder: Path, request: Request) -> Path:
    return folder / f"{request.id}.json"


class _UnreadableError(Exception):
    """A file of the drop-box that is no request, and why."""


class _NotNowError(Exception):
    """A file that could not be read for a reason that is not its own (gone, no descriptors, memory, disk)."""


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"the drop-box {folder} cannot be made: {error.strerror}"
        raise EngineError(message, component="drop-box") from error


def _files(folder: Path) -> list[Path]:
    """List by name, which is by time; files that are being written start with a dot."""
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        message = f"the drop-box {folder} cannot be read: {error.strerror}"
        raise EngineError(message, component="drop-box") from error
    return [path for path in paths if path.suffix == ".json" and not path.name.startswith(".")]


def _load(path: Path) -> Request:
    try:
        request = _REQUEST.validate_json(_read(path))
    except ValidationError as error:
        faults = (_fault(fault["loc"], fault["msg"]) for fault in error.errors())
        raise _UnreadableError("; ".join(faults)) from None
    if f"{request.id}.json" != path.name:
        raise _UnreadableError(f"the file's name is not the id inside it, {request.id}: is it a copy?")
    return request


def _fault(where: tuple[int | str, ...], message: str) -> str:
    return ": ".join(part for part in (".".join(str(key) for key in where), message) if part)


_ITS_OWN_FAULT = frozenset({errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO})
"""A link, no permission, a socket. Anything else that opening a file says is the machine's trouble."""


def _read(path: Path) -> bytes:
    """Read a plain file; a FIFO or a link must neither hang the dispatcher nor lead it elsewhere."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _ITS_OWN_FAULT:
            raise _UnreadableError(f"cannot be opened: {error.strerror}") from error
        raise _NotNowError from error
    try:
        return _read_open(descriptor)
    except OSError as error:
        raise _NotNowError from error
    finally:
        os.close(descriptor)


def _read_open(descriptor: int) -> bytes:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise _UnreadableError("is not a plain file")
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _UnreadableError(f"is larger than {MAX_BYTES} bytes")
    return data


def _reject(path: Path, reason: str) -> None:
    """Put the file aside. If even that fails it stays, and is tried again at the next look."""
    aside = path.parent / "rejected"
    with contextlib.suppress(OSError):
        aside.mkdir(mode=0o700, exist_ok=True)
        target = aside / path.name
        if os.path.lexists(target):
            target = aside / f"{path.stem}.{secrets.token_hex(4)}{path.suffix}"
        path.rename(target)
        target.with_name(f"{target.name}.reason").write_text(f"{reason}\n", encoding="utf-8")
