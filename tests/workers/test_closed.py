"""Logs that nobody writes to any more: compressed, and read as if nothing had happened."""

from pathlib import Path

import pytest

from workers.closed import compress, is_stored, packed, read_either, size
from workers.errors import LogCorrupt, LogError
from workers.log import Log, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "session.jsonl"
    with Log.open(path) as log:
        log.append([("a", {"words": "same " * 500}), ("b", {})])
        log.flush()
    return path


def test_an_archive_reads_like_the_log(path: Path) -> None:
    """And is smaller; the plain file is gone, and doing it twice changes nothing."""
    whole, before = read(path), size(path)
    saved = compress(path)
    assert (path.exists(), is_stored(path)) == (False, True)
    assert read_either(path) == whole
    assert size(path) == before - saved < before
    assert compress(path) == 0


def test_the_plain_file_wins(path: Path) -> None:
    """A crash between the archive and the removal leaves both."""
    whole, data = read(path), path.read_bytes()
    compress(path)
    packed(path).write_bytes(b"half an archive")
    path.write_bytes(data)
    assert read_either(path) == whole
    compress(path)
    assert read_either(path) == whole


def test_what_is_damaged_is_not_touched(path: Path, tmp_path: Path) -> None:
    """A torn or corrupt log stays as it is; a damaged archive is an error, not an empty log; no log is an empty one."""
    data = path.read_bytes()
    for broken in (data + b"{", data.replace(b'"b"', b'"c"')):
        path.write_bytes(broken)
        with pytest.raises(LogError):
            compress(path)
        assert path.read_bytes() == broken
    path.write_bytes(data)
    compress(path)
    archive = packed(path).read_bytes()
    packed(path).write_bytes(archive[: len(archive) // 2])
    with pytest.raises(LogError, match="cannot be unpacked"):
        read_either(path)
    assert read_either(tmp_path / "none").records == ()


def test_an_archive_is_checked_line_by_line(path: Path) -> None:
    """Its checksums count as those of a plain log do."""
    import gzip

    data = path.read_bytes().replace(b'"b"', b'"c"')
    path.unlink()
    packed(path).write_bytes(gzip.compress(data))
    with pytest.raises(LogCorrupt, match=r"line 2 .* checksum"):
        read_either(path)


def test_a_log_that_is_being_written_stays(path: Path) -> None:
    """Its writer was only taken for dead: what it appends would go to a file that nobody finds."""
    with Log.open(path) as log:
        with pytest.raises(LogError, match="is being written"):
            compress(path)
        log.append([("c", {})])
        log.flush()
    assert [record.type for record in read_either(path).records] == ["a", "b", "c"]
