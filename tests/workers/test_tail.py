"""A log that somebody else is writing, followed record by record."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.errors import LogError
from workers.log import Log, Record, encode
from workers.tail import Tail

LINES = [encode(Record(seq, "t", "type", {"seq": seq, "words": "é\n"})) for seq in range(4)]


def test_each_record_is_seen_once(tmp_path: Path) -> None:
    """From a log that is not there yet to one that a crash cut off and its next owner mended."""
    path = tmp_path / "log.jsonl"
    tail = Tail(path)
    assert tail.new() == []
    with Log.open(path) as log:
        log.append([("a", {}), ("b", {})])
        assert tail.new() == []  # not flushed
        log.flush()
        assert [record.type for record in tail.new()] == ["a", "b"]
        assert tail.new() == []
    with path.open("ab") as file:
        file.write(b'{"seq":2,"time"')
    assert tail.new() == []
    with Log.open(path) as log:
        log.append([("c", {})])
        log.flush()
        assert [record.type for record in tail.new()] == ["log/torn", "c"]


@given(st.lists(st.integers(0, sum(map(len, LINES))), max_size=6))
def test_wherever_it_looks_nothing_is_lost_or_told_twice(cuts: list[int]) -> None:
    """The writer's bytes come in any portions."""
    import tempfile

    whole = b"".join(LINES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        tail = Tail(path)
        seen: list[int] = []
        for end in [*sorted(cuts), len(whole)]:
            path.write_bytes(whole[:end])
            seen += [record.seq for record in tail.new()]
    assert seen == [0, 1, 2, 3]


def test_a_gap_is_an_error_and_a_bad_line_waits(tmp_path: Path) -> None:
    """A record out of its place cannot be shown as if nothing were missing."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(LINES[0] + b"\0\0\n")
    tail = Tail(path)
    assert [record.seq for record in tail.new()] == [0]
    assert tail.new() == []
    path.write_bytes(LINES[0] + LINES[2])
    with pytest.raises(LogError, match="seq 2 where 1"):
        tail.new()
