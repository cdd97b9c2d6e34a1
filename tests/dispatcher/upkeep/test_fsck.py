"""What `overnight fsck` finds: each kind of disagreement in one line, and nothing in a night that agrees."""

from pathlib import Path
from typing import Any

import pytest
from entries import NIGHT, merged, ordered, reported
from entries import started as run_started
from old_nights import BASE, OldNight, closing, session, started, state, wrote

from dispatcher.home import Home
from dispatcher.journal import Edited
from dispatcher.ledger import Ledger
from dispatcher.upkeep.fsck import check_merges, check_night, check_outbox, check_state
from dispatcher.upkeep.remains import PRUNED, Remains
from workers.closed import compress
from workers.outbox import Outbox
from workers.session import events as ev

STATE = Path("state.md")


@pytest.fixture
def night(tmp_path: Path) -> OldNight:
    return OldNight(Home(tmp_path))


def said(night: Remains, *, is_running: bool = False) -> list[str]:
    return [str(fault) for fault in check_night(night, is_running=is_running)]


def test_a_whole_night_agrees(night: OldNight) -> None:
    """A unit that passed: nothing is said of journal, session and state file."""
    seen = night.passed().look()
    assert said(seen) == []
    assert list(check_state(state(2, passed="a"), STATE, seen)) == []
    assert list(check_merges(seen, lambda commit: "" if commit == "e" * 40 else "wrong")) == []


def test_a_compressed_session_is_read_like_any_other(night: OldNight) -> None:
    """A night agrees with itself when its logs are archives, too."""
    compress(night.passed().home.session(NIGHT, "a", 1))
    seen = night.look()
    assert len(seen.sessions) == 1
    assert said(seen) == []


def test_damage_is_named_with_line_and_offset_and_is_unreadable(night: OldNight) -> None:
    """A changed byte in a session or a journal; the rest of the night is still checked."""
    path = night.passed().home.session(NIGHT, "a", 1)
    path.write_bytes(path.read_bytes().replace(b'"turn":1', b'"turn":2', 1))
    faults = list(check_night(night.look(), is_running=False))
    assert [fault.unreadable for fault in faults] == [True]
    assert str(faults[0]).startswith(f"{path}: line 3 (byte ")
    journal = night.home.journal(NIGHT)
    journal.write_bytes(journal.read_bytes().replace(b'"seq":2', b'"seq":7', 1))
    broken = list(check_night(night.look(), is_running=False))
    assert {fault.path for fault in broken} == {path, journal}
    assert all(fault.unreadable for fault in broken)


def test_torn_tails_are_told(night: OldNight) -> None:
    """Half a line behind a session or a journal; not of a journal that a run is writing."""
    night.passed()
    for path in (night.home.session(NIGHT, "a", 1), night.home.journal(NIGHT)):
        with path.open("ab") as file:
            file.write(b'{"seq":9')
    assert [" has a torn tail of 8 bytes" in line for line in said(night.look())] == [True, True]
    assert len(said(night.look(), is_running=True)) == 1


def test_a_session_that_nobody_ordered(night: OldNight) -> None:
    """Its attempt is not in the journal."""
    night.passed().log("a", 2, session("a", "fail", 2))
    assert said(night.look()) == [f"{night.home.session(NIGHT, 'a', 2)}: nobody ordered attempt 2 of a"]


def test_a_verdict_without_its_session(night: OldNight) -> None:
    """The journal accepted it and no log holds it; not where the sessions were pruned."""
    night.passed()
    night.home.session(NIGHT, "a", 1).unlink()
    assert ["does not hold the pass that the journal accepted" in line for line in said(night.look())] == [True]
    (night.home.night(NIGHT) / PRUNED).touch()
    assert said(night.look()) == []


def test_a_verdict_that_the_journal_does_not_know_or_knows_otherwise(night: OldNight) -> None:
    """A session that ends in a verdict nobody booked, and one whose verdict is another."""
    night.journal(started(), wrote(open="a b"), ordered("a"), ordered("b"))
    night.journal(reported(closing("b", "fail")), run_started())  # whoever was in flight before a run is dead
    night.log("a", 1, session("a", "fail"))
    night.log("b", 1, session("b", "block"))
    lines = said(night.look())
    assert any("ends in fail (epoch 1), of which the journal knows nothing" in line for line in lines)
    assert any("says block (-), the journal fail (-)" in line for line in lines)


def test_money_that_was_booked_otherwise(night: OldNight) -> None:
    """The sum of a session's answers is what the journal has for the attempt; copied events of a fork cost nothing."""
    night.journal(started(), wrote(open="a"), ordered("a"), reported(closing("a", "fail")))
    told = session("a", "fail")
    path = night.log("a", 1, [*told[:6], told[5], *told[6:]])
    assert said(night.look()) == [f"{path}: cost $0.50, and the journal booked $0.25"]
    night.journal(ordered("a", 2), reported(closing("a", "fail", 2)))
    mine = [ev.SessionFork(source=1, at=6, attempt=2), *session("a", "fail", 2)[1:]]
    night.log("a", 2, [event for event in told[:6] if not isinstance(event, ev.Claim)] + mine)
    assert len(said(night.look())) == 1


