"""State file and archive on the merged branch (spec S13): plumbing alone, and crash-safe."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from entries import NIGHT

from dispatcher import statecommit
from dispatcher.archive import ARCHIVE_PATH
from dispatcher.book import Book
from dispatcher.journal import NightStarted, StateCommitted
from dispatcher.opening import STATE_PATH
from dispatcher.train import merged_ref
from worktrees.errors import RefMoved
from worktrees.repository import Repository

REF = merged_ref(NIGHT)


class Stand:
    def __init__(self, checkout: Any, folder: Path) -> None:
        self.git, self.root = checkout.git, checkout.path
        self.repository = Repository.discover(checkout.path)
        base = self.git("rev-parse", "HEAD")
        self.git("update-ref", REF, base)
        self.book = Book.open(folder / "journal.jsonl")
        self.book.note(NightStarted(night=NIGHT, title="t", base=base, base_name="main"))

    def write(self, path: Path, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def entries(self) -> list[StateCommitted]:
        return [entry for entry in self.book.journal.entries if isinstance(entry, StateCommitted)]


@pytest.fixture
def stand(make_repository: Any, tmp_path: Path) -> Iterator[Stand]:
    made = Stand(make_repository({"src/a.txt": "1", ".overnight/config.toml": "base = 'main'"}), tmp_path)
    yield made
    made.book.close()


def test_both_are_committed_beside_what_is_there(stand: Stand) -> None:
    """Nothing else changes: not the tree's other files, not the checkout, not its index; and only once."""
    stand.write(STATE_PATH, "état\n")
    stand.write(ARCHIVE_PATH / "old.md", "old\n")
    head, status = stand.git("rev-parse", "HEAD"), stand.git("status", "--porcelain")
    commit = statecommit.commit_state(stand.repository, stand.book)
    listed = stand.git("ls-tree", "-r", "--name-only", REF).splitlines()
    assert listed == [".overnight/archive/old.md", ".overnight/config.toml", ".overnight/state.md", "src/a.txt"]
    assert stand.git("show", f"{REF}:.overnight/state.md") == "état"
    assert (stand.git("rev-parse", REF), stand.git("rev-parse", f"{REF}^")) == (commit, head)
    assert (stand.git("rev-parse", "HEAD"), stand.git("status", "--porcelain")) == (head, status)
    assert [entry.is_done for entry in stand.entries()] == [False, True]
    assert statecommit.commit_state(stand.repository, stand.book) is None
    assert stand.book.ledger.state_commits == {commit}


def test_without_merged_work_there_is_nothing_to_go_with(stand: Stand) -> None:
    """No branch is made for the state file alone."""
    stand.git("update-ref", "-d", REF)
    stand.write(STATE_PATH, "x\n")
    assert statecommit.commit_state(stand.repository, stand.book) is None
    assert stand.entries() == []


def test_a_crash_between_moving_the_branch_and_saying_so_is_made_good(stand: Stand) -> None:
    """The intent is in the journal; a move that did not happen is simply made again."""
    stand.write(STATE_PATH, "x\n")
    commit = statecommit.commit_state(stand.repository, stand.book)
    intent = stand.entries()[0]
    stand.book.note(intent)  # as if the second entry had never been written
    statecommit.recover(stand.repository, stand.book)
    assert stand.book.ledger.committing is None
    assert stand.entries()[-1].is_done
    stand.git("update-ref", REF, f"{commit}^")
    stand.book.note(intent)
    statecommit.recover(stand.repository, stand.book)
    assert stand.book.ledger.committing == intent
    assert statecommit.commit_state(stand.repository, stand.book) is not None


def test_a_branch_that_somebody_else_moves_is_left_to_the_next_run(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare-and-swap: nothing of theirs is lost."""

    def moved(*_: Any, **__: Any) -> None:
        raise RefMoved(REF, "a" * 40, "b" * 40)

    monkeypatch.setattr(statecommit, "advance", moved)
    stand.write(STATE_PATH, "x\n")
    assert statecommit.commit_state(stand.repository, stand.book) is None
    assert [entry.is_done for entry in stand.entries()] == [False]
