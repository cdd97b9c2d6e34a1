"""The journal: typed entries, flushed before anything is done, readable by every later version."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from entries import NIGHT, asked, merged, ordered, reported, started, verdict

from dispatcher import journal as j
from dispatcher.errors import EngineError
from dispatcher.revisions import Splice
from workers.log import Log

ENTRIES = [
    j.NightStarted(night=NIGHT, title="Ours", base="b" * 40, base_name="main"),
    started(),
    j.Verified(stage="base", tree="t", commit="c", command="true", passed=True, seconds=0.1),
    ordered("a"),
    j.Lost(unit="a", attempt=1, epoch=1, claimed=True, step=3),
    j.Spent(unit="a", attempt=1, cost=Decimal("0.25")),
    reported(verdict("a", "pass")),
    reported(verdict("a", "block", question="Which?", pause_seq=7), "too late"),
    j.MergeIntent(unit="a", attempt=1, ref="refs/heads/x", old=None, new="n" * 40, tree="t"),
    merged("a"),
    j.MergeDropped(unit="a"),
    j.MergeFailed(unit="a", attempt=1, why="conflict", note="in x"),
    asked("retry", "a"),
    j.Edited(obeyed=["x"], refused=[], retried=["a"]),
    j.Written(rev=1, text="# Loop State: ünïcode\n", moves=["a: open → passed"]),
    j.Written(rev=2, moves=["a: open → passed"], change=(Splice(at=3, cut=1, put=("- a",)),)),
    j.StateCommitted(ref="refs/heads/x", old="o" * 40, new="n" * 40, is_done=False),
    j.Archived(text="# Loop State: x\n", units=["a"], left="# Loop State: x\n"),
    j.RunEnded(run=1, reason="done", untouched=["b"]),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "night" / "journal.jsonl"


def write(path: Path) -> None:
    journal = j.Journal.open(path)
    journal.write(*ENTRIES)
    journal.close()


def test_every_entry_comes_back_as_it_was_written(path: Path) -> None:
    """For the next writer and for a cold reader, who also gets the times."""
    write(path)
    assert [entry for _, entry in j.read_journal(path)] == ENTRIES
    again = j.Journal.open(path)
    assert again.entries == ENTRIES
    again.close()
    assert {type(entry) for entry in ENTRIES} == set(j._Entry.__subclasses__()) - {j.Unknown}


def test_an_absent_journal_is_empty_for_a_reader(path: Path) -> None:
    """Nothing has happened yet, and reading makes no file."""
    assert j.read_journal(path) == []
    assert not path.exists()


def test_only_one_writer(path: Path) -> None:
    """A second one is told that the journal is taken."""
    journal = j.Journal.open(path)
    with pytest.raises(EngineError) as caught:
        j.Journal.open(path)
    assert caught.value.component == "journal"
    journal.close()


def test_what_is_written_is_on_disk_when_it_returns(path: Path) -> None:
    """The line is there while the writer still has it open."""
    journal = j.Journal.open(path)
    journal.write(ordered("a"))
    assert json.loads(path.read_text().splitlines()[0])["data"]["unit"] == "a"
    journal.close()


def test_an_entry_of_a_newer_version_is_carried_as_a_stranger(path: Path) -> None:
    """It is neither lost nor an error."""
    log = Log.open(path)
    log.append([("weather", {"rain": True}), ("order", ordered("a").model_dump(mode="json", exclude={"kind"}))])
    log.flush()
    log.close()
    assert [entry for _, entry in j.read_journal(path)] == [j.Unknown(name="weather"), ordered("a")]


def test_a_known_entry_with_wrong_data_is_named_by_its_line(path: Path) -> None:
    """Line and field, so that somebody can look."""
    log = Log.open(path)
    log.append([("order", {"unit": "a"})])
    log.flush()
    log.close()
    for reading in (lambda: j.read_journal(path), lambda: j.Journal.open(path)):
        with pytest.raises(EngineError, match=r"line 1.*attempt"):
            reading()


def test_the_right_to_write_is_given_back_when_the_journal_is_damaged(path: Path) -> None:
    """So that the message of the second try is about the damage again, not about a lock."""
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b"here", b"hare"), *lines[2:]]))
    for _ in range(2):
        with pytest.raises(EngineError, match="line 2"):
            j.Journal.open(path)
