"""Commands run on a unit's behalf: all of them start here, and whatever they started is dead afterwards.

`run` returns, times out, is cancelled or is killed with our own process: on every way out nothing is left.
Where the kernel allows, a command lives in a PID namespace of its own, whose end takes daemons along;
elsewhere its process group and every process that carries its tag are killed, as far as they can be found.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from worktrees.containment import TAG_VARIABLE, Wrapping, is_provable, kill_tagged, wrapping
from worktrees.errors import ProcessesLeft, StartError
from worktrees.output import HeadAndTail
from worktrees.to_the_end import to_the_end

CHUNK = 1 << 20
CHUNKS_A_TURN = 16  # then the event loop has its turn
KILL_SECONDS = 10.0
SYNTAX_SECONDS = 10.0
LONGEST_ARGUMENT = 100_000  # Linux refuses a single argument of 128 KiB

# fmt: off
ALLOWED = frozenset({
    "PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR",
    "UV_PYTHON_PREFERENCE", "UV_LINK_MODE", "UV_OFFLINE", "UV_NATIVE_TLS", "PIP_CACHE_DIR",
    "PIP_NO_CACHE_DIR", "PIP_CERT", "PIP_DISABLE_PIP_VERSION_CHECK",
})
# fmt: on
ALWAYS = {
    "TERM": "dumb",
    "GIT_TERMINAL_PROMPT": "0",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "CI": "1",
    "DEBIAN_FRONTEND": "noninteractive",
}
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Command:
    """A shell script to run: `cwd`, the whole `env`, seconds of `timeout`, and limits in bytes.

    `output_limit` is kept (head and tail); a command that writes more than `total_limit` is killed.
    `tag` marks every process of the command, for `sweep`; one is made up when it is empty.
    """

    script: str
    cwd: Path
    env: Mapping[str, str]
    timeout: float
    output_limit: int = 100_000
    total_limit: int = 64 * 1024 * 1024
    tag: str = ""


@dataclass(frozen=True)
class Finished:
    """How a command ended. `output` is stdout and stderr as they came; `seconds` is wall time.

    Killed by us (timeout, flood) or by a signal to the whole: `exit_code` is None and `signal` says which.
    A signal that hit only the script's shell is an exit code of 128+n, as in any shell.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    output: str
    bytes_total: int
    truncated: bool
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself with exit code 0."""
        return self.exit_code == 0 and not self.timed_out


def base_environment(extra: Mapping[str, str] = NOTHING) -> dict[str, str]:
    """Return the environment for a command: allowed names of ours, fixed answers to prompts, then `extra`.

    By allow-list, so that no secret of ours gets in by having a name nobody thought of.
    """
    ours = {name: text for name, text in os.environ.items() if name in ALLOWED or name.startswith("LC_")}
    return {**ours, **ALWAYS, **extra}


def syntax_fault(script: str) -> str | None:
    """Return what bash says of a script that it cannot read, without running any of it; None for one that it can.

    None also where nobody can be asked: the script itself will say it then. `extglob` as a script may turn it on.
    """
    try:
        done = subprocess.run(
            ["bash", "-O", "extglob", "-n"],
            input=script,
            env=base_environment({"LC_ALL": "C"}),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=SYNTAX_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = [line.removeprefix("bash: ") for line in done.stderr.splitlines() if "warning: here-document" not in line]
    return None if done.returncode == 0 else "; ".join(said)


async def run(command: Command) -> Finished:
    """Run the script by bash and return when it, and everything it started, is gone.

    stdin is empty. It ends with the script, not with its output: `sleep 7 & echo done` returns at once.
    Call it on a long-lived thread's event loop: the command dies with the thread that started it.
    Raises StartError; ProcessesLeft when SIGKILL does not end it; CancelledError after the kill.
    """
    running = _Running(command, wrapping())
    try:
        await running.until_over()
    finally:
        await to_the_end(running.stop())
    return running.finished()


async def sweep(tag: str, seconds: float = 5.0) -> bool:
    """Kill every process on this host whose environment carries the tag; wait up to `seconds` for their end.

    True means provably none is left. Without PID namespaces a process may have shed its tag, so that the
    answer is False then, although everything that could be found is dead.
    """
    return await asyncio.to_thread(kill_tagged, tag, seconds) and is_provable()


class _Running:
    """One started command: its processes, its pipe, and what became of it."""

    def __init__(self, command: Command, wrap: Wrapping) -> None:
        self._command = command
        self._wrap = wrap
        self._tag = command.tag or secrets.token_hex(8)
        self._timed_out = False
        self._started = time.monotonic()
        self._kept = HeadAndTail(command.output_limit)
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._process, self._pipe, self._lifeline = self._start()
        self._pidfd = self._watch()
        self._loop.add_reader(self._pipe, self._read)
        self._loop.add_reader(self._pidfd, self._is_over)

    def _start(self) -> tuple[subprocess.Popen[bytes], int, int | None]:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        passed = _Passed()
        try:
            with contextlib.suppress(OSError):  # a faster pipe; the default size works too
                fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, CHUNK)
            os.set_blocking(reader, False)
            words = self._wrap.words(passed.script_words(self._command.script))
            process = subprocess.Popen(
                words,
                cwd=self._command.cwd,
                env={**self._command.env, TAG_VARIABLE: self._tag},
                stdin=passed.stdin(self._wrap),
                stdout=writer,
                stderr=writer,
                start_new_session=True,
                pass_fds=passed.descriptors,
            )
        except (OSError, ValueError) as error:
            os.close(reader)
            passed.close_lifeline()
            message = f"could not start a command in {self._command.cwd}: {error}"
            raise StartError(message, self._command.cwd) from error
        finally:
            os.close(writer)
            passed.close()
        return process, reader, passed.kept

    def _watch(self) -> int:
        try:
            return os.pidfd_open(self._process.pid)
        except OSError as error:  # no descriptor left: what nobody can watch must not run
            self._kill_group()
            self._process.wait()
            os.close(self._pipe)
            if self._lifeline is not None:
                os.close(self._lifeline)
            message = f"could not watch a command in {self._command.cwd}: {error}"
            raise StartError(message, self._command.cwd) from error

    async def until_over(self) -> None:
        """Wait until the script ends, its time is up, or it wrote too much."""
        done, _ = await asyncio.wait({self._over}, timeout=self._command.timeout)
        self._timed_out = not done and self._process.poll() is None

    async def stop(self) -> None:
        """Kill what is left, wait until it is gone, and read what it wrote. Raises ProcessesLeft."""
        try:
            if self._process.poll() is None:
                await self._kill()
            elif not self._wrap.is_namespace:
                self._kill_group()
            if not self._wrap.is_namespace and not await asyncio.to_thread(
                kill_tagged, self._tag, KILL_SECONDS, quiet=0.0
            ):
                raise ProcessesLeft(self._tag)
            while not self._is_flood() and self._read():
                pass  # all writers are dead: at most what the pipe holds
        finally:
            self._close()

    async def _kill(self) -> None:
        """Kill the group and wait for its leader and for the namespace's first process.

        When that one is gone, so is everything in the namespace: the kernel sees to it.
        """
        first = self._wrap.first_process(self._process.pid)
        try:
            self._kill_group()
            ended = await _exited(self._pidfd, KILL_SECONDS)
            if first is not None:
                ended = await _exited(first, KILL_SECONDS) and ended
        finally:
            if first is not None:
                os.close(first)
        if not ended:
            raise ProcessesLeft(self._tag)
        self._process.wait()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _close(self) -> None:
        self._loop.remove_reader(self._pipe)
        self._loop.remove_reader(self._pidfd)
        os.close(self._pipe)
        os.close(self._pidfd)
        if self._lifeline is not None:
            os.close(self._lifeline)

    def _read(self) -> bool:
        """Take what is in the pipe, a good portion of it at once; False when there is no more for now."""
        for _ in range(CHUNKS_A_TURN):
            try:
                data = os.read(self._pipe, CHUNK)
            except BlockingIOError:
                return False
            if not data:
                self._loop.remove_reader(self._pipe)
                return False
            self._kept.feed(data)
            if self._is_flood():
                self._loop.remove_reader(self._pipe)  # whoever writes on waits for the kill
                self._is_over()
                return False
        return True

    def _is_flood(self) -> bool:
        return self._kept.total > self._command.total_limit

    def _is_over(self) -> None:
        self._loop.remove_reader(self._pidfd)
        if not self._over.done():
            self._over.set_result(None)

    def finished(self) -> Finished:
        """Return how it ended; only after `stop`."""
        code = self._process.returncode
        return Finished(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            timed_out=self._timed_out,
            output=self._kept.text(),
            bytes_total=self._kept.total,
            truncated=self._kept.is_truncated,
            seconds=time.monotonic() - self._started,
        )


class _Passed:
    """The descriptors that a command inherits on purpose."""

    def __init__(self) -> None:
        self._theirs: list[int] = []
        self._stdin: int | None = None
        self.kept: int | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(self._theirs)

    def script_words(self, script: str) -> list[str]:
        """Words for bash that run the script; a long one comes by descriptor."""
        data = script.encode(errors="surrogateescape")
        if len(data) < LONGEST_ARGUMENT:
            return ["-c", script]
        descriptor = os.memfd_create("script")
        self._theirs.append(descriptor)
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return [f"/dev/fd/{descriptor}"]

    def stdin(self, wrap: Wrapping) -> int:
        """Return what the wrapper reads: nothing, or a pipe whose other end only our own process holds."""
        if wrap.is_namespace:
            return subprocess.DEVNULL
        self._stdin, self.kept = os.pipe2(os.O_CLOEXEC)
        return self._stdin

    def close(self) -> None:
        for descriptor in (*self._theirs, *(() if self._stdin is None else (self._stdin,))):
            os.close(descriptor)

    def close_lifeline(self) -> None:
        if self.kept is not None:
            os.close(self.kept)


async def _exited(pidfd: int, seconds: float) -> bool:
    """Wait for a process's end. By polling: kills are rare, and it ends within a millisecond or never."""
    deadline = time.monotonic() + seconds
    pause = 0.0005
    while not select.select([pidfd], [], [], 0)[0]:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.05)
    return True
