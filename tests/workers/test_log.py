"""The append-only log: what is promised, what a crash may leave, and what must never be loaded."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers import log as log_module
from workers.errors import LogAlreadyOwned, LogCorrupt, LogError, LogWriteFailed
from workers.log import TORN, Log, Record, encode, read
from worktrees.errors import DiskError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
DATA = st.dictionaries(st.text(), JSON, max_size=3)
BATCH = st.lists(st.tuples(st.text(min_size=1), DATA), max_size=3)


def line(seq: int, kind: str = "note", **data: Any) -> bytes:
    return encode(Record(seq, "2026-11-17T20:00:00.000+00:00", kind, data))


def content(path: Path) -> list[tuple[str, Any]]:
    return [(record.type, record.data) for record in read(path).records]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "unit" / "session.jsonl"


def test_appended_is_readable_here_and_flushed_is_on_disk(path: Path) -> None:
    """`append` makes records readable in this process at once; only `flush` puts them into the file."""
    with Log.open(path) as log:
        first, second = log.append([("a", {"n": 1}), ("b", {"text": "é\n\u2028"})])
        assert (first.seq, second.seq) == (0, 1)
        assert [record.type for record in log.records] == ["a", "b"]
        assert read(path).records == ()
        log.flush()
        assert read(path).records == (first, second)
        assert path.read_bytes().count(b"\n") == 2
        assert path.read_bytes().isascii()


def test_goes_on_where_it_ended(path: Path) -> None:
    """A log that is opened again has its records and counts on from them."""
    with Log.open(path) as log:
        log.append([("a", {})])
        log.flush()
    with Log.open(path) as log:
        assert [record.type for record in log.records] == ["a"]
        assert log.append([("b", {})])[0].seq == 1
        log.flush()
    assert [record.seq for record in read(path).records] == [0, 1]


def test_unflushed_is_lost(path: Path) -> None:
    """What was appended and never flushed was never promised: closing loses it."""
    with Log.open(path) as log:
        log.append([("a", {})])
        log.flush()
        log.append([("b", {})])
    assert content(path) == [("a", {})]


def test_flush_is_durable_before_it_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush writes, then syncs the file; the first one also syncs the directory; an empty one does nothing."""
    done: list[str] = []
    sync, sync_directory = os.fdatasync, log_module.sync_directory
    monkeypatch.setattr(os, "fdatasync", lambda fd: (done.append(f"file {os.fstat(fd).st_size > 0}"), sync(fd)))
    monkeypatch.setattr(log_module, "sync_directory", lambda at: (done.append("directory"), sync_directory(at)))
    with Log.open(path) as log:
        log.flush()
        assert done == []
        for _ in range(2):
            log.append([("a", {})])
            log.flush()
    assert done == ["file True", "directory", "file True"]


def test_a_batch_is_taken_whole_or_not_at_all(path: Path) -> None:
    """A batch with something that is no JSON leaves no trace."""
    with Log.open(path) as log:
        for bad in (float("nan"), object()):
            with pytest.raises((ValueError, TypeError)):
                log.append([("a", {}), ("b", {"bad": bad})])
        assert log.records == []
        log.append([("c", {})])
        log.flush()
    assert content(path) == [("c", {})]


def test_missing_file_is_an_empty_log(path: Path) -> None:
    """Reading what is not there finds nothing and makes nothing."""
    assert read(path).records == ()
    assert not path.parent.exists()


def test_unreadable_file(path: Path) -> None:
    """A log that cannot be read is a LogError that says why."""
    path.mkdir(parents=True)
    with pytest.raises(LogError, match="cannot be read"):
        read(path)


@pytest.mark.parametrize("bad", [1, 2])
def test_a_changed_byte_before_the_tail_is_corruption(path: Path, bad: int) -> None:
    """A complete line that does not match its checksum refuses to load, naming line and offset; so does the last."""
    lines = [line(0), line(1), line(2)]
    lines[bad] = lines[bad].replace(b"note", b"nose")
    path.parent.mkdir()
    path.write_bytes(b"".join(lines))
    for load in (read, Log.open):
        with pytest.raises(LogCorrupt) as caught:
            load(path)
        assert (caught.value.line, caught.value.offset) == (bad + 1, len(b"".join(lines[:bad])))
        assert "checksum" in caught.value.reason
        assert caught.value.path == path
    with pytest.raises(LogCorrupt):  # the failed open left no lock behind: not LogAlreadyOwned
        Log.open(path)


@pytest.mark.parametrize(("seqs", "where"), [((0, 2), 2), ((0, 1, 1), 3), ((1,), 1), ((0, 1, 0), 3)])
def test_a_gap_or_repeat_is_corruption(path: Path, seqs: tuple[int, ...], where: int) -> None:
    """Sealed lines whose numbers are not 0, 1, 2 … refuse to load."""
    path.parent.mkdir()
    path.write_bytes(b"".join(line(seq) for seq in seqs))
    with pytest.raises(LogCorrupt) as caught:
        read(path)
    assert caught.value.line == where
    assert "was due" in caught.value.reason


