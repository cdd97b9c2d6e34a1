"""From where a unit can be forked, what the journal makes of it, and what the order then carries."""

from pathlib import Path
from typing import Any

import pytest
from entries import asked, failed, merged, ordered, reported, unit, verdict
from hypothesis import given
from hypothesis import strategies as st
from quiet import Quiet

from dispatcher.book import Book
from dispatcher.config import Config
from dispatcher.decide import HandOut
from dispatcher.dropbox import Fork, drop, pending
from dispatcher.forks import refusal, stored
from dispatcher.inbox import Inbox
from dispatcher.journal import Asked
from dispatcher.ledger import Due, Ledger
from dispatcher.orders import base_of, order_of
from dispatcher.state import Bucket, State
from workers.orders import Answered, ForkPoint, UnitOrder
from workers.session import events as ev

FORK = Fork(unit="a", attempt=1, keep=5)


def ledger(*entries: object) -> Ledger:
    return Ledger().extend(entries)


def order(told: Ledger, attempt: int, epoch: int = 1) -> UnitOrder:
    hand_out, facts = HandOut("a", attempt, epoch, None), told.unit("a")
    return order_of(
        unit("a"),
        hand_out,
        facts,
        Config(),
        night="1130-k3v",
        base=base_of(hand_out, facts) or "tip",
        run_id="r",
        repository=Path("/r"),
        home=Path("/h"),
    )


@pytest.mark.parametrize(
    ("facts", "events", "why"),
    [
        (ledger(*failed("a", 1)), 5, None),
        (ledger(*failed("a", 1)), 4, "has events 0 to 3; --at 5 is beyond them"),
        (ledger(*failed("a", 1)), 0, "cannot be read here"),
        (ledger(), 5, "there is no attempt 1; there are none yet"),
        (ledger(ordered("a")), 5, "it is being worked on"),
        (ledger(ordered("a"), reported(verdict("a", "pass"))), 5, "it has passed"),
        (ledger(ordered("a"), reported(verdict("a", "pass")), merged("a")), 5, "it has passed"),
    ],
)
def test_what_can_be_forked(facts: Ledger, events: int, why: str | None) -> None:
    """A unit that did not pass and is not at work, from any event of an attempt whose session is here."""
    found = facts.unit("a")
    said = refusal(FORK, Bucket.open, found, events, in_flight=found.in_flight)
    assert said is None if why is None else why in (said or "")


def test_a_waived_unit_cannot_be_forked() -> None:
    """A person has said that it is done."""
    assert refusal(FORK, Bucket.passed, ledger(*failed("a", 1)).unit("a"), 5, in_flight=False) == "it has passed"


def test_a_fork_is_a_new_attempt_on_the_base_of_its_source() -> None:
    """It comes first in `open` with all its attempts again; every epoch of the attempt carries the fork."""
    told = ledger(*failed("a", 3), asked("fork", "a", attempt=2, keep=7))
    assert told.due["a"] == Due(Bucket.open, first=True)
    assert (told.unit("a").failures, told.unit("a").settled) == (0, True)
    told.unit("a").bases[2] = "second"
    made = order(told, 4)
    assert (made.fork, made.base) == (ForkPoint(attempt=2, at=7), "second")
    told.add(ordered("a", 4, fork=made.fork))
    assert order(told, 4, 2).fork == made.fork
    told.add(reported(verdict("a", "fail", 4)))
    assert (order(told, 5).fork, order(told, 5).base) == (None, "tip")


def test_a_retry_wants_a_fresh_context() -> None:
    """It takes back a fork that was asked for and not handed out; a refused fork changes nothing."""
    told = ledger(*failed("a", 1), asked("fork", "a", attempt=1, keep=7), asked("retry", "a", 2))
    assert order(told, 2).fork is None
    told = ledger(*failed("a", 1), asked("fork", "a", attempt=1, keep=7, obeyed=False))
    assert (told.unit("a").fork, told.unit("a").failures) == (None, 1)


def test_answers_stay_with_the_attempt_that_asked() -> None:
    """They are known by their place in its session; another attempt may ask something else at the same place."""
    asking = reported(verdict("a", "block", question="Which?", pause_seq=9))
    told = ledger(ordered("a"), asking, asked("answer", "a", text="This."))
    assert order(told, 1, 2).answers == (Answered(text="This.", seq=9),)
    told.extend([ordered("a", 1, 2), reported(verdict("a", "fail", 1, 2))])
    assert order(told, 2).answers == ()
    told.add(ordered("a", 2))
    assert order(told, 2, 2).answers == ()


@pytest.mark.parametrize(("events", "reason"), [(5, ""), (3, "has events 0 to 2; --at 5 is beyond them")])
def test_the_dispatcher_obeys_or_says_why_not(tmp_path: Path, events: int, reason: str) -> None:
    """The request is journalled either way, once, and gone from the drop-box."""
    nobody: Any = None
    book = Book.open(tmp_path / "journal.jsonl")
    book.note(*failed("a", 1))
    inbox = Inbox(book, nobody, nobody, Quiet(), nobody, nobody, lambda unit, attempt: events * (unit == "a") * attempt)
    drop(tmp_path / "dropbox", FORK)
    inbox.obey(tmp_path / "dropbox", State("Ours").add("a", Bucket.tried))
    entry = book.journal.entries[-1]
    book.close()
    assert isinstance(entry, Asked)
    assert (entry.obeyed, reason in entry.reason) == (not reason, True)
    assert (book.ledger.unit("a").fork is not None) == (not reason)
    assert pending(tmp_path / "dropbox") == []


@given(st.integers(1, 10**6), st.integers(1, 100))
def test_a_request_survives_the_drop_box(keep: int, attempt: int) -> None:
    """What was dropped is what is found."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        wanted = Fork(unit="a", attempt=attempt, keep=keep)
        drop(Path(folder), wanted)
        assert [request for _, request in pending(Path(folder))] == [wanted]


def test_events_are_counted_where_they_are(tmp_path: Path) -> None:
    """A session that is not here, or that cannot be read, has none."""
    from old_nights import OldNight

    from dispatcher.home import Home

    path = OldNight(Home(tmp_path)).log("a", 1, [ev.Claim(epoch=1, holder="h"), ev.TurnStart(turn=1)])
    assert stored(path) == 2
    assert stored(tmp_path / "none") == 0
    path.write_bytes(b"x\n")
    assert stored(path) == 0