def test_sessions_of_somebody_else(night: OldNight) -> None:
    """Of another unit, on another base, or claimed under epochs that nobody ordered or that do not grow."""
    night.journal(started(), wrote(open="a"), ordered("a"), reported(closing("a", "fail")))
    told = session("a", "fail")
    other = told[0].model_copy(update={"unit": "z", "base": "f" * 40})
    night.log("a", 1, [other, told[1], ev.Claim(epoch=1, holder="h"), ev.Claim(epoch=3, holder="h"), *told[2:]])
    lines = "\n".join(said(night.look()))
    assert "is the session of z, attempt 1" in lines
    assert f"starts from {'f' * 8}, and was ordered on {BASE[:8]}" in lines
    assert "was claimed under epoch 3, which nobody ordered" in lines
    assert "[1, 1, 3]: they must grow" in lines


def test_a_unit_at_work_is_left_alone(night: OldNight) -> None:
    """Its session is ahead of the journal at this moment, and may end in half a line."""
    night.journal(started(), wrote(open="a"), ordered("a"))
    path = night.log("a", 1, session("a", "fail"))
    with path.open("ab") as file:
        file.write(b"{")
    assert said(night.look()) == []


def test_a_journal_that_is_not_the_nights(night: OldNight) -> None:
    """Missing, of another night, with revisions or attempts that go back."""
    night.home.night(NIGHT).mkdir(parents=True)
    assert said(night.look()) == []  # a run was killed as it minted the night: it never began
    night.log("a", 1, session("a", "fail"))
    assert ["is missing or empty" in line for line in said(night.look())] == [True]
    night.journal(started("1130-zzz"), wrote(2, open="a"), wrote(1, open="a"), ordered("a", 2), ordered("a", 1))
    lines = "\n".join(said(night.look()))
    assert "is that of night 1130-zzz" in lines
    assert "writes rev 1 of the state file after rev 2" in lines
    assert "orders a 1.1 after 2.1" in lines


def test_merges_that_the_branch_does_not_hold(night: OldNight) -> None:
    """What the look at git says is said of the unit."""
    seen = night.passed().look()
    (fault,) = check_merges(seen, lambda _: "refs/x does not hold it")
    assert str(fault).endswith("refs/x does not hold it")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (state(2, passed="a b"), "b is in passed, and the journal holds no merge of it"),
        (state(2, passed="a", open="b c"), "c is in open, and no run has seen it yet"),
        (state(2, passed="a", blocked="b"), "b is in blocked, the journal has it in open"),
        (state(2, passed="a"), "b is missing; the journal has it in open"),
        (state(2, open="a b"), "a is in open, and the journal holds its merge"),
        (state(9, passed="a", open="b"), "names rev 9, which the journal never wrote (it is at rev 2)"),
        (state(1, passed="a", open="b"), "is rev 1; the journal is at rev 2"),
    ],
)
def test_a_state_file_that_the_journal_contradicts(night: OldNight, found: Any, words: str) -> None:
    """Each contradiction is one line that names the unit."""
    night.journal(started(), wrote(1, open="a b"), ordered("a"), reported(closing("a", "pass")), merged("a"))
    night.journal(wrote(2, passed="a", open="b"))
    lines = [str(fault) for fault in check_state(found, STATE, night.look())]
    assert [line for line in lines if words in line], lines
    assert len(lines) == 1


def test_what_is_due_or_was_waived_is_no_contradiction(night: OldNight) -> None:
    """A move that no write has made yet may be in the file or not; a waived unit needs no merge."""
    night.journal(started(), wrote(1, open="a b"), ordered("a"), reported(closing("a", "fail")))
    night.journal(Edited(obeyed=[], refused=[], waived=["b"]))
    for found in (state(1, open="a", passed="b"), state(1, tried="a", passed="b")):
        assert [str(one) for one in check_state(found, STATE, night.look()) if "a is" in str(one)] == []
        assert [str(one) for one in check_state(found, STATE, night.look()) if "no merge" in str(one)] == []


def test_leftovers_in_the_outbox(tmp_path: Path) -> None:
    """A report that was journalled, one that was not, one of another night, and what is none."""
    outbox = Outbox(tmp_path)
    for unit in ("a", "b"):
        outbox.put(closing(unit, "fail"))
    outbox.put(closing("c", "fail", night="1130-zzz"))
    (tmp_path / "d.json").write_text("{}")
    faults = list(check_outbox(tmp_path, {NIGHT: Ledger().extend([ordered("a"), reported(closing("a", "fail"))])}))
    words = (
        "was journalled, and is still here",
        "was never journalled",
        "night 1130-zzz, which is not here",
        "is no report",
    )
    assert all(what in str(fault) for what, fault in zip(words, faults, strict=True))
    assert [fault.unreadable for fault in faults] == [False, False, False, True]
