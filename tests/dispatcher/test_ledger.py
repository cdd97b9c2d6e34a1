"""The ledger: what the journal says of each unit, whatever order the journal has and however often it is read."""

from decimal import Decimal

import pytest
from entries import (
    asked,
    dollars,
    failed,
    lost,
    merged,
    ordered,
    release,
    reported,
    started,
    verdict,
    written,
)
from hypothesis import given
from hypothesis import strategies as st

from dispatcher import journal as j
from dispatcher.ledger import Due, Ledger, UnitFacts
from dispatcher.state import Bucket, State, one_line, render


def fold(*entries: object) -> Ledger:
    return Ledger().extend(entries)


def facts(*entries: object) -> UnitFacts:
    return fold(*entries).unit("a")


def test_an_order_puts_a_unit_in_flight() -> None:
    """With the attempt, epoch, base and digest that it was handed out under."""
    found = facts(ordered("a", 2, 3, reserve=dollars("4")))
    assert (found.attempt, found.epoch, found.in_flight, found.settled) == (2, 3, True, False)
    assert (found.base, found.digest, found.reserve) == ("b" * 40, "d", dollars("4"))


def test_a_failed_verdict_counts_and_is_remembered() -> None:
    """The next attempt is told what failed; the unit is due in `tried`."""
    ledger = fold(*failed("a", 2, "red"))
    assert ledger.unit("a").failures == 2
    assert ledger.unit("a").notes == ["attempt 1: red", "attempt 2: red"]
    assert ledger.unit("a").settled
    assert ledger.due["a"] == Due(Bucket.tried, "red", counted=True)


def test_a_pass_waits_for_its_merge_and_only_then_is_passed() -> None:
    """Until the merged branch holds it, it is in no hurry to be called passed."""
    passed = verdict("a", "pass")
    ledger = fold(ordered("a"), reported(passed))
    assert ledger.unit("a").waiting == passed
    assert "a" not in ledger.due
    ledger.add(merged("a"))
    assert ledger.unit("a").waiting is None
    assert ledger.due["a"] == Due(Bucket.passed)
    assert ledger.tip == ledger.unit("a").merged == "e" * 40


def test_a_question_keeps_the_attempt_open_until_it_is_answered() -> None:
    """The answer carries the pause it is for, and the unit goes to the top of `open`."""
    question = verdict("a", "block", question="Which?", pause_seq=7, pause_call="q")
    ledger = fold(ordered("a"), reported(question))
    found = ledger.unit("a")
    assert (found.question, found.settled, found.in_flight) == (question, False, False)
    ledger.add(asked("answer", "a", text="This."))
    assert [(one.text, one.seq, one.call) for one in found.answers] == [("This.", 7, "q")]
    assert found.question is None
    assert ledger.due["a"] == Due(Bucket.open, first=True)


def test_a_refused_request_changes_nothing_but_is_known() -> None:
    """So that it is not asked about again."""
    ledger = fold(*failed("a", 1), asked("retry", "a", obeyed=False))
    assert ledger.unit("a").failures == 1
    assert ledger.asked == {"00000000000000000001-00000000"}


def test_a_retry_forgives_everything_and_starts_a_fresh_context() -> None:
    """Failures, conflicts, losses and money count anew; notes stay, and what was spent stays spent."""
    ledger = fold(
        ordered("a"),
        lost("a"),
        ordered("a", 1, 2),
        reported(verdict("a", "fail", 1, 2, note="red", cost=dollars("2"))),
        asked("retry", "a"),
    )
    found = ledger.unit("a")
    assert (found.failures, found.losses, found.settled) == (0, 0, True)
    assert found.notes == ["attempt 1: red"]
    assert (found.cost, found.forgiven, ledger.spent) == (dollars("2"), dollars("2"), dollars("2"))


def test_only_claimed_losses_without_progress_count() -> None:
    """An order that nobody took costs nothing; a loss further on than the last one was progress (rule 12)."""
    assert facts(ordered("a"), lost("a", claimed=False)).losses == 0
    assert facts(ordered("a"), lost("a"), ordered("a", 1, 2), lost("a", 1, 2)).losses == 2
    assert facts(ordered("a"), lost("a", done=2), ordered("a", 1, 2), lost("a", 1, 2, done=3)).losses == 1
    assert facts(ordered("a"), lost("a", done=5), ordered("a", 1, 2), lost("a", 1, 2, done=5)).losses == 2
    again = facts(ordered("a"), lost("a", step=5, done=4), ordered("a", 1, 2), lost("a", 1, 2, step=6, done=4))
    assert (again.losses, again.lost_in_all) == (2, 2)  # the step it was lost in, begun anew: no progress


