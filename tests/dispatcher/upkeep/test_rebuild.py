"""The state file from the journal, and nobody lost on the way."""

from pathlib import Path

import pytest
from entries import NIGHT, merged, ordered, reported
from old_nights import OldNight, closing, started, state, wrote

from dispatcher.errors import BadInput
from dispatcher.home import Home
from dispatcher.state import Bucket, read, render
from dispatcher.upkeep.rebuild import rebuild, units_in


@pytest.fixture
def night(tmp_path: Path) -> OldNight:
    made = OldNight(Home(tmp_path / "home"))
    made.journal(started(), wrote(1, open="a b c"), ordered("a"), reported(closing("a", "pass")), merged("a"))
    made.journal(ordered("b"), reported(closing("b", "fail", note="red")))
    return made


def test_the_last_text_and_what_is_due(night: OldNight, tmp_path: Path) -> None:
    """A file that is gone is written again: what passed is in passed, what failed in tried, under a new revision."""
    path = tmp_path / "checkout" / "state.md"
    done = rebuild(night.home, NIGHT, path, lambda _: 3)
    found, text = read(path)
    assert (found.ids(Bucket.passed), found.ids(Bucket.tried), found.ids(Bucket.open)) == (("a",), ("b",), ("c",))
    assert "b  red (1 of 3)" in text
    assert (found.night, found.rev, done.kept) == (NIGHT, 2, None)
    assert night.look().ledger.texts[2] == text


def test_units_that_only_the_file_has_go_to_open(night: OldNight, tmp_path: Path) -> None:
    """However broken it is; its text is kept, byte for byte."""
    path = tmp_path / "state.md"
    text = b"## nonsense\n- a\n- extra: Do more\n -  other  a note\n- \xff\n"
    path.write_bytes(text)
    done = rebuild(night.home, NIGHT, path)
    found, _ = read(path)
    assert done.only_in_file == ("extra", "other")
    assert found.ids(Bucket.open) == ("c", "extra", "other")
    assert found.typed_goals == {"extra": "Do more"}
    assert done.kept is not None
    assert done.kept.read_bytes() == text


def test_doing_it_twice_changes_nothing(night: OldNight, tmp_path: Path) -> None:
    """A file that says what the journal says keeps its revision."""
    path = tmp_path / "state.md"
    rebuild(night.home, NIGHT, path)
    before = path.read_bytes()
    assert rebuild(night.home, NIGHT, path).kept is None
    assert path.read_bytes() == before


def test_without_a_journal_nothing_is_touched(tmp_path: Path) -> None:
    """There is nothing to rebuild from."""
    path = tmp_path / "state.md"
    path.write_text("mine")
    with pytest.raises(BadInput, match="has no journal"):
        rebuild(Home(tmp_path), NIGHT, path)
    assert path.read_text() == "mine"


def test_units_of_a_whole_file_come_with_their_goals() -> None:
    """A file that can be read is read as any run reads it."""
    text = render(state(1, open="a", tried="b")).replace("- a\n", "- a: Do it\n")
    assert units_in(text) == {"a": "Do it", "b": ""}