def test_a_bad_line_with_a_good_one_behind_it_is_no_torn_tail(path: Path) -> None:
    """NUL bytes are what a crash leaves only at the end: a whole record behind them means damage."""
    path.parent.mkdir()
    path.write_bytes(line(0) + b"\0" * 20 + b"\n" + line(1))
    with pytest.raises(LogCorrupt) as caught:
        read(path)
    assert caught.value.line == 2


SMALL = [line(0, text="one"), line(1, text="two\n"), line(2)]


@pytest.mark.parametrize("padding", [b"", b"\0\0\0\0", b"\0\0\n", b"\0" * 5000])
def test_torn_at_every_byte(tmp_path: Path, padding: bytes) -> None:
    """Cut anywhere, with or without NUL padding: whole lines load, the rest is set aside before the first new line."""
    whole = b"".join(SMALL)
    ends = [sum(map(len, SMALL[:count])) for count in range(len(SMALL) + 1)]
    for cut in range(len(whole) + 1):
        path = tmp_path / f"{cut}.jsonl"
        path.write_bytes(whole[:cut] + padding)
        end = max(at for at in ends if at <= cut)
        tail = whole[end:cut] + padding
        found = read(path)
        assert (len(found.records), found.end, found.tail) == (ends.index(end), end, tail)
        with Log.open(path) as log:
            assert path.read_bytes() == whole[:cut] + padding  # nothing is written before the first flush
            log.append([("new", {})])
            log.flush()
        kinds = [record.type for record in read(path).records]
        if not tail:
            assert kinds == ["note"] * len(found.records) + ["new"]
            continue
        assert kinds == ["note"] * len(found.records) + [TORN, "new"]
        facts = read(path).records[-2].data
        assert facts == {"offset": end, "bytes": len(tail), "file": f"{cut}.jsonl.torn-{end}"}
        assert (tmp_path / facts["file"]).read_bytes() == tail
        assert path.read_bytes().startswith(whole[:end])


def test_aside_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The torn bytes are durable in their own file before the log loses them."""
    path.parent.mkdir()
    path.write_bytes(line(0) + b'{"seq"')
    cut = os.ftruncate

    def truncate(fd: int, length: int) -> None:
        assert (path.parent / f"session.jsonl.torn-{length}").read_bytes() == b'{"seq"'
        cut(fd, length)

    monkeypatch.setattr(os, "ftruncate", truncate)
    with Log.open(path) as log:
        log.flush()
    assert [record.type for record in read(path).records] == ["note", TORN]


def test_short_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes seven bytes at a time gets all of them, those of a torn tail included."""
    path.parent.mkdir()
    path.write_bytes(b'{"seq":0,"time":"2026')
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:7])))
    with Log.open(path) as log:
        log.append([("a", {"text": "x" * 1000}), ("b", {})])
        log.flush()
    assert [kind for kind, _ in content(path)] == [TORN, "a", "b"]
    assert (path.parent / "session.jsonl.torn-0").read_bytes() == b'{"seq":0,"time":"2026'


def refused_for_good(log: Log) -> None:
    for _ in range(2):
        with pytest.raises(LogWriteFailed):
            log.flush()
        with pytest.raises(LogWriteFailed):
            log.append([("later", {})])


def test_a_full_disk(tiny_disk: Path) -> None:
    """On a real full disk the flush fails, the log is closed for writing, and what was flushed before stays whole."""
    path = tiny_disk / "session.jsonl"
    with Log.open(path) as log:
        log.append([("a", {})])
        log.flush()
        log.append([("big", {"text": "x" * 200_000})])
        with pytest.raises(LogWriteFailed, match="No space left") as caught:
            log.flush()
        assert caught.value.path == path
        refused_for_good(log)
    assert content(path) == [("a", {})]
    assert read(path).tail == b""  # what did not fit takes no room
    with Log.open(path) as log:
        log.append([("b", {"text": "x" * 100_000})])
        with pytest.raises(LogWriteFailed):
            log.flush()
    assert content(path)[0] == ("a", {})