def test_an_attempt_s_cost_is_the_newest_sum_of_its_session() -> None:
    """However often it is reported, accepted or refused: booked once (rule 15)."""
    ledger = fold(
        ordered("a"),
        reported(release("a", "stopped", 1, 1, cost=dollars("1"))),
        ordered("a", 1, 2),
        reported(verdict("a", "fail", 1, 1, cost=dollars("1")), "given up"),
        reported(verdict("a", "fail", 1, 2, cost=dollars("1.5"))),
        ordered("a", 2),
        reported(verdict("a", "pass", 2, 1, cost=dollars("0.25"))),
    )
    assert ledger.spent == dollars("1.75")


def test_a_cost_that_is_unknown_is_said_to_be() -> None:
    """And counts as nothing. A hand-out that came to no step has spent nothing, whether it says so or not."""
    ledger = fold(ordered("a"), reported(verdict("a", "pass", cost=None, steps=1)))
    assert ledger.unit("a").unpriced
    assert ledger.spent == Decimal(0)
    ledger = fold(ordered("a"), reported(release("a", "busy", 1, 1, cost=None)))
    assert not ledger.unit("a").unpriced


def test_what_is_in_flight_holds_its_reserve() -> None:
    """And gives it back when it is reported or lost."""
    ledger = fold(ordered("a", reserve=dollars("5")), ordered("b", reserve=dollars("3")))
    assert ledger.reserved == dollars("8")
    ledger.add(reported(verdict("a", "fail", cost=dollars("1"))))
    assert (ledger.reserved, ledger.spent) == (dollars("3"), dollars("1"))


@pytest.mark.parametrize("reason", ["stopped", "shutdown", "busy", "session", "budget"])
def test_a_release_on_our_own_account_costs_nothing(reason: str) -> None:
    """No attempt, no loss, and nothing towards the cap on infrastructure."""
    found = facts(ordered("a"), reported(release("a", reason)))
    assert (found.releases, found.failures, found.in_flight, found.settled) == (0, 0, False, False)


def test_a_session_that_cannot_be_read_waits_for_a_person() -> None:
    """At once, as a verdict to block would: with the whole reason, no loss, and the same attempt or a new one next."""
    why = "its session: line 5 (byte 812) does not match its checksum. " + "x" * 200
    ledger = fold(ordered("a"), reported(release("a", "session", detail=why)))
    found = ledger.unit("a")
    assert ledger.due["a"] == Due(Bucket.blocked, why)
    assert (found.losses, found.releases, found.failures, found.settled) == (0, 0, 0, False)
    assert found.whole(one_line(why)) == why
    assert found.whole("a person's own note") == "a person's own note"
    ledger.add(asked("retry", "a"))
    assert found.settled


def test_releases_for_infrastructures_sake_are_counted_until_there_is_a_verdict() -> None:
    """They have a cap of their own."""
    entries = [ordered("a"), reported(release("a", "model")), ordered("a", 1, 2), reported(release("a", "disk", 1, 2))]
    assert facts(*entries).releases == 2
    assert facts(*entries, ordered("a", 1, 3), reported(verdict("a", "fail", 1, 3))).releases == 0


def test_a_new_run_with_embedded_workers_finds_nobody_in_flight() -> None:
    """They died with the last dispatcher; those on a broker of their own did not (rule 2)."""
    assert not facts(ordered("a"), started(2)).in_flight
    assert facts(ordered("a"), started(2, embedded=False)).in_flight


def test_a_refused_report_of_the_current_hand_out_ends_it() -> None:
    """Nobody is at work any more; a refused old one says nothing about the current one."""
    refused = facts(ordered("a"), reported(verdict("a", "pass"), "no commit"))
    assert not refused.in_flight
    assert refused.releases == 1  # so that it does not go round for ever
    assert facts(ordered("a", 1, 2), reported(verdict("a", "fail", 1, 1), "given up")).in_flight


def test_a_conflict_is_no_failed_attempt_and_a_red_merged_tree_is() -> None:
    """Both go to `tried` with their reason, and neither waits for a merge any more."""

    def after(why: str) -> Ledger:
        return fold(ordered("a"), reported(verdict("a", "pass")), j.MergeFailed(unit="a", attempt=1, why=why, note="n"))

    conflict, red = after("conflict"), after("verify")
    assert (conflict.unit("a").conflicts, conflict.unit("a").failures) == (1, 0)
    assert (red.unit("a").conflicts, red.unit("a").failures) == (0, 1)
    assert conflict.due["a"] == Due(Bucket.tried, "n")
    assert red.due["a"] == Due(Bucket.tried, "n", counted=True)
    assert conflict.unit("a").waiting is None


