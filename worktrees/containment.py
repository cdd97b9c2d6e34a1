"""How a command is wrapped so that nothing survives it, and how survivors are found by their tag."""

from __future__ import annotations

import functools
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TAG_VARIABLE = "OVERNIGHT_TAG"
PROBE_SECONDS = 10
SCAN_PAUSE_SECONDS = 0.02
QUIET_SECONDS = 0.05  # a dying first process shows no environment while the kernel still kills the rest

# Our process may die before `setpriv` asked to be killed with it: then the parent is no longer $0, and it gives up.
# dash is the namespace's first process: it reaps what the script leaves, and its end is the end of all.
STILL_OURS = '[ "$PPID" = "$0" ] && exec "$@"; exit 143'
FIRST = '"$0" "$@"; exit $?'
# Without a namespace: a guardian outside the group, which kills the group when our end of its stdin closes.
GUARDED = (
    'exec 3<&0 </dev/null; setsid sh -c \'read -r _ <&3; kill -KILL "-$0"\' "$$" >/dev/null 2>&1 & exec 3<&-; exec "$@"'
)


@dataclass(frozen=True)
class Wrapping:
    """The words before a script's own; with a namespace or, where the kernel refuses one, without."""

    namespace: tuple[str, ...] | None
    programs: tuple[tuple[str, str], ...]

    @property
    def is_namespace(self) -> bool:
        """Whether the end of the command is the end of all its processes, daemons included."""
        return self.namespace is not None

    def words(self, script: list[str]) -> list[str]:
        """Return the whole command line for bash's words `script`.

        Without a namespace, stdin must be a pipe whose other end only our own process holds.
        """
        path = dict(self.programs)
        inner = [path["bash"], *script]
        if self.namespace is None:
            guarded = [path["sh"], "-c", GUARDED, "sh", *inner]
            return [*self._with_parent(), *guarded]
        return [*self._with_parent(), *self.namespace, "--", path["sh"], "-c", FIRST, *inner]

    def _with_parent(self) -> list[str]:
        path = dict(self.programs)
        if "setpriv" not in path:
            return []
        ours = [path["sh"], "-c", STILL_OURS, str(os.getpid())]
        return [path["setpriv"], "--pdeathsig", "KILL", *ours]

    def first_process(self, leader: int) -> int | None:
        """Return a pidfd of the namespace's first process, the leader's only child; None if there is none yet."""
        if not self.is_namespace:
            return None
        try:
            children = Path(f"/proc/{leader}/task/{leader}/children").read_text(encoding="ascii").split()
            return os.pidfd_open(int(children[0])) if children else None
        except (FileNotFoundError, ProcessLookupError):
            return None


@functools.cache
def wrapping() -> Wrapping:
    """Find out once what this host allows: plain PID namespaces, those of a user namespace, or none."""
    programs = tuple(
        (name, path) for name in ("sh", "bash", "setpriv", "unshare") if (path := shutil.which(name)) is not None
    )
    for options in _candidates():
        candidate = Wrapping((dict(programs).get("unshare", "unshare"), *options), programs)
        if "setpriv" in dict(programs) and _works(candidate):
            return candidate
    return Wrapping(None, programs)


def is_provable() -> bool:
    """Whether commands here live in PID namespaces, so that a sweep that finds nothing is a proof."""
    return wrapping().is_namespace


def _candidates() -> Iterable[tuple[str, ...]]:
    namespace = ("--pid", "--fork", "--kill-child=KILL", "--mount-proc")
    if os.geteuid() == 0:
        yield namespace
        yield ("--user", "--map-root-user", *namespace)
    else:
        yield ("--user", "--map-current-user", *namespace)
        yield ("--user", "--map-root-user", *namespace)


def _works(candidate: Wrapping) -> bool:
    try:
        done = subprocess.run(
            candidate.words(["-c", "exit 42"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, KeyError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 42


def kill_tagged(tag: str, seconds: float, *, quiet: float = QUIET_SECONDS) -> bool:
    """Kill every process (but our own) whose environment carries the tag; False if one is left after `seconds`.

    Nothing must be found for `quiet` seconds. A process that dropped the variable is not found; in a PID
    namespace it dies with those that are.
    """
    deadline = time.monotonic() + seconds
    quiet_since: float | None = None
    while time.monotonic() < deadline:
        found = tagged(tag)
        if found:
            quiet_since = None
            _kill_and_wait(found, tag, deadline)
            continue
        quiet_since = quiet_since or time.monotonic()
        if time.monotonic() - quiet_since >= quiet:
            return True
        time.sleep(SCAN_PAUSE_SECONDS)
    return False


def tagged(tag: str) -> list[int]:
    """Return the ids of the processes (but our own) whose environment carries the tag."""
    ours = os.getpid()
    numbers = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - a hot loop over names
    return [number for number in numbers if number != ours and _carries(number, tag)]


def _carries(process: int, tag: str) -> bool:
    try:
        environment = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:  # gone meanwhile, or somebody else's
        return False
    return f"{TAG_VARIABLE}={tag}".encode() in environment.split(b"\0")


def _kill_and_wait(found: list[int], tag: str, deadline: float) -> None:
    """Kill by pidfd, looking once more after opening it: a number may have been given to a stranger."""
    handles = []
    try:
        for process in found:
            try:
                handle = os.pidfd_open(process)
            except ProcessLookupError:
                continue
            handles.append(handle)
            if _carries(process, tag):
                _send_kill(handle)
        _wait_for_end(handles, deadline)
    finally:
        for handle in handles:
            os.close(handle)


def _send_kill(handle: int) -> None:
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_for_end(handles: list[int], deadline: float) -> None:
    waiting = set(handles)
    while waiting and (left := deadline - time.monotonic()) > 0:
        poll = select.poll()
        for handle in waiting:
            poll.register(handle, select.POLLIN)
        waiting -= {handle for handle, _ in poll.poll(left * 1000)}
