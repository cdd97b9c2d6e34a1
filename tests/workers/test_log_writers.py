"""The log with real writers: killed at any moment, on a disk that fails, forked, and racing for the right to write."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import log_writer
import pytest

from workers.errors import LogAlreadyOwned, LogWriteFailed
from workers.log import TORN, Log, Record, encode, read, unsure
from workers.tools import Workspace, built_in
from worktrees.process import base_environment

SIZES = (100, 4_000, 100_000, 5_000_000)
STRACE = shutil.which("strace")
needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is not installed: no fault can be injected")


class Helper:
    """A process of `log_writer`, spoken to line by line."""

    def __init__(self, *words: str, before: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, log_writer.__file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def nursery() -> Iterator[Helper]:
    """Where writers are born."""
    with Helper("nursery") as helper:
        yield helper


def kill_while_writing(nursery: Helper, folder: Path, size: int, after: float | None) -> int:
    """Let a writer write, kill it some seconds after its first flush, and return the last number it told of.

    Without a number of seconds: as soon as the file grows again, which is in the middle of a write that is large.
    """
    told, log = folder / "told", folder / "session.jsonl"
    before = told.stat().st_size if told.exists() else 0
    nursery.say(f"{folder} {size}")
    writer = int(nursery.hear())
    deadline = time.monotonic() + 60
    while not told.exists() or told.stat().st_size == before:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    if after is None:
        length = log.stat().st_size
        while log.stat().st_size == length:
            assert time.monotonic() < deadline
    else:
        time.sleep(after)
    os.kill(writer, signal.SIGKILL)
    nursery.say("-")
    assert nursery.hear() == "reaped"
    return int(told.read_bytes().split(b"\n")[-2])


def check(folder: Path, size: int, flushed: int) -> int:
    """Assert that all that was flushed is there and nothing altered; return the bytes of torn tails so far."""
    found = read(folder / "session.jsonl")
    assert len(found.records) > flushed
    torn = len(found.tail)
    for seq, record in enumerate(found.records):
        if record.type == TORN:
            assert (folder / record.data["file"]).stat().st_size == record.data["bytes"] > 0
            torn += record.data["bytes"]
        else:
            assert record.data == {"n": seq, "text": log_writer.text(seq, size)}
    return torn


def kill_again_and_again(nursery: Helper, folder: Path, size: int, kills: int) -> int:
    chance, torn = random.Random(size), 0  # bytes
    for number in range(kills):
        if number % 10 == 0:
            place = folder / f"{size}-{number}"
            place.mkdir()
        flushed = kill_while_writing(nursery, place, size, chance.uniform(0, 0.03) if number % 3 == 0 else None)
        torn = max(torn, check(place, size, flushed))
        if number % 10 == 9:
            shutil.rmtree(place)
    return torn


@pytest.mark.parametrize("size", SIZES)
def test_what_was_flushed_survives_a_kill(nursery: Helper, tmp_path: Path, size: int) -> None:
    """Killed in the middle of writing and taken up again: every flushed event is there, and none is altered."""
    kill_again_and_again(nursery, tmp_path, size, 3)


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_what_was_flushed_survives_fifty_kills(nursery: Helper, tmp_path: Path, size: int) -> None:
    """The same, fifty times for each size."""
    torn = kill_again_and_again(nursery, tmp_path, size, 50)
    assert torn > 0 or size < SIZES[-1]  # the kills did hit in the middle of a write


def injected(path: Path, *faults: str) -> Helper:
    assert STRACE is not None
    injects = [word for fault in faults for word in ("-e", f"inject={fault}")]
    return Helper("fails", str(path), before=(STRACE, "-f", "-qq", "-o", "/dev/null", *injects))


@needs_strace
def test_an_fsync_that_fails_once(tmp_path: Path) -> None:
    """The kernel reports a lost write once and then says "ok": the log believes the first answer, and still loads."""
    path = tmp_path / "session.jsonl"
    with injected(path, "fdatasync:error=EIO:when=2") as helper:
        heard = [helper.hear() for _ in range(3)]
    assert heard[0] == "flushed"
    assert all(line.startswith(f"failed: {path}: could not be written") for line in heard[1:])
    assert "Input/output error" in heard[1]
    assert [record.data for record in read(path).records] == [{"n": 0}]  # what was not promised is cut off
    rewritten_before_it_goes_on(path)


@needs_strace
def test_an_fsync_that_fails_and_bytes_that_stay(tmp_path: Path) -> None:
    """Where what failed cannot even be cut off, readers see it; the next owner stores it anew first."""
    path = tmp_path / "session.jsonl"
    with injected(path, "fdatasync:error=EIO:when=2", "ftruncate:error=EIO") as helper:
        assert [helper.hear()[:6] for _ in range(3)] == ["flushe", "failed", "failed"]
    assert [record.data for record in read(path).records] == [{"n": 0}, {"n": 1}]
    rewritten_before_it_goes_on(path)


def rewritten_before_it_goes_on(path: Path) -> None:
    """Assert that the next owner trusts no byte of the file: all of it is written and synced before its own first."""
    before, written = read(path).records, path.stat().st_ino
    with Log.open(path) as log:
        log.append([("x", {"n": "new"})])
        log.flush()
        assert path.stat().st_ino != written
    assert read(path).records[:-1] == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["session.jsonl", "session.lock"]
    written = path.stat().st_ino
    with Log.open(path) as log:  # that one closed it whole, so now there is nothing to mistrust
        log.append([("x", {"n": "newer"})])
        log.flush()
    assert path.stat().st_ino == written


def test_killed_between_a_write_and_its_fsync(tmp_path: Path) -> None:
    """Nobody has heard of a write that failed by then: the next owner stores what it finds before it goes on."""
    path = tmp_path / "session.jsonl"
    program = (
        "import os, sys, pathlib; from workers.log import Log\n"
        "log = Log.open(pathlib.Path(sys.argv[1])); log.append([('x', {'n': 0})]); log.flush()\n"
        "os.fdatasync = lambda fd: os._exit(9)\n"
        "log.append([('x', {'n': 1})]); log.flush()"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 9
    assert unsure(path).exists()
    rewritten_before_it_goes_on(path)


def test_what_cannot_be_stored_anew(tmp_path: Path) -> None:
    """A log whose bytes were there a moment ago and are not any more is refused: nothing takes its place."""
    path = tmp_path / "session.jsonl"
    with Log.open(path) as log:
        log.append([("x", {})])
        log.flush()
    unsure(path).touch()
    with Log.open(path) as log:
        path.write_bytes(b"")
        log.append([("y", {})])
        with pytest.raises(LogWriteFailed, match="has changed since it was opened"):
            log.flush()
    assert path.read_bytes() == b""


@needs_strace
def test_killed_at_the_rename(tmp_path: Path) -> None:
    """A log begins with all of its first flush or with nothing; the next owner does not care what was left."""
    path = tmp_path / "session.jsonl"
    with injected(path, "rename,renameat,renameat2:signal=KILL") as helper:
        assert helper.hear() == ""
        assert helper.process.wait() in (-9, 137)
    assert read(path).records == ()
    with Log.open(path) as log:
        log.append([("x", {})])
        log.flush()
    assert [record.type for record in read(path).records] == ["x"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["session.jsonl", "session.lock"]


def test_a_long_first_flush_on_a_full_disk_leaves_nothing(tiny_disk: Path) -> None:
    """What a log would begin with does not fit: a typed error, and no half of it to be taken for a session."""
    path = tiny_disk / "session.jsonl"
    with Log.open(path) as log:
        log.append([("x", {"text": "x" * 200_000})])
        with pytest.raises(LogWriteFailed, match="No space left"):
            log.flush()
    assert read(path) == read(tiny_disk / "nothing")


def test_interrupted_in_the_middle_of_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between two short writes: the half line is cut off, and nothing more is written by the same owner."""
    path = tmp_path / "session.jsonl"
    write, calls = os.write, [0]

    def interrupted(fd: int, data: Any) -> int:
        calls[0] += 1
        if calls[0] > 1:
            raise KeyboardInterrupt
        return write(fd, bytes(data[:20]))

    with Log.open(path) as log:
        log.append([("x", {})])
        log.flush()
        monkeypatch.setattr(os, "write", interrupted)
        log.append([("y", {})])
        with pytest.raises(KeyboardInterrupt):
            log.flush()
        monkeypatch.undo()
        with pytest.raises(LogWriteFailed, match="interrupted"):
            log.append([("z", {})])
        with pytest.raises(LogWriteFailed, match="interrupted"):
            log.flush()
    assert [record.type for record in read(path).records] == ["x"]
    assert read(path).tail == b""