def test_a_full_disk_after_a_short_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short write and then ENOSPC leave nothing behind: half a line was never promised. The next owner goes on."""
    write, calls = os.write, [0]

    def full(fd: int, data: Any) -> int:
        calls[0] += 1
        if calls[0] > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, bytes(data[:30]))

    with Log.open(path) as log:
        log.append([("a", {})])
        log.flush()
        monkeypatch.setattr(os, "write", full)
        log.append([("b", {"text": "x" * 100})])
        with pytest.raises(LogWriteFailed, match="No space left"):
            log.flush()
        refused_for_good(log)
    monkeypatch.undo()
    assert read(path).tail == b""
    with Log.open(path) as log:
        log.append([("c", {})])
        log.flush()
    assert [kind for kind, _ in content(path)] == ["a", "c"]


def test_a_failed_fsync_is_never_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one failed fsync a second would say "ok" for lost data: no more writes, whatever the disk says then."""
    calls = []

    def fail(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    with Log.open(path) as log:
        log.append([("a", {})])
        with pytest.raises(LogWriteFailed, match="Input/output error"):
            log.flush()
        refused_for_good(log)
    assert len(calls) == 1


def test_a_failed_sync_of_the_directory_counts_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file whose name may not survive is no promise either."""

    def fail(at: Path) -> None:
        message = f"could not flush the directory {at}"
        raise DiskError(message, at)

    monkeypatch.setattr(log_module, "sync_directory", fail)
    with Log.open(path) as log:
        log.append([("a", {})])
        with pytest.raises(LogWriteFailed, match="could not flush the directory"):
            log.flush()
        monkeypatch.undo()
        refused_for_good(log)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A log below something that is no directory cannot be opened for writing, and says so."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LogWriteFailed, match="cannot be opened"):
        Log.open(tmp_path / "file" / "session.jsonl")


def test_one_writer(path: Path) -> None:
    """A second writer is refused with the first one's note; reading goes on; afterwards the right is free again."""
    with Log.open(path, note="worker 7") as log:
        log.append([("a", {})])
        log.flush()
        with pytest.raises(LogAlreadyOwned, match="worker 7") as caught:
            Log.open(path)
        assert "worker 7" in caught.value.holder
        assert content(path) == [("a", {})]
    Log.open(path).close()


def test_one_writer_among_processes(path: Path) -> None:
    """The right to write is between processes, and dies with its holder."""
    program = (
        "import sys, pathlib; from workers.log import Log\n"
        "log = Log.open(pathlib.Path(sys.argv[1]), note='elsewhere'); print('ok', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ok\n"
        with pytest.raises(LogAlreadyOwned, match="elsewhere"):
            Log.open(path)
        other.kill()
    Log.open(path).close()


def test_readers_never_write(path: Path) -> None:
    """Reading a torn log changes neither it nor its folder."""
    path.parent.mkdir()
    path.write_bytes(line(0) + b"torn")

    def seen() -> Any:
        times = (path.stat().st_mtime_ns, path.parent.stat().st_mtime_ns)
        return path.read_bytes(), times, list(path.parent.iterdir())

    before = seen()
    read(path)
    assert seen() == before


def test_threads_append_and_flush(path: Path) -> None:
    """Threads that append and flush at once get contiguous numbers, and everything flushed is there in order."""
    with Log.open(path) as log:

        def work(name: int) -> None:
            for number in range(25):
                log.append([("x", {"by": name, "n": number}), ("y", {"by": name, "n": number})])
                log.flush()

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        accepted = tuple(log.records)
    records = read(path).records
    assert records == accepted
    assert len(records) == 200
    assert all(a.data == b.data for a, b in zip(records[::2], records[1::2], strict=True))  # batches stay together


def test_closed_is_closed(path: Path) -> None:
    """A closed log takes nothing more; closing twice is fine."""
    log = Log.open(path)
    log.close()
    log.close()
    with pytest.raises(LogWriteFailed, match="is closed"):
        log.append([("a", {})])


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(BATCH, min_size=1, max_size=4))
def test_round_trip(batches: list[list[tuple[str, Any]]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever JSON was appended is read back as it was, by this process and by another."""
    path = tmp_path_factory.mktemp("log") / "a.jsonl"
    with Log.open(path) as log:
        for batch in batches:
            log.append(batch)
            log.flush()
        assert tuple(log.records) == read(path).records
    assert content(path) == [pair for batch in batches for pair in batch]


@settings(max_examples=150, deadline=None)
@given(
    batch=st.lists(st.tuples(st.text(min_size=1), DATA), min_size=1, max_size=4),
    where=st.floats(0, 1, exclude_max=True),
    byte=st.integers(0, 255),
)
def test_no_changed_byte_is_ever_believed(
    batch: list[tuple[str, Any]], where: float, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With one byte changed anywhere, what loads is a prefix of what was written, or nothing at all."""
    path = tmp_path_factory.mktemp("log") / "a.jsonl"
    lines = [line(seq, kind, data=data) for seq, (kind, data) in enumerate(batch)]
    whole = bytearray(b"".join(lines))
    at = int(where * len(whole))
    changed = whole[at] != byte
    whole[at] = byte
    path.write_bytes(whole)
    hit = next(index for index in range(len(lines)) if at < sum(map(len, lines[: index + 1])))
    corrupt, records = None, ()
    try:
        records = read(path).records
    except LogCorrupt as error:
        corrupt = error.line
    if corrupt is not None:
        assert changed
        assert corrupt == hit + 1
        return
    good = lines[:hit] if changed else lines
    assert [encode(record) for record in records] == good
