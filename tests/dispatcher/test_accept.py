"""Which reports count: the first verdict of the current attempt (rule 15)."""

from entries import asked, lost, merged, ordered, release, reported, verdict

from dispatcher.accept import refusal
from dispatcher.ledger import Ledger, UnitFacts


def facts(*entries: object) -> UnitFacts:
    return Ledger().extend(entries).unit("a")


RESENT = (ordered("a"), lost("a"), ordered("a", 1, 2))
"""Epoch 1 was given up; epoch 2 is at work."""


def test_the_verdict_of_the_current_hand_out_is_accepted() -> None:
    """Whatever it says."""
    for word in ("pass", "fail", "block"):
        assert refusal(verdict("a", word), facts(ordered("a")), has_commit=True) is None
    assert refusal(release("a", "stopped"), facts(ordered("a")), has_commit=False) is None


def test_of_an_older_epoch_only_a_pass_counts() -> None:
    """Work that is done is done; a failure of somebody who was given up says nothing about who is at work now."""
    assert refusal(verdict("a", "pass", 1, 1), facts(*RESENT), has_commit=True) is None
    assert "epoch 1 was given up" in str(refusal(verdict("a", "fail", 1, 1), facts(*RESENT), has_commit=True))
    assert refusal(release("a", "stopped", 1, 1), facts(*RESENT), has_commit=True) is not None


def test_only_the_first_verdict_counts() -> None:
    """The slower of two passes is refused, as is anything behind a retry."""
    first = reported(verdict("a", "pass", 1, 1))
    assert refusal(verdict("a", "pass", 1, 2), facts(*RESENT, first), has_commit=True) is not None
    given_up = facts(*RESENT, lost("a"), asked("retry", "a"))
    assert refusal(verdict("a", "pass", 1, 2), given_up, has_commit=True) is not None


def test_another_attempt_is_over() -> None:
    """Its number is said, and the current one's."""
    failed = reported(verdict("a", "fail"))
    reason = refusal(verdict("a", "pass", 1, 1), facts(ordered("a"), failed, ordered("a", 2)), has_commit=True)
    assert reason == "attempt 1 is over; the current one is 2"


def test_a_pass_needs_its_commit_here() -> None:
    """Otherwise there is nothing to merge."""
    assert refusal(verdict("a", "pass"), facts(ordered("a")), has_commit=False) == "its commit cannot be read here"


def test_what_has_passed_hears_nothing_more() -> None:
    """Not even another pass."""
    assert refusal(verdict("a", "pass", 1, 2), facts(*RESENT, merged("a")), has_commit=True) is not None


def test_a_pass_counts_although_a_later_hand_out_was_handed_back() -> None:
    """Epoch 2 found the unit busy, because epoch 1 was at work after all: a release is no verdict (rules 13, 15)."""
    busy = facts(*RESENT, reported(release("a", "busy", 1, 2)))
    assert refusal(verdict("a", "pass", 1, 1), busy, has_commit=True) is None
    assert refusal(verdict("a", "fail", 1, 1), busy, has_commit=True) is not None
    asking = facts(*RESENT, reported(verdict("a", "block", 1, 2, question="?", pause_seq=1)))
    assert refusal(verdict("a", "pass", 1, 1), asking, has_commit=True) is not None


def test_a_hand_out_is_closed_once() -> None:
    """A release or a question that comes a second time changes nothing."""
    released = facts(*RESENT, reported(release("a", "stopped", 1, 2)))
    assert refusal(release("a", "stopped", 1, 2), released, has_commit=False) is not None
    asking = facts(ordered("a"), reported(verdict("a", "block", question="?", pause_seq=1)))
    assert refusal(verdict("a", "block", question="?", pause_seq=1), asking, has_commit=False) is not None
