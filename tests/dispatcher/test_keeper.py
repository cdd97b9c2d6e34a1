"""The one writer of the state file: reads fresh, obeys what a person changed, and loses nobody's words."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from entries import merged

from dispatcher.book import Book
from dispatcher.errors import EngineError
from dispatcher.journal import Edited, NightStarted, Written
from dispatcher.keeper import Keeper
from dispatcher.ledger import Ledger
from dispatcher.revisions import between
from dispatcher.state import Bucket, State, parse, read, render

NIGHT = "1130-k3v"
FIRST = State("Ours", NIGHT, 1).add("a").add("b").add("c")


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    opened = Book.open(tmp_path / "journal.jsonl")
    opened.note(
        NightStarted(night=NIGHT, title="Ours", base="0" * 40, base_name="main"), Written(rev=1, text=render(FIRST))
    )
    yield opened
    opened.close()


@pytest.fixture
def keeper(book: Book, tmp_path: Path) -> Keeper:
    path = tmp_path / "state.md"
    path.write_text(render(FIRST))
    return Keeper(path, book, FIRST)


def edits(book: Book) -> list[Edited]:
    return [entry for entry in book.journal.entries if isinstance(entry, Edited)]


def edit(keeper: Keeper, change: Callable[[str], str]) -> None:
    keeper.path.write_text(change(keeper.path.read_text()))


def passing(unit: str) -> Callable[[State], State]:
    return lambda state: state.move(unit, Bucket.passed)


def test_a_change_is_journalled_before_it_is_written(keeper: Keeper, book: Book) -> None:
    """The text of the next revision, with the moves that led to it."""
    keeper.update(passing("a"))
    written = book.journal.entries[-1]
    assert (written.rev, written.moves) == (2, ["a: open → passed"])
    assert keeper.path.read_text() == written.text
    assert read(keeper.path)[0].rev == 2


def test_no_change_writes_nothing(keeper: Keeper, book: Book) -> None:
    """Neither the file nor the journal."""
    before = keeper.path.stat().st_mtime_ns, len(book.journal.entries)
    keeper.update(lambda state: state)
    assert (keeper.path.stat().st_mtime_ns, len(book.journal.entries)) == before


def test_when_the_journal_cannot_be_written_the_file_keeps_its_old_content(
    keeper: Keeper, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk costs the change, never the file."""

    def full(*_: Any) -> None:
        raise EngineError("no space", component="disk")

    monkeypatch.setattr(book.journal, "write", full)
    with pytest.raises(EngineError):
        keeper.update(passing("a"))
    assert keeper.path.read_text() == render(FIRST)


def test_an_edit_is_obeyed_and_journalled(keeper: Keeper, book: Book) -> None:
    """What it asked for is in the journal in words and by unit, and the file is rewritten under a new revision."""
    edit(keeper, lambda text: text.replace("- b\n", "").replace("## passed\n", "## passed\n- b\n"))
    assert keeper.take_in()
    keeper.update(lambda state: state)
    (asked,) = edits(book)
    assert (asked.waived, asked.cancelled, asked.refused) == (["b"], [], [])
    assert read(keeper.path)[0] == keeper.state
    assert keeper.state.bucket_of("b") is Bucket.passed
    assert keeper.state.rev == 2


def test_an_edit_is_obeyed_once(keeper: Keeper, book: Book, tmp_path: Path) -> None:
    """Neither another edit of the file nor a new dispatcher finds the same request in it again."""
    edit(keeper, lambda text: text.replace("- b\n", "").replace("## blocked\n", "## blocked\n- b\n"))
    keeper.update(lambda state: state)
    edit(keeper, lambda text: text.replace("- c\n", ""))
    keeper.update(lambda state: state)
    again = Keeper(keeper.path, book, parse(book.ledger.texts[book.ledger.rev]))
    again.update(lambda state: state)
    assert [entry.obeyed for entry in edits(book)] == [
        ["Moved(id='b', bucket=<Bucket.blocked: 'blocked'>, note='')"],
        ["Cancelled(id='c')"],
    ]


