"""What may be deleted: finished nights alone, sessions before journals, each after its period."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from entries import ordered
from old_nights import OldNight, session, started, wrote

from dispatcher.errors import DispatcherError
from dispatcher.home import Home
from dispatcher.journal import Archived
from dispatcher.upkeep.fsck import check_night
from dispatcher.upkeep.prune import Prunable, compress_archived, compress_finished, finished, plan, prune, title_of
from dispatcher.upkeep.remains import PRUNED
from workers.closed import packed

DAY = timedelta(days=1)


@pytest.fixture
def old(tmp_path: Path) -> OldNight:
    return OldNight(Home(tmp_path)).passed()


def losses(old: OldNight, age: timedelta, *, sessions: int = 30, journals: int = 180) -> list[str]:
    now = datetime.now(UTC) + age
    found = plan([old.look()], now, sessions=sessions * DAY, journals=journals * DAY)
    return [loss.what for loss in found]


def test_each_kind_has_a_period_of_its_own(old: OldNight) -> None:
    """Young nights are left alone, then the sessions may go, and at last the journal."""
    assert losses(old, 29 * DAY) == []
    assert losses(old, 31 * DAY) == ["sessions"]
    assert losses(old, 181 * DAY) == ["sessions", "journal"]


def test_never_a_journal_before_its_sessions(old: OldNight) -> None:
    """Not even where somebody asks for periods the wrong way round."""
    assert losses(old, 2 * DAY, sessions=30, journals=1) == []


def test_only_finished_nights(old: OldNight, tmp_path: Path) -> None:
    """Not the state file's, not one with a unit that did not pass, not one that cannot be read."""
    waits = OldNight(old.home, "1130-bbb")
    waits.journal(started("1130-bbb"), wrote(night="1130-bbb", open="a"))
    flies = OldNight(old.home, "1130-ccc").passed()
    flies.journal(ordered("b"), wrote(3, "1130-ccc", passed="a"))
    broken = OldNight(old.home, "1130-ddd").passed()
    path = broken.home.session("1130-ddd", "a", 1)
    path.write_bytes(path.read_bytes().replace(b"claim", b"clain", 1))
    nights = [one.look() for one in (old, waits, flies, broken)]
    assert finished(nights, "") == [nights[0]]
    assert finished(nights, old.night) == []


def test_an_archived_night_is_finished_whatever_had_not_passed(old: OldNight) -> None:
    """`archive --all` carried the rest over, and whoever was in flight is dead; what cannot be read still stays."""
    left = OldNight(old.home, "1130-bbb")
    left.journal(started("1130-bbb"), wrote(night="1130-bbb", open="a", blocked="b"), ordered("a"))
    assert finished([left.look()], "") == []
    left.journal(Archived(text="", units=[], left=""))
    assert [night.night for night in finished([left.look()], "")] == ["1130-bbb"]
    assert finished([left.look()], "1130-bbb") == []
    left.journal(started("1130-bbb"))
    path = left.home.journal("1130-bbb")
    path.write_bytes(path.read_bytes()[:-3])
    assert finished([left.look()], "") == []


def test_an_archived_nights_sessions_are_compressed(old: OldNight) -> None:
    """All of them, by path alone; again, or after a crash in between, the rest."""
    old.log("b", 1, session("b", "fail"))
    old.log("b", 2, session("b", "fail", 2))
    assert compress_archived(old.home, old.night).count == 3
    assert compress_archived(old.home, old.night).count == 0
    old.log("c", 1, session("c", "fail"))
    assert compress_archived(old.home, old.night).count == 1
    assert len(old.look().sessions) == 4
    assert old.look().faults == ()


def test_closed_sessions_are_compressed_and_nothing_is_lost(old: OldNight) -> None:
    """Once; and the night still reads the same. A log with a torn tail is named and left."""
    before = old.look()
    path = old.home.session(old.night, "a", 1)
    done = compress_finished([before])
    assert (done.count, done.refused) == (1, ())
    assert (path.exists(), packed(path).exists()) == (False, True)
    assert old.look().sessions[0].events == before.sessions[0].events
    assert compress_finished([old.look()]).count == 0
    torn = OldNight(old.home, "1130-bbb").passed()
    with torn.home.session("1130-bbb", "a", 1).open("ab") as file:
        file.write(b"{")
    done = compress_finished([torn.look()])
    assert done.count == 0
    assert "torn tail" in done.refused[0]


def test_what_is_deleted_and_what_says_so(old: OldNight) -> None:
    """Sessions go and the journal stays, which fsck does not mind; then all of it goes."""
    title = title_of(old.look())
    assert "Ours  1 units passed" in title
    folder = old.home.night(old.night)
    prune([Prunable(old.night, folder, "sessions", 31)])
    assert old.home.journal(old.night).exists()
    assert (folder / PRUNED).exists()
    assert not (folder / "units").exists()
    assert list(check_night(old.look(), is_running=False)) == []
    prune([Prunable(old.night, folder, "journal", 181)])
    assert not folder.exists()


def test_what_cannot_be_deleted_is_named(old: OldNight, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk error says which night."""

    def refuses(_: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("dispatcher.upkeep.prune.shutil.rmtree", refuses)
    folder = old.home.night(old.night)
    with pytest.raises(Exception, match=old.night) as caught:
        prune([Prunable(old.night, folder, "journal", 1)])
    assert not isinstance(caught.value, DispatcherError | OSError)


def test_sessions_of_nobody_count_too(old: OldNight) -> None:
    """A night without a session that can be seen, but with its folder, still has something to lose."""
    old.log("b", 1, session("b", "fail"))
    old.home.session(old.night, "a", 1).unlink()
    assert losses(old, 31 * DAY) == ["sessions"]
