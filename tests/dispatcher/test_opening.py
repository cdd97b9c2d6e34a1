"""Opening a night: the one that the state file names, or a new one with an identity of its own."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dispatcher.config import Config, parse
from dispatcher.errors import BadInput, EngineError, StateFileError
from dispatcher.home import Home
from dispatcher.journal import NightStarted, Written
from dispatcher.opening import STATE_PATH, Opened, open_night, read_state
from worktrees.repository import Repository


class Place:
    def __init__(self, checkout: Any, folder: Path) -> None:
        self.checkout = checkout
        self.repository = Repository.discover(checkout.path)
        self.home = Home(folder / "home")
        self.path = checkout.path / STATE_PATH

    def open(self, config: Config | None = None) -> Opened:
        return open_night(self.repository, self.home, config or Config())


@pytest.fixture
def place(make_repository: Any, tmp_path: Path) -> Place:
    made = Place(make_repository({"a": "1"}), tmp_path)
    made.home.make()
    return made


def test_a_new_night_has_an_id_a_base_and_a_state_file(place: Place) -> None:
    """All in the journal before the file is written."""
    opened = place.open()
    with closing(opened.book):
        first, second = opened.book.journal.entries
        assert isinstance(first, NightStarted)
        assert first.base == place.checkout.git("rev-parse", "HEAD")
        assert isinstance(second, Written)
        assert place.path.read_text() == second.text
        state = read_state(place.repository.root)
        assert state is not None
        assert (state.night, state.rev, state.title) == (first.night, 1, "repository")


def test_a_state_file_that_somebody_typed_keeps_its_title_and_units(place: Place) -> None:
    """Only the comment line gets the night."""
    place.path.parent.mkdir()
    head = "# Loop State: Billing\n# A unit lives in one bucket.\n\n## tried\n\n## passed\n\n"
    place.path.write_text(f"{head}## open\n- a: Do a.\n\n## blocked\n- b  later\n")
    with closing(place.open().book) as book:
        assert book.journal.entries[0].title == "Billing"
        assert book.journal.entries[1].moves == ["a: new → open", "b: new → blocked"]
    text = place.path.read_text()
    assert "- a: Do a.\n" in text
    assert "- b  later\n" in text


def test_a_night_is_opened_again_with_all_that_its_journal_says(place: Place) -> None:
    """The same id, however often."""
    with closing(place.open().book) as book:
        night = book.ledger.night
    again = place.open()
    with closing(again.book):
        assert again.book.ledger.night == night
        assert again.keeper.state.night == night
    assert len(list(place.home.nights.iterdir())) == 1


def test_only_one_opens_it(place: Place) -> None:
    """The journal has one writer."""
    with closing(place.open().book), pytest.raises(EngineError):
        place.open()


def test_a_night_without_its_journal_is_refused_and_the_file_kept(place: Place) -> None:
    """Line 2 is named, where the night stands."""
    with closing(place.open().book) as book:
        night = book.ledger.night
    place.home.journal(night).rename(place.home.root / "elsewhere")
    text = place.path.read_text()
    with pytest.raises(StateFileError) as caught:
        place.open()
    assert caught.value.line == 2
    assert night in str(caught.value)
    assert place.path.read_text() == text


def test_the_config_says_where_units_start(place: Place) -> None:
    """A branch that is not checked out; one that does not exist is bad input, and no night begins."""
    place.checkout.git("branch", "release")
    place.checkout.commit({"a": "2"})
    with pytest.raises(BadInput, match="nowhere") as caught:
        place.open(parse('base = "nowhere"'))
    assert caught.value.field == "base"
    assert not place.path.exists()
    with closing(place.open(parse('base = "release"')).book) as book:
        assert book.ledger.base == place.checkout.git("rev-parse", "release")
        assert book.ledger.base_name == "release"