def test_an_old_file_that_comes_back_asks_for_nothing(keeper: Keeper, book: Book) -> None:
    """An editor's or `git stash`'s older copy is compared with the revision that it names (rule 20)."""
    old = keeper.path.read_text()
    keeper.update(passing("a"))
    keeper.path.write_text(old)
    keeper.update(lambda state: state)
    assert edits(book) == []
    assert read(keeper.path)[0].bucket_of("a") is Bucket.passed
    assert read(keeper.path)[0].rev == 3


def test_an_edit_of_an_old_file_asks_only_for_what_was_edited(keeper: Keeper, book: Book) -> None:
    """The person removed c while they still saw a in open: a stays passed."""
    old = keeper.path.read_text()
    keeper.update(passing("a"))
    keeper.path.write_text(old.replace("- c\n", ""))
    keeper.update(lambda state: state)
    assert [entry.cancelled for entry in edits(book)] == [["c"]]
    assert keeper.state.ids(Bucket.passed) == ("a",)
    assert keeper.state.ids(Bucket.open) == ("b",)


def test_what_has_passed_stays_passed_whatever_is_typed(keeper: Keeper, book: Book) -> None:
    """The refusal is journalled with its reason, and the file is put right."""
    book.ledger.unit("a").merged = "0" * 40
    keeper.update(passing("a"))
    edit(keeper, lambda text: text.replace("- a\n", "").replace("## open\n", "## open\n- a\n"))
    keeper.update(lambda state: state)
    assert edits(book)[0].refused == ["a has passed, and what passed stays passed"]
    assert read(keeper.path)[0].bucket_of("a") is Bucket.passed


@pytest.mark.parametrize(
    "breaking",
    [
        lambda text: text.replace("## open", "## opne"),
        lambda text: text.replace("rev 1", "rev 7"),
        lambda text: text.replace(NIGHT, "1129-abc"),
        lambda text: text.replace("Night", "night"),
    ],
    ids=["unparsable", "unknown revision", "another night", "no revision"],
)
def test_a_file_that_cannot_be_compared_is_never_overwritten(
    keeper: Keeper, book: Book, breaking: Callable[[str], str]
) -> None:
    """Hand-out stops, the line is named, the bytes stay; when it is mended, all goes on."""
    good = keeper.path.read_text()
    edit(keeper, breaking)
    broken = keeper.path.read_bytes()
    assert not keeper.take_in()
    keeper.update(passing("a"))
    assert keeper.path.read_bytes() == broken
    assert keeper.broken is not None
    assert keeper.broken.line is not None
    assert edits(book) == []
    keeper.path.write_text(good)
    keeper.update(passing("a"))
    assert keeper.broken is None
    assert read(keeper.path)[0].ids(Bucket.passed) == ("a",)


class Slipping:
    """Somebody saves the file in the moment between our reading and our writing."""

    def __init__(self, book: Book, path: Path, text: str) -> None:
        self._book, self._path, self._text = book, path, text

    @property
    def ledger(self) -> Ledger:
        return self._book.ledger

    def note(self, *entries: Any) -> None:
        self._book.note(*entries)
        if any(isinstance(entry, Written) for entry in entries) and self._text:
            other = self._path.with_name("other")
            other.write_text(self._text)
            other.replace(self._path)
            self._text = ""


def test_an_edit_that_slips_in_between_is_not_lost(keeper: Keeper, book: Book) -> None:
    """What the write replaced is compared with what was read, and obeyed (rule 19)."""
    theirs = keeper.path.read_text().replace("- c\n", "").replace("## open\n", "## open\n- d: Do d.\n")
    slipped = Keeper(keeper.path, Slipping(book, keeper.path, theirs), FIRST)  # type: ignore[arg-type]
    slipped.update(passing("a"))
    slipped.update(lambda state: state)
    state = parse(keeper.path.read_text())
    assert state.ids(Bucket.passed) == ("a",)
    assert sorted(state.ids(Bucket.open)) == ["b", "d"]
    assert state.typed_goals == {"d": "Do d."}
    assert [entry.cancelled for entry in edits(book)] == [["c"]]


