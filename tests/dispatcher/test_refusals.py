"""What people may ask, and what waits for them: the same words for a command and for the dispatcher."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from entries import asked, failed, lost, merged, ordered, release, reported, unit, verdict
from hypothesis import given
from hypothesis import strategies as st

from dispatcher import dropbox
from dispatcher.decide import Limits, View, decide, used_up
from dispatcher.ledger import Ledger
from dispatcher.people import (
    foreseen,
    is_repeated,
    refusal,
    shown,
    superseded,
    unneeded,
    waiting,
    without_deleted,
)
from dispatcher.state import Bucket, State
from workers.orders import Answered, Told

QUESTION = reported(verdict("a", "block", question="Keep v1?", pause_seq=7))
APPROVAL = reported(verdict("a", "block", question="bash: git push", approval="bash: git push", pause_seq=7))


def fold(*entries: Any) -> Ledger:
    return Ledger().extend(entries)


def state(bucket: str = "open", note: str = "") -> State:
    return State("Ours").add("a", Bucket(bucket), note)


PASSED = [ordered("a"), merged("a")]
WAITING = [ordered("a"), reported(verdict("a", "pass"))]
CANCELLED = [asked("cancel", "a")]


def test_a_yes_to_one_call_is_none_to_the_next() -> None:
    """Given twice, or late, when the unit waits with another call by then: nobody has seen that one yet."""
    asking = verdict("a", "block", question="bash: ls", approval="bash: ls", pause_seq=7, pause_call="one")
    next_one = verdict("a", "block", 1, 2, question="bash: rm", approval="bash: rm", pause_seq=12, pause_call="two")
    ledger = fold(ordered("a"), reported(asking))
    yes = shown(dropbox.Approve(unit="a"), ledger)
    assert refusal(yes, state("blocked"), ledger) is None
    later = fold(ordered("a"), reported(asking), asked("approve", "a"), ordered("a", 1, 2), reported(next_one))
    assert "something else" in (refusal(yes, state("blocked"), later) or "")
    assert refusal(shown(yes, later), state("blocked"), later) is None
    assert refusal(dropbox.Approve(unit="a"), state("blocked"), later) is None  # dropped by an older version


@pytest.mark.parametrize(
    ("request_", "entries", "bucket", "why_not"),
    [
        (dropbox.Answer(unit="a", text="x"), [ordered("a"), QUESTION], "blocked", None),
        (dropbox.Answer(unit="a", text="x"), [ordered("a")], "open", "it has asked nothing"),
        (dropbox.Answer(unit="a", text="x"), [ordered("a"), APPROVAL], "blocked", "`overnight approve a`"),
        (dropbox.Approve(unit="a"), [ordered("a"), APPROVAL], "blocked", None),
        (dropbox.Deny(unit="a"), [ordered("a"), APPROVAL], "blocked", None),
        (dropbox.Approve(unit="a"), [ordered("a"), QUESTION], "blocked", "`overnight answer a"),
        (dropbox.Deny(unit="a"), [ordered("a"), QUESTION], "blocked", "`overnight answer a"),
        (
            dropbox.Approve(unit="a"),
            [ordered("a"), APPROVAL, asked("approve", "a")],
            "open",
            "it waits for no approval",
        ),
        (dropbox.Deny(unit="a"), [], "open", "it waits for no approval"),
        (dropbox.Tell(unit="a", text="x"), [ordered("a")], "open", None),
        (dropbox.Tell(unit="a", text="x"), [], "open", None),
        (dropbox.Tell(unit="a", text="x"), PASSED, "passed", "it has passed"),
        (dropbox.Retry(unit="a"), failed("a", 1), "tried", None),
        (dropbox.Retry(unit="a"), [ordered("a")], "open", "it is being worked on"),
        (dropbox.Retry(unit="a"), WAITING, "open", "it has passed"),
        (dropbox.Retry(unit="a"), PASSED, "passed", "it has passed"),
        (dropbox.Cancel(unit="a"), [ordered("a")], "open", None),
        (dropbox.Cancel(unit="a"), CANCELLED, "blocked", None),
        (dropbox.Cancel(unit="a"), WAITING, "open", "it has passed"),
        (dropbox.Block(unit="a"), [], "open", None),
        (dropbox.Block(unit="a"), PASSED, "passed", "it has passed"),
        (dropbox.Unblock(unit="a"), [asked("block", "a", reason="")], "blocked", None),
        (dropbox.Unblock(unit="a"), [], "open", "it is not blocked"),
        (dropbox.Unblock(unit="a"), failed("a", 1), "tried", "it is not blocked"),
        (dropbox.Unblock(unit="a"), [asked("block", "a", reason="")], "open", None),  # not written yet
        (
            dropbox.Unblock(unit="a"),
            [asked("block", "a", reason=""), asked("unblock", "a", 2)],
            "blocked",
            "not blocked",
        ),
        (dropbox.Unblock(unit="a"), failed("a", 3), "blocked", "`overnight retry a` counts anew"),
        (dropbox.Unblock(unit="a"), CANCELLED, "blocked", "`overnight retry a`"),
        (dropbox.Unblock(unit="a"), [ordered("a"), QUESTION], "blocked", "overnight answer a"),
        (dropbox.Fork(unit="a", attempt=1, keep=2), failed("a", 1), "tried", None),
        (dropbox.Fork(unit="a", attempt=1, keep=9), failed("a", 1), "tried", "beyond them"),
        (dropbox.Retry(unit="b"), [], "open", "there is no such unit"),
        (dropbox.Pause(), [], "open", None),
        (dropbox.Resume(), [], "open", None),
    ],
)
def test_what_can_be_asked_as_things_are(request_: Any, entries: list[Any], bucket: str, why_not: str | None) -> None:
    """A refusal says what is in the way, and the command that would do instead where there is one."""

    def used(unit_: str, ledger: Ledger) -> str:
        return used_up(unit_, View(state(bucket), {"a": unit("a")}, ledger, Limits(None, None, attempts=3, slots=1)))

    found = refusal(request_, state(bucket), fold(*entries), events=lambda _unit, _attempt: 5, used_up=used)
    assert (found is None) == (why_not is None), found
    assert (why_not or "") in (found or "")


@pytest.mark.parametrize(
    ("request_", "entries", "bucket", "words"),
    [
        (dropbox.Retry(unit="a"), [], "open", "it keeps its place"),
        (dropbox.Retry(unit="a"), [*failed("a", 1), asked("retry", "a")], "tried", "it keeps its place"),
        (dropbox.Retry(unit="a"), failed("a", 1), "tried", ""),
        (dropbox.Retry(unit="a"), failed("a", 1), "open", ""),
        (dropbox.Retry(unit="a"), [], "blocked", ""),
        (dropbox.Retry(unit="a"), [ordered("a"), reported(release("a", "stopped"))], "open", ""),
        (dropbox.Retry(unit="a"), [*failed("a", 1), asked("fork", "a", attempt=1, keep=2)], "tried", ""),
        (dropbox.Cancel(unit="a"), CANCELLED, "open", "cancelled already"),
        (dropbox.Cancel(unit="a"), [], "blocked", ""),
        (dropbox.Block(unit="a"), [], "blocked", "blocked already"),
        (dropbox.Block(unit="a", reason="legal"), [], "blocked", ""),
        (dropbox.Block(unit="a"), [], "open", ""),
        (dropbox.Pause(), [], "open", ""),
        (dropbox.Pause(), [asked("pause", "-")], "open", "paused already"),
        (dropbox.Resume(), [asked("pause", "-")], "open", ""),
        (dropbox.Resume(), [], "open", "not paused"),
    ],
)
def test_what_is_so_already_is_said_and_changes_nothing(
    request_: Any, entries: list[Any], bucket: str, words: str
) -> None:
    """No place in the queue, no note, no count: asked twice is asked once."""
    found = unneeded(request_, state(bucket), fold(*entries))
    assert bool(found) == bool(words), found
    assert words in found


def test_a_request_is_judged_after_those_that_wait_already() -> None:
    """As the next run will: a retry takes the question away, and with it every answer that comes behind."""
    ledger, now = fold(ordered("a"), QUESTION), state("blocked")
    retry, answer, other = (
        dropbox.Retry(unit="a"),
        dropbox.Answer(unit="a", text="x"),
        dropbox.Answer(unit="a", text="y"),
    )
    assert "it has asked nothing" in (refusal(answer, now, foreseen([retry], answer, now, ledger)) or "")
    assert refusal(retry, now, foreseen([answer], retry, now, ledger)) is None
    assert refusal(other, now, foreseen([answer], other, now, ledger)) is None  # it takes the first one's place
    assert refusal(answer, now, ledger) is None  # nothing was changed by looking
    block, unblock = dropbox.Block(unit="a"), dropbox.Unblock(unit="a")
    assert refusal(unblock, state(), foreseen([block], unblock, state(), fold())) is None
    assert refusal(unblock, state(), foreseen([block, unblock], unblock, state(), fold())) == "it is not blocked"
    assert foreseen([dropbox.Stop()], block, state(), fold()).due == {}


def test_the_same_again_need_not_be_asked() -> None:
    """Unless another word about the unit came in between; what is told twice is meant twice."""
    retry, cancel, tell = dropbox.Retry(unit="a"), dropbox.Cancel(unit="a"), dropbox.Tell(unit="a", text="x")
    assert is_repeated(dropbox.Retry(unit="a"), [cancel, retry, tell, dropbox.Cancel(unit="b")])
    assert not is_repeated(dropbox.Retry(unit="a"), [retry, cancel])
    assert not is_repeated(dropbox.Tell(unit="a", text="x"), [tell])
    assert is_repeated(dropbox.Pause(), [dropbox.Pause(), retry])
    assert not is_repeated(dropbox.Pause(), [dropbox.Pause(), dropbox.Resume()])


def test_a_stop_from_before_the_run_is_not_for_it() -> None:
    """It was left behind for a run that had ended: the next one must not end at once because of it."""
    stop = dropbox.Stop()
    assert refusal(stop, state(), fold(), since=stop.at - timedelta(seconds=1)) is None
    assert refusal(stop, state(), fold(), since=datetime.now(UTC)) == "the run that it was meant for has ended"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (asked("answer", "a", text="keep"), Answered(text="keep", seq=7)),
        (asked("approve", "a"), Answered(text="", seq=7, approved=True)),
        (asked("deny", "a", reason="not on a Friday"), Answered(text="not on a Friday", seq=7, approved=False)),
        (asked("deny", "a", reason=""), Answered(text="", seq=7, approved=False)),
    ],
)
def test_what_is_said_to_a_pause_goes_to_the_session_that_paused(request_: Any, expected: Answered) -> None:
    """The same attempt goes on, first in line; a second word to the same pause is one too many."""
    ledger = fold(ordered("a"), APPROVAL if expected.approved is not None else QUESTION, request_)
    facts = ledger.unit("a")
    assert facts.answers == (expected,)
    assert (facts.question, facts.settled) == (None, False)
    assert (ledger.due["a"].bucket, ledger.due["a"].first) == (Bucket.open, True)
    ledger.add(request_)
    assert ledger.unit("a").answers == (expected,)


def test_all_that_a_unit_was_told_is_kept() -> None:
    """Through losses, new attempts and a retry: an order carries it all, and a session hears each once."""
    ledger = fold(
        asked("tell", "a", 1, text="one"),
        ordered("a"),
        asked("tell", "a", 2, text="two"),
        lost("a"),
        asked("tell", "b", 3, text="for another"),
        *failed("a", 1)[1:],
        asked("retry", "a", 4),
    )
    assert [told.text for told in ledger.unit("a").told] == ["one", "two"]
    assert ledger.unit("a").told[0] == Told(id=f"{1:020d}-00000000", text="one")


def test_a_cancelled_unit_is_blocked_and_its_attempt_is_over() -> None:
    """Whatever its worker still says; a retry brings it back with a new attempt."""
    ledger = fold(ordered("a"), asked("cancel", "a"))
    facts = ledger.unit("a")
    assert (facts.in_flight, facts.settled, facts.is_cancelled) == (True, True, True)
    assert (ledger.due["a"].bucket, ledger.due["a"].note) == (Bucket.blocked, "cancelled by a person")
    ledger.extend([reported(verdict("a", "fail"), "the attempt has its verdict already"), asked("retry", "a", 2)])
    assert (facts.in_flight, facts.settled, facts.is_cancelled) == (False, True, False)
    assert ledger.due["a"].bucket is Bucket.open


def test_blocked_by_hand_and_back() -> None:
    """The reason is the note; unblocked it is first in line, and its failures go on counting."""
    ledger = fold(*failed("a", 2), asked("block", "a", reason="wait for legal"))
    assert (ledger.due["a"].bucket, ledger.due["a"].note) == (Bucket.blocked, "wait for legal")
    ledger.add(asked("unblock", "a", 2))
    assert (ledger.due["a"].bucket, ledger.due["a"].first, ledger.unit("a").failures) == (Bucket.open, True, 2)
    assert fold(asked("block", "a", reason="")).due["a"].note == "blocked by a person"


def test_pause_and_resume_are_remembered() -> None:
    """By the journal alone, so that a restart does not forget it; refused ones change nothing."""
    assert not fold().paused
    assert fold(asked("pause", "-")).paused
    assert not fold(asked("pause", "-"), asked("resume", "-", 2), asked("resume", "-", 3)).paused
    assert not fold(asked("pause", "-", obeyed=False)).paused


@pytest.mark.parametrize(
    ("paused", "closed", "handed_out", "idle"),
    [(False, False, 1, False), (True, False, 0, False), (True, True, 0, True)],
)
def test_a_paused_run_hands_out_nothing_and_does_not_end(
    paused: bool, closed: bool, handed_out: int, idle: bool
) -> None:
    """It waits for another word, unless somebody stops it; with nothing left to hand out it ends as usual."""
    limits = Limits(night=None, unit=None, attempts=3, slots=2)
    view = View(state(), {"a": unit("a")}, fold(), limits, paused=paused, closed=closed)
    plan = decide(view)
    assert (len(plan.hand_outs), plan.idle) == (handed_out, idle)
    assert decide(View(State("Ours"), {}, fold(), limits, paused=paused)).idle


def test_what_waits_for_a_person() -> None:
    """Questions and approvals with the command for each, then what is blocked otherwise; a said word is shown."""
    ask_b = reported(verdict("b", "block", question="bash: rm x", approval="bash: rm x", pause_seq=1))
    ledger = fold(ordered("a"), QUESTION, ordered("b"), ask_b)
    now = State("Ours").add("a", Bucket.blocked, "Keep v1?").add("b", Bucket.blocked, "bash: rm x")
    now = now.add("c", Bucket.blocked, "setup failed").add("d")
    found = waiting(now, ledger, [dropbox.Approve(unit="b"), dropbox.Stop()])
    assert [(one.unit, one.what, one.words, one.said) for one in found] == [
        ("a", "question", "Keep v1?", ""),
        ("b", "approval", "bash: rm x", "approve"),
        ("c", "blocked", "setup failed", ""),
    ]
    assert [one.commands for one in found] == [
        ('overnight answer a "…"',),
        ("overnight approve b", 'overnight deny b "why"'),
        ("overnight log c", "overnight retry c"),
    ]


def test_a_cancelled_unit_whose_file_is_gone_leaves_the_state() -> None:
    """With its file it stays in `blocked`; a unit that nobody cancelled stays whatever becomes of its file."""
    ledger = fold(*CANCELLED)
    blocked = state("blocked").add("b", Bucket.blocked)
    assert without_deleted(blocked, ledger, lambda _unit: True) == blocked
    assert without_deleted(blocked, ledger, lambda _unit: False).ids() == ("b",)
    assert without_deleted(state("open"), ledger, lambda _unit: False).ids() == ("a",)


KINDS = ["answer", "approve", "deny", "tell", "retry", "cancel", "block", "unblock", "pause", "resume"]


@given(st.lists(st.sampled_from(KINDS), max_size=8), st.sampled_from([[], [QUESTION], [APPROVAL]]))
def test_whatever_is_asked_the_ledger_holds(kinds: list[str], entries: list[Any]) -> None:
    """Any requests in any order, obeyed as they may be: nobody is answered twice, and asking again changes nothing."""
    ledger = fold(ordered("a"), *entries)
    for number, kind in enumerate(kinds, 1):
        words = {"answer": {"text": "x"}, "tell": {"text": "x"}, "deny": {"reason": ""}, "block": {"reason": ""}}
        whose = {} if kind in ("pause", "resume") else {"unit": "a"}
        request = getattr(dropbox, kind.capitalize())(**whose, **words.get(kind, {}))
        why_not = refusal(request, state(str(ledger.due["a"].bucket) if "a" in ledger.due else "open"), ledger)
        ledger.add(asked(kind, "a", number, obeyed=why_not is None, **words.get(kind, {})))
        facts = ledger.unit("a")
        assert len(facts.answers) <= 1
        assert len(facts.told) == sum(one == "tell" for one in kinds[:number])


def test_until_it_is_taken_up_the_last_word_counts() -> None:
    """A no that follows a yes takes its place, and so does another answer; the same again, and other units, stay."""
    said = [
        dropbox.Approve(unit="a"),
        dropbox.Approve(unit="a"),
        dropbox.Answer(unit="b", text="red"),
        dropbox.Tell(unit="a", text="x"),
        dropbox.Approve(unit="c"),
        dropbox.Approve(unit="c"),
        dropbox.Answer(unit="a", text="an answer to a question is none to an approval"),
        dropbox.Deny(unit="a"),
        dropbox.Answer(unit="b", text="blue"),
    ]
    assert superseded(said) == {said[0].id, said[1].id, said[2].id}
    assert superseded([]) == set()