def test_several_appends_one_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A barrier costs one write and one fsync, however much was appended before it."""
    done: list[str] = []
    write, sync = os.write, os.fdatasync
    with Log.open(tmp_path / "session.jsonl") as log:
        log.append([("x", {})])
        log.flush()
        monkeypatch.setattr(os, "write", lambda fd, data: (done.append("write"), write(fd, data))[1])
        monkeypatch.setattr(os, "fdatasync", lambda fd: (done.append("sync"), sync(fd))[1])
        for _ in range(100):
            log.append([("x", {}), ("y", {})])
        log.flush()
        monkeypatch.undo()
    assert done == ["write", "sync"]


def line(seq: int) -> bytes:
    return encode(Record(seq, "2026-11-17T20:00:00.000+00:00", "x", {}))


def test_set_aside_and_then_killed(tmp_path: Path) -> None:
    """Torn bytes that were set aside just before a crash are spoken of by the next owner, and never overwritten."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(line(0) + b'{"se')
    (tmp_path / f"session.jsonl.torn-{len(line(0))}").write_bytes(b"older")
    with Log.open(path) as log:
        log.flush()
    noted = [record.data for record in read(path).records if record.type == TORN]
    assert [(tmp_path / facts["file"]).read_bytes() for facts in noted] == [b"older", b'{"se']
    assert [facts["bytes"] for facts in noted] == [5, 4]
    with Log.open(path) as log:
        assert len(log.records) == 3


