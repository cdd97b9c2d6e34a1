"""A state file that is gone, or another one, while its night goes on: nobody begins a new night over it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from entries import merged, ordered, reported
from entries import started as run_started
from old_nights import BASE, OldNight, closing, session, started, state, wrote

from dispatcher.cli import overnight
from dispatcher.context import Context
from dispatcher.errors import EngineError, StateFileError
from dispatcher.home import Home
from dispatcher.journal import Archived, NightStarted
from dispatcher.opening import STATE_PATH, going_on, open_night, read_state
from dispatcher.state import render
from workers import log

NIGHT = "1130-k3v"
OLDER = "1129-aaa"


class Place:
    def __init__(self, checkout: Any) -> None:
        here = Context.here()
        self.root, self.home, self.checkout = here.repository.root, here.home, checkout
        self.home.make()
        self.path: Path = self.root / STATE_PATH
        self.path.parent.mkdir()
        self.night = OldNight(self.home, NIGHT)

    def unfinished(self) -> None:
        """A night in which one unit passed, and one did not."""
        self.night.journal(
            started(NIGHT),
            wrote(1, open="a b"),
            run_started(),
            ordered("a"),
            reported(closing("a", "pass")),
            merged("a"),
            wrote(2, passed="a", open="b"),
        )
        self.night.log("a", 1, session("a", "pass"))
        self.path.write_text(render(state(2, passed="a", open="b")))

    def ask(self, *words: str) -> Result:
        return CliRunner().invoke(overnight, list(words))

    def files(self) -> dict[str, bytes]:
        folders = (self.path.parent, self.home.nights, self.home.dropbox)
        return {str(path): path.read_bytes() for one in folders for path in one.rglob("*") if path.is_file()}


@pytest.fixture
def place(make_repository: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    checkout = make_repository({"a": "1"})
    monkeypatch.setenv("OVERNIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(checkout.path)
    return Place(checkout)


def older(place: Place, monkeypatch: pytest.MonkeyPatch, *more: Any) -> None:
    """A night that began a day before the other one."""
    with monkeypatch.context() as earlier:
        moment = log.datetime.now(log.UTC) - timedelta(days=1)
        earlier.setattr(log, "datetime", type("Earlier", (), {"now": staticmethod(lambda _zone: moment)}))
        OldNight(place.home, OLDER).journal(started(OLDER), wrote(1, OLDER, open="a"), run_started(), *more)


LOST = {
    "gone": None,
    "empty": "",
    "without a night": render(state(2, open="a b").stamped("", 0)),
    "of a night that nobody knows": render(state(2, "1201-zzz", open="a b")),
    "of an older night": render(state(1, OLDER, open="a")),
}


@pytest.mark.parametrize("text", LOST.values(), ids=LOST)
def test_a_lost_state_file_is_told_and_nothing_begins_until_it_is_rebuilt(
    place: Place, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    """`fsck` says so, whoever needs the file refuses, nothing is changed; rebuilt, `a` has passed."""
    older(place, monkeypatch)
    place.unfinished()
    assert Context.here().state.night == NIGHT
    place.path.unlink()
    if text is not None:
        place.path.write_text(text)
    before = place.files()
    for words in (["run"], ["report"], ["add", "Do it", "--verify", "true"], ["retry", "a"], ["archive", "--all"]):
        told = place.ask(*words)
        assert isinstance(told.exception, StateFileError), words
        assert str(place.path) in str(told.exception)
        assert "overnight fsck --rebuild-state" in str(told.exception)
    told = place.ask("status")
    assert "overnight fsck --rebuild-state" in f"{told.output}{told.exception}"
    looked = place.ask("fsck")
    assert (looked.exit_code, str(place.path) in looked.output) == (2 if text == "" else 1, True), looked.output
    assert place.files() == before
    assert f"is that of night {NIGHT}" in place.ask("fsck", "--rebuild-state").output
    found = read_state(place.root)
    assert found is not None
    assert (found.night, [entry.id for entry in found.passed]) == (NIGHT, ["a"])
    assert found.bucket_of("b") == "open"


def test_without_a_night_that_goes_on_a_new_one_may_begin(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archived one, one that a run was killed in before it began, and that of another checkout are no reasons."""
    other = place.root.parent / "linked"
    other.mkdir()
    older(place, monkeypatch, Archived(text="", units=[], left=""))
    OldNight(place.home, "1130-bbb").journal(started("1130-bbb"), wrote(1, "1130-bbb", open="a"))
    elsewhere = NightStarted(night="1130-ccc", title="T", base=BASE, base_name="main", checkout=str(other))
    OldNight(place.home, "1130-ccc").journal(elsewhere, wrote(1, "1130-ccc", open="a"), run_started())
    place.home.night("1130-ddd").mkdir()
    place.home.journal("1130-ddd").write_bytes(b'{"seq":0')
    assert going_on(place.root, place.home) == ""
    assert going_on(other, place.home) == "1130-ccc"
    here = Context.here()
    opened = open_night(here.repository, here.home, here.config)
    opened.book.close()
    assert opened.book.journal.entries[0].checkout == str(place.root)
    other.rmdir()  # a linked checkout that was removed took its state file along
    assert going_on(place.root, place.home) == ""


def test_a_damaged_journal_of_an_archived_night_stops_nobody(place: Place) -> None:
    """Whether it was archived is seen without it."""
    OldNight(place.home, NIGHT).journal(started(NIGHT), wrote(1, NIGHT, open="a"), run_started())
    journal = place.home.journal(NIGHT)
    first, *others = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([first, b"x" * 20 + b"\n", *others]))
    with pytest.raises(EngineError):
        going_on(place.root, place.home)
    (place.root / ".overnight/archive").mkdir(exist_ok=True)
    (place.root / f".overnight/archive/{NIGHT}.md").write_text("what it was\n")
    assert going_on(place.root, place.home) == ""


def test_an_archived_night_is_not_rebuilt(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was put away stays away."""
    older(place, monkeypatch, Archived(text="", units=[], left=""))
    told = place.ask("fsck", "--rebuild-state")
    assert "no journal of a night that goes on" in str(told.exception)
    assert not place.path.exists()


def test_a_clone_elsewhere_says_what_it_misses(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed file names a night that is not here: it can be looked at, and a run says how to begin anew."""
    place.unfinished()
    monkeypatch.setenv("OVERNIGHT_HOME", str(tmp_path / "another"))
    here = Context.here()
    assert here.home != place.home
    assert (here.state.night, here.state.bucket_of("a")) == (NIGHT, "passed")
    assert place.ask("status").exit_code == 0
    before = place.path.read_text()
    with pytest.raises(StateFileError, match="cut the comment line off before 'Night'"):
        open_night(here.repository, here.home, here.config)
    assert place.path.read_text() == before
    place.path.write_text(before.replace(f" Night {NIGHT}, rev 2.", ""))
    opened = open_night(here.repository, here.home, here.config)
    opened.book.close()
    assert [entry.id for entry in opened.keeper.state.passed] == ["a"]


def test_a_journal_whose_first_line_is_damaged_still_counts(tmp_path: Path) -> None:
    """Whoever cannot read it says so, and begins nothing."""
    home = Home(tmp_path / "home")
    night = OldNight(home, NIGHT)
    path = night.journal(started(NIGHT), wrote(1, open="a"), run_started())
    path.write_bytes(path.read_bytes().replace(b"Ours", b"Ourz", 1))
    with pytest.raises(Exception, match="journal cannot be read"):
        going_on(tmp_path, home)