def test_a_broken_file_that_slips_in_between_is_put_back(keeper: Keeper, book: Book) -> None:
    """Its owner finds it as they left it; the change is written once it is mended."""
    theirs = keeper.path.read_text().replace("## open", "## opne")
    slipped = Keeper(keeper.path, Slipping(book, keeper.path, theirs), FIRST)  # type: ignore[arg-type]
    slipped.update(passing("a"))
    assert keeper.path.read_text() == theirs
    assert slipped.broken is not None
    keeper.path.write_text(render(FIRST))
    slipped.update(lambda state: state)
    assert read(keeper.path)[0].ids(Bucket.passed) == ("a",)


def left_beside(keeper: Keeper, text: str) -> Path:
    """As a run leaves it that was killed in the middle of `exchange_atomic`."""
    path = keeper.path.with_name(".state.md.4711.0123abcd.tmp")
    path.write_text(text)
    return path


def test_an_edit_that_a_killed_run_had_swapped_out_is_obeyed_by_the_next(keeper: Keeper, book: Book) -> None:
    """It slipped in before the exchange, and nobody had looked at it yet: it must not be lost (rule 19)."""
    slipped_in = keeper.path.read_text().replace("- b\n", "").replace("## blocked\n", "## blocked\n- b  Wait.\n")
    keeper.update(passing("a"))
    left = left_beside(keeper, slipped_in)

    keeper.take_left_over()

    assert keeper.state.bucket_of("b") is Bucket.blocked
    assert keeper.state.bucket_of("a") is Bucket.passed
    assert read(keeper.path)[0] == keeper.state
    assert len(edits(book)) == 1
    assert not left.exists()


@pytest.mark.parametrize("share", [0.3, 0.9, 1.0])
def test_what_a_killed_run_had_written_itself_is_no_edit(keeper: Keeper, book: Book, share: float) -> None:
    """Whole or half: the journal has that text. A half one must not look like somebody had deleted lines."""
    keeper.update(passing("a"))
    text = keeper.path.read_text()
    left = left_beside(keeper, text[: int(len(text) * share)])

    keeper.take_left_over()

    assert edits(book) == []
    assert keeper.path.read_text() == text
    assert not left.exists()


def test_what_is_left_over_stays_while_the_state_file_is_broken(keeper: Keeper, book: Book) -> None:
    """Nothing can be written then, so nothing may be forgotten."""
    slipped_in = keeper.path.read_text().replace("- b\n", "").replace("## blocked\n", "## blocked\n- b  Wait.\n")
    left = left_beside(keeper, slipped_in)
    edit(keeper, lambda text: text.replace("## open", "## opne"))
    keeper.take_left_over()
    assert left.exists()
    edit(keeper, lambda text: text.replace("## opne", "## open"))
    keeper.take_left_over()
    assert read(keeper.path)[0].bucket_of("b") is Bucket.blocked
    assert not left.exists()


def test_what_is_saved_into_a_replaced_file_is_not_lost(keeper: Keeper, book: Book) -> None:
    """An editor had the file open, and saved in place after our replace: looked at again a tick later (rule 19)."""
    theirs = keeper.path.read_text().replace("- c\n", "")
    with keeper.path.open("r+") as editor:
        keeper.update(passing("a"))
        editor.write(theirs)
        editor.truncate()
        editor.flush()
    assert keeper.take_in()  # seen, and perhaps half of it yet
    assert edits(book) == []
    assert keeper.take_in()
    keeper.update(lambda state: state)
    assert [entry.cancelled for entry in edits(book)] == [["c"]]
    state = read(keeper.path)[0]
    assert (state.ids(Bucket.passed), state.ids(Bucket.open)) == (("a",), ("b",))


class Saving(Slipping):
    """Somebody saves in place, and only half of it is there when we replace the file."""

    def __init__(self, book: Book, editor: Any, text: str) -> None:
        super().__init__(book, Path(), text)
        self._editor = editor

    def note(self, *entries: Any) -> None:
        self._book.note(*entries)
        if any(isinstance(entry, Written) for entry in entries) and self._text:
            self._editor.write(self._text)
            self._editor.truncate()
            self._editor.flush()
            self._text = ""


