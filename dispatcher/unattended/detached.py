"""Detached: a run in the background that needs no terminal, and whether one goes on here."""

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from dispatcher.errors import WriterLocked
from dispatcher.home import Home
from dispatcher.unattended.runlog import begin
from worktrees.errors import LockBusy
from worktrees.files import FileLock, lock_holder

__all__ = ["goes_on", "is_held", "start", "waits_until", "waits_words"]

_START_SECONDS = 15.0
_POLL_SECONDS = 0.05
_LOOK_SECONDS = 0.2
_NOTE = re.compile(rb"[0-9]{2}:[0-9]{2}:[0-9]{2}  |\{\"")
"""How what a run says of itself begins: a time, or a JSON object."""
_WAITS = re.compile(r"overnight run, waits until ([0-9]{2}:[0-9]{2})")


def start(home: Home, args: Sequence[str], folder: Path) -> int | None:
    """Start `overnight ARGS` in `folder`, in a session of its own, with the run's log for its output.

    Returns once it has begun: None; or its exit code, when it ended at once. Raises WriterLocked, EngineError, OSError.
    """
    home.make()
    lock = FileLock(home.start_lock)
    try:
        lock.wait(2 * _START_SECONDS, "overnight run --detach")
        for held in (home.writer_lock, home.run_lock):
            _refuse_held(held)
        return _start(home, args, folder)
    except LockBusy as busy:
        raise WriterLocked(busy.path, busy.holder) from busy
    finally:
        lock.release()


def _refuse_held(path: Path) -> None:
    lock = FileLock(path)
    lock.wait(_LOOK_SECONDS, "looking")  # somebody else may be looking, too
    lock.release()


def _start(home: Home, args: Sequence[str], folder: Path) -> int | None:
    with begin(home.run_log) as log:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "dispatcher.cli", *args],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return _begun(home, child)


def _begun(home: Home, child: subprocess.Popen[bytes]) -> int | None:
    """Wait for its first note. An error, or last words, are none: then it is about to end, and its exit code is due."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if (code := child.poll()) is not None:
            return code
        if _NOTE.match(home.run_log.read_bytes()):
            break
        time.sleep(_POLL_SECONDS)
    child.returncode = 0  # it goes on without us; Python need not warn that nobody waited for it
    return None


def goes_on(home: Home) -> bool:
    """Tell whether a run goes on here, or waits for its time."""
    return is_held(home.writer_lock) or is_held(home.run_lock)


def waits_words(moment: datetime) -> str:
    """Return what a run that waits for its time leaves in its lock, for `waits_until`."""
    return f"overnight run, waits until {moment:%H:%M}"


def waits_until(home: Home) -> str:
    """Return the time of day until which a run waits here; "" where none does, or it has begun."""
    if is_held(home.writer_lock) or not is_held(home.run_lock):
        return ""
    found = _WAITS.match(lock_holder(home.run_lock))
    return found[1] if found else ""


def is_held(path: Path) -> bool:
    """Tell whether somebody holds a lock right now. A lock whose folder is not there is held by nobody."""
    if not path.parent.is_dir():
        return False
    lock = FileLock(path)
    try:
        lock.acquire("looking")
    except LockBusy:
        return True
    lock.release()
    return False