def test_an_intent_stands_until_it_is_done_or_dropped() -> None:
    """Whoever starts after a crash finds it (rule 18)."""
    intent = j.MergeIntent(unit="a", attempt=1, ref="r", old=None, new="n", tree="t")
    assert fold(intent).intent == intent
    assert fold(intent, merged("a")).intent is None
    assert fold(intent, j.MergeDropped(unit="a")).intent is None


def test_an_edit_that_takes_a_unit_away_voids_what_is_still_said_of_it() -> None:
    """Waived or cancelled: its verdict no longer counts; typed again, it is a unit again."""
    passed = [ordered("a"), reported(verdict("a", "pass"))]
    waived = fold(*passed, j.Edited(obeyed=[], refused=[], waived=["a"]))
    assert (waived.unit("a").waived, waived.unit("a").waiting) == (True, None)
    cancelled = fold(*passed, j.Edited(obeyed=[], refused=[], cancelled=["a"]))
    assert cancelled.cancelled == {"a"}
    assert cancelled.unit("a").waiting is None
    cancelled.add(j.Edited(obeyed=[], refused=[], adopted=["a"]))
    assert cancelled.cancelled == set()


def text(**buckets: str) -> str:
    state = State("Ours")
    for bucket, name in buckets.items():
        state = state.add(name, Bucket(bucket))
    return render(state)


def test_a_state_write_settles_what_it_shows() -> None:
    """And its text is kept by revision. What is due and not in it stays due: an adoption may be written in between."""
    shown = text(tried="a")
    ledger = fold(*failed("a", 1), merged("b"), written(4, shown))
    assert (ledger.due, ledger.rev, ledger.texts[4]) == ({}, 4, shown)
    without = fold(merged("a"), written(4, text(open="a")))
    assert without.due == {"a": Due(Bucket.passed)}
    without.add(written(5, text(passed="a")))
    assert without.due == {}
    at_once = written(4, text(blocked="a"), "a: open → blocked")  # its last failure had it blocked
    overtaken = fold(*failed("a", 3), at_once)
    assert overtaken.due == {}


def test_an_answer_that_no_write_shows_yet_stays_due() -> None:
    """The file broke between the answer and the write; mended, an adoption is written first."""
    question = reported(verdict("a", "block", question="Which?", pause_seq=7))
    ledger = fold(ordered("a"), question, asked("answer", "a", text="This."), written(4, text(blocked="a")))
    assert ledger.due == {"a": Due(Bucket.open, first=True)}


@given(
    st.lists(
        st.sampled_from(
            [
                *failed("a", 2),
                *failed("b", 1),
                lost("a"),
                merged("b"),
                started(2),
                written(1, text(open="a", tried="b")),
                asked("retry", "a"),
            ]
        )
    )
)
def test_folding_in_parts_is_folding_at_once(entries: list[object]) -> None:
    """The ledger of a run that goes on equals the one that the next run reads from the journal."""
    half = len(entries) // 2
    assert vars(fold(*entries[:half]).extend(entries[half:])) == vars(fold(*entries))


def test_units_know_nothing_of_each_other() -> None:
    """A stranger has no history, and asking for it makes none."""
    ledger = fold(*failed("a", 1))
    assert ledger.unit("b") == UnitFacts()


def test_a_failure_of_a_unit_that_a_person_blocked_meanwhile_is_not_due_for_ever() -> None:
    """Else it would be moved to `tried` the moment that somebody unblocks it."""
    blocked = State("Ours", "1130-k3v", 2).add("a", Bucket.blocked, "mine")
    ledger = fold(written(1, render(blocked)), *failed("a", 1), written(2, render(blocked)))
    assert ledger.due == {}
    assert ledger.unit("a").failures == 1
    ready = State("Ours", "1130-k3v", 2).add("a")
    assert fold(written(1, render(ready)), *failed("a", 1), written(2, render(ready))).due != {}


def test_runs_that_passed_a_unit_over_are_counted_until_it_is_handed_out() -> None:
    """From how each run ended; a person's retry begins anew, too."""
    over = [j.RunEnded(run=n, reason="limit", untouched=["a"]) for n in (1, 2)]
    assert facts(*over).passed_over == 2
    assert facts(*over, ordered("a")).passed_over == 0
    assert facts(*over, asked("retry", "a")).passed_over == 0