def test_half_a_save_that_was_replaced_is_made_whole(keeper: Keeper, book: Book) -> None:
    """The first half slipped in and was put back unread; the second half went to the replaced file."""
    theirs = keeper.path.read_text().replace("- c\n", "")
    with keeper.path.open("r+") as editor:
        half = Saving(book, editor, theirs[:40])
        slow = Keeper(keeper.path, half, FIRST)  # type: ignore[arg-type]
        slow.update(passing("a"))
        assert slow.broken is not None
        editor.write(theirs[40:])
        editor.flush()
    for _ in range(3):
        slow.take_in()
    slow.update(passing("a"))
    assert slow.broken is None
    state = read(keeper.path)[0]
    assert (state.ids(Bucket.passed), state.ids(Bucket.open)) == (("a",), ("b",))


def test_replaced_files_are_not_looked_at_for_ever(keeper: Keeper) -> None:
    """One quiet tick, and the descriptor is closed."""
    for unit in ("a", "b", "c"):
        keeper.update(passing(unit))
    assert len(keeper._replaced._watched) == 3
    keeper.take_in()
    assert keeper._replaced._watched == []


def test_a_long_file_is_journalled_as_what_changed(tmp_path: Path) -> None:
    """Every text can be had again, the moves are all there were, and an edit is still compared with its revision."""
    first = State("Long", NIGHT, 1).add_all(f"unit-{number:04}" for number in range(1500))
    start = NightStarted(night=NIGHT, title="Long", base="0" * 40, base_name="main")
    book = Book.open(tmp_path / "long.jsonl")
    book.note(start, Written(rev=1, text=render(first)))
    path = tmp_path / "long.md"
    path.write_text(render(first))
    keeper = Keeper(path, book, first)
    texts = {}
    for number in (700, 0, 1499):
        keeper.update(lambda state, unit=f"unit-{number:04}": state.move(unit, Bucket.tried, "red"))
        texts[keeper.state.rev] = path.read_text()
    written = [entry for entry in book.journal.entries if isinstance(entry, Written)][1:]
    assert [(entry.text, entry.moves) for entry in written[:2]] == [
        ("", ["unit-0700: open → tried"]),
        ("", ["unit-0000: open → tried"]),
    ]
    assert (tmp_path / "long.jsonl").stat().st_size < 2 * len(render(first))
    edit(keeper, lambda text: text.replace("- unit-0001\n", ""))
    keeper.update(lambda state: state)
    assert edits(book)[-1].cancelled == ["unit-0001"]
    assert book.journal.entries[-1].moves == ["unit-0001: open → gone"]
    book.close()
    again = Ledger().extend(Book.open(tmp_path / "long.jsonl").journal.entries)
    assert {rev: again.texts[rev] for rev in texts} == texts
    assert again.texts[again.rev] == path.read_text()


def test_what_is_due_is_settled_by_a_change_as_by_a_whole_text(tmp_path: Path) -> None:
    """A unit that the change put where it is due is not moved there again."""
    first = State("Long", NIGHT, 1).add_all(f"unit-{number:04}" for number in range(1500))
    ledger = Ledger().extend([Written(rev=1, text=render(first)), merged("unit-0003"), merged("unit-0004")])
    done = first.move("unit-0003", Bucket.passed).stamped(NIGHT, 2)
    change = between(render(first), render(done))
    ledger.add(Written(rev=2, change=change, moves=["unit-0003: open → passed"]))
    assert list(ledger.due) == ["unit-0004"]


def test_a_file_that_somebody_deletes_meanwhile_is_written_again(keeper: Keeper, book: Book) -> None:
    """Nothing is asked by it, and nobody is lost; without its folder (a checkout of another branch) we wait for it."""
    keeper.update(passing("a"))
    keeper.path.unlink()
    assert keeper.take_in()
    keeper.update(lambda state: state)
    assert read(keeper.path)[0].bucket_of("a") is Bucket.passed
    assert read(keeper.path)[0].rev == book.ledger.rev == 3
    keeper.path.unlink()
    keeper.path.write_text("")
    assert not keeper.take_in()
    assert "is empty" in str(keeper.broken)
    keeper.path.unlink()
    keeper.path = keeper.path.parent / "gone" / "state.md"
    assert not keeper.take_in()
    assert edits(book) == []
