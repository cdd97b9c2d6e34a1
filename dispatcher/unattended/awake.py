"""Awake: the machine does not go to sleep while a run goes on, where systemd offers that. Without it nothing is said.

A night goes on all the same after the machine slept: leases and limits are counted on a clock that runs through it.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["awake"]

_LEAVE_SECONDS = 5.0


@contextmanager
def awake(why: str) -> Iterator[None]:
    """Hold a sleep inhibitor; `why` is what the system says to whoever wants to suspend it.

    It is held by a child that reads from us until its end: when we die, however that is, so does it.
    """
    holder = _hold(why)
    try:
        yield
    finally:
        if holder is not None:
            _let_go(holder)


def _hold(why: str) -> subprocess.Popen[bytes] | None:
    inhibit, reader = shutil.which("systemd-inhibit"), shutil.which("cat")
    if inhibit is None or reader is None:
        return None
    argv = [inhibit, "--what=sleep:idle", "--who=overnight", f"--why={why}", "--mode=block", reader]
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None


def _let_go(holder: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        if holder.stdin is not None:
            holder.stdin.close()
    try:
        holder.wait(_LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()