@pytest.mark.parametrize("tail", [b"\xc3", '{"seq":1,"text":"é'.encode()[:-1], b'{"seq":1', b"\0" * 4096, b"}\0\n\0"])
def test_tails_of_every_kind(tmp_path: Path, tail: bytes) -> None:
    """Half a character, half a line, NUL padding, or a mixture: no reader minds, and the next owner goes on."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(line(0) + tail)
    assert read(path).tail == tail
    with Log.open(path) as log:
        log.append([("x", {})])
        log.flush()
    assert [record.type for record in read(path).records] == ["x", TORN, "x"]


# -- the right to write ------------------------------------------------------------------------------------------------


def race(folder: Path, times: int) -> None:
    """Two processes open one log at once, and hold on until both have tried."""
    with ExitStack() as opened:
        both = [opened.enter_context(Helper("contender")) for _ in range(2)]
        pids = [str(helper.process.pid) for helper in both]
        for number in range(times):
            for helper in both:
                helper.say(str(folder / str(number % 20) / "session.jsonl"))
            heard = [helper.hear() for helper in both]
            assert sorted(words.split()[0] for words in heard) == ["owned", "won"]
            winner = heard.index("won")
            said = heard[1 - winner].split()
            if number < 20:  # later the file also has an earlier holder's note, for the moment until it is replaced
                assert said[1:2] in ([pids[winner]], ["None"])
            for helper in both:
                helper.say("")
            assert [helper.hear() for helper in both] == ["let go"] * 2


def test_one_of_two_wins(tmp_path: Path) -> None:
    """Of two processes that open a log for writing at the same moment exactly one gets it, fifty times over."""
    race(tmp_path, 50)


@pytest.mark.soak
def test_one_of_two_wins_a_thousand_times(tmp_path: Path) -> None:
    """The same, a thousand times over."""
    race(tmp_path, 1000)


def test_the_refusal_names_the_holder(tmp_path: Path) -> None:
    """Who is refused learns the host, the process and since when, in words and as facts."""
    path = tmp_path / "session.jsonl"
    with Log.open(path, note="worker 7"), pytest.raises(LogAlreadyOwned) as caught:
        Log.open(path)
    error = caught.value
    assert (error.host, error.pid) == (socket.gethostname(), os.getpid())
    assert abs(datetime.fromisoformat(error.since).timestamp() - time.time()) < 60
    assert all(words in str(error) for words in ("worker 7", error.host, str(error.pid), error.since))


def test_an_unreadable_note_is_no_trouble(tmp_path: Path) -> None:
    """The note is for display: whatever stands there, the refusal is the same."""
    path = tmp_path / "session.jsonl"
    with Log.open(path) as log:
        for note in (b"", b"\xff\xfe pid x on", b"pid 1 on\n"):
            log._lock.path.write_bytes(note)
            with pytest.raises(LogAlreadyOwned) as caught:
                Log.open(path)
            assert (caught.value.pid, caught.value.host, caught.value.since) == (None, "", "")
    assert "another process" in str(LogAlreadyOwned(path, ""))


def test_a_forked_child_has_no_right_to_write(tmp_path: Path) -> None:
    """A child neither writes, nor takes the right from its parent, nor keeps it when the parent has let go."""
    path = tmp_path / "session.jsonl"
    with Helper("forks", str(path)) as helper:
        assert "not to its forked child" in helper.hear()
        with pytest.raises(LogAlreadyOwned, match="parent"):
            Log.open(path)
        helper.say("")
        assert helper.hear() == "parent wrote"
        helper.say("")
        assert helper.hear() == "parent closed"
        with Log.open(path) as log:  # the child is still alive
            assert [record.type for record in log.records] == ["x", "z"]
        helper.say("")
        assert helper.process.wait(10) == 0


async def test_tools_do_not_inherit_it(tmp_path: Path) -> None:
    """No command that an agent runs has the log or its lock among its open files."""
    tree = tmp_path / "tree"
    tree.mkdir()
    with Log.open(tmp_path / "session.jsonl") as log:
        log.append([("x", {})])
        log.flush()
        workspace = Workspace(tree, base_environment(), f"test-{tmp_path}")
        outcome = await built_in()["bash"].run({"command": "ls -l /proc/self/fd /proc/$PPID/fd"}, workspace)
    assert "->" in outcome.content
    assert "session" not in outcome.content
