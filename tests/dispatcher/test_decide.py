"""What to do next: pure. Slots, order, dependencies, caps, and when there is nothing left to do."""

from typing import Any

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
    unit,
    verdict,
)
from hypothesis import given
from hypothesis import strategies as st

from dispatcher import journal as j
from dispatcher.decide import Block, HandOut, Limits, Plan, View, decide, untouched
from dispatcher.ledger import Ledger
from dispatcher.outcome import Outcome, was_whole
from dispatcher.state import Bucket, State

NO_MONEY = Limits(night=None, unit=None, attempts=3, slots=2)


def state(**buckets: str) -> State:
    made = State("Ours")
    for bucket, ids in buckets.items():
        for name in ids.split():
            made = made.add(name, Bucket(bucket))
    return made


def plan(
    where: State, *entries: object, limits: Limits = NO_MONEY, units: dict[str, Any] | None = None, **more: Any
) -> Plan:
    known = {name: unit(name) for name in where.ids()} | (units or {})
    return decide(View(where, known, Ledger().extend(entries), limits, **more))


def handed(found: Plan) -> list[str]:
    return [one.unit for one in found.hand_outs]


def test_free_slots_are_filled_from_the_top_of_open_then_tried() -> None:
    """Never more than there are slots."""
    assert handed(plan(state(open="a b c", tried="d"))) == ["a", "b"]
    assert handed(plan(state(open="a", tried="d"))) == ["a", "d"]
    assert handed(plan(state(open="a b"), ordered("x"), units={"x": unit("x")})) == ["a"]


def test_a_new_attempt_starts_at_epoch_one_and_a_resumed_one_goes_on() -> None:
    """A verdict ends an attempt; a loss, a release or an answer does not."""
    assert plan(state(open="a")).hand_outs == (HandOut("a", 1, 1, None),)
    assert plan(state(tried="a"), *failed("a", 1)).hand_outs == (HandOut("a", 2, 1, None),)
    assert plan(state(open="a"), ordered("a"), lost("a")).hand_outs == (HandOut("a", 1, 2, None),)
    assert plan(state(open="a"), ordered("a"), reported(release("a", "stopped"))).hand_outs == (
        HandOut("a", 1, 2, None),
    )
    question = reported(verdict("a", "block", question="?", pause_seq=3))
    answered = (ordered("a"), question, asked("answer", "a", text="x"))
    assert plan(state(open="a"), *answered).hand_outs == (HandOut("a", 1, 2, None),)


def killed(name: str, times: int, step: int = 0) -> list[Any]:
    """So many hand-outs whose worker died, each `step` steps further on than the one before."""
    return [
        entry
        for number in range(1, times + 1)
        for entry in (ordered(name, 1, number), lost(name, 1, number, done=step * number))
    ]


def test_a_unit_that_lost_two_workers_runs_alone_when_nothing_else_is_left() -> None:
    """It may be the one that takes the others' process along: nothing beside it, and it does not hold them up."""
    where = state(open="a b c")
    assert handed(plan(where, *killed("a", 1))) == ["a", "b"]
    assert handed(plan(where, *killed("a", 2))) == ["b", "c"]
    assert handed(plan(where, *killed("a", 2), ordered("b"))) == ["c"]
    assert handed(plan(where, *killed("a", 2), ordered("b"), ordered("c"))) == []
    assert handed(plan(state(open="a"), *killed("a", 2))) == ["a"]
    assert handed(plan(where, *killed("a", 2), ordered("a", 1, 3))) == []
    assert handed(plan(state(open="a b"), *killed("a", 2), *killed("b", 2))) == ["a"]
    assert not plan(where, *killed("a", 2), ordered("b"), ordered("c")).idle


def test_a_unit_whose_worker_always_dies_is_blocked_whether_it_gets_on_or_not() -> None:
    """After three losses in the same place, or seven in all: alone after four."""
    (block,) = plan(state(open="a"), *killed("a", 3)).blocks
    assert block == Block("a", "infrastructure: its worker was lost 3 times without progress")
    assert plan(state(open="a"), *killed("a", 6, step=5)).blocks == ()
    (block,) = plan(state(open="a"), *killed("a", 7, step=5)).blocks
    assert block == Block("a", "infrastructure: its worker was lost 7 times")
    assert handed(plan(state(open="a b"), *killed("a", 3, step=5))) == ["a", "b"]
    assert handed(plan(state(open="a b"), *killed("a", 4, step=5))) == ["b"]
    assert plan(state(open="a"), *killed("a", 7, step=5), asked("retry", "a")).blocks == ()


def test_what_is_in_flight_or_waits_for_its_merge_is_left_alone() -> None:
    """And the run is not over."""
    flying = plan(state(open="a"), ordered("a"))
    waiting = plan(state(open="a"), ordered("a"), reported(verdict("a", "pass")))
    assert handed(flying) == handed(waiting) == []
    assert not flying.idle
    assert not waiting.idle
    assert plan(state(open="a"), ordered("a"), reported(verdict("a", "pass")), merging=False).idle


def test_what_is_merged_is_never_handed_out_again() -> None:
    """Even where the state file has not caught up yet."""
    passed = (ordered("a"), reported(verdict("a", "pass")), merged("a"))
    assert handed(plan(state(open="a b"), *passed)) == ["b"]


def test_a_unit_waits_until_what_it_comes_after_is_merged_or_waived() -> None:
    """Standing in `passed` alone is not enough: the base must hold it, or a person must have said so."""
    units = {"b": unit("b", after=("a",))}
    assert handed(plan(state(open="b a"), units=units)) == ["a"]
    assert handed(plan(state(open="b", passed="a"), units=units)) == []
    assert handed(plan(state(open="b", passed="a"), merged("a"), units=units)) == ["b"]
    waived = j.Edited(obeyed=[], refused=[], waived=["a"])
    assert handed(plan(state(open="b", passed="a"), waived, units=units)) == ["b"]
    assert plan(state(open="b", blocked="a"), units=units).idle


def test_a_unit_without_a_unit_file_is_not_handed_out() -> None:
    """There is nothing to say what it is."""
    assert decide(View(state(open="a"), {}, Ledger(), NO_MONEY)).idle


@pytest.mark.parametrize(
    ("entries", "note"),
    [
        (failed("a", 3), "3 attempts used up; last: red"),
        (
            [ordered("a"), lost("a"), ordered("a", 1, 2), lost("a", 1, 2), ordered("a", 1, 3), lost("a", 1, 3)],
            "lost 3 times",
        ),
        (
            [entry for n in range(1, 6) for entry in (ordered("a", 1, n), reported(release("a", "model", 1, n)))],
            "handed back 5 times",
        ),
        (
            [j.MergeFailed(unit="a", attempt=n, why="conflict", note="in x") for n in range(1, 7)],
            "6 merge conflicts; last: in x",
        ),
    ],
    ids=["attempts", "losses", "releases", "conflicts"],
)
def test_what_cannot_go_on_is_blocked_with_its_reason(entries: list[object], note: str) -> None:
    """And not handed out; a retry makes it an ordinary unit again."""
    found = plan(state(tried="a"), *entries)
    assert [block.unit for block in found.blocks] == ["a"]
    assert note in found.blocks[0].note
    assert handed(found) == []
    assert not found.idle
    assert handed(plan(state(open="a"), *entries, asked("retry", "a"))) == ["a"]


def test_a_units_own_number_of_attempts_wins() -> None:
    """More or fewer than the config's."""
    one = {"a": unit("a", limits={"attempts": 1})}
    assert plan(state(tried="a"), *failed("a", 1, "red"), units=one).blocks == (
        Block("a", "1 attempt used up; last: red"),
    )
    assert handed(plan(state(tried="a"), *failed("a", 3), units={"a": unit("a", limits={"attempts": 5})})) == ["a"]


def money(night: str, per_unit: str = "5", slots: int = 4) -> Limits:
    return Limits(dollars(night), dollars(per_unit), 3, slots)


def spent(name: str, cost: str) -> list[object]:
    return [ordered(name, reserve=dollars("5")), reported(verdict(name, "fail", cost=dollars(cost)))]


def test_a_hand_out_reserves_all_that_the_unit_may_still_spend() -> None:
    """Over all its attempts since the last retry."""
    assert plan(state(open="a"), limits=money("50")).hand_outs[0].reserve == dollars("5")
    assert plan(state(tried="a"), *spent("a", "2"), limits=money("50")).hand_outs[0].reserve == dollars("3")
    again = plan(state(open="a"), *spent("a", "2"), asked("retry", "a"), limits=money("50"))
    assert again.hand_outs[0].reserve == dollars("5")
    own = plan(state(open="a"), limits=money("50"), units={"a": unit("a", limits={"money": "$9"})})
    assert own.hand_outs[0].reserve == dollars("9")


def test_a_unit_that_has_spent_its_limit_is_blocked() -> None:
    """For a person to raise it."""
    (block,) = plan(state(tried="a"), *spent("a", "5.5"), limits=money("50")).blocks
    assert block.note == "unit limit of money used up: $5.50; raise it, then retry"


def test_the_nights_limit_counts_what_is_spent_and_what_is_reserved() -> None:
    """What it cannot cover is not begun, and only when nobody is at work is the night short of money."""
    two = plan(state(open="a b c"), limits=money("11"))
    assert handed(two) == ["a", "b"]
    assert not two.short
    flying = plan(state(open="b"), ordered("a", reserve=dollars("5")), limits=money("9"), units={"a": unit("a")})
    assert (handed(flying), flying.short, flying.idle) == ([], "", False)
    over = plan(state(open="b", tried="a"), *spent("a", "4.6"), limits=money("9", "5"))
    assert (handed(over), over.short, over.idle) == ([], "the night's limit of $9", True)


def test_a_run_hands_out_at_most_so_many_distinct_units() -> None:
    """One of them may be handed out again; the others wait, and the run is over."""
    limits = Limits(None, None, 3, 4, distinct=2)
    assert handed(plan(state(open="a b c"), limits=limits)) == ["a", "b"]
    again = plan(state(open="c", tried="a"), *failed("a", 1), limits=limits, handed_out={"a", "b"})
    assert handed(again) == ["a"]
    over = plan(state(open="c"), limits=limits, handed_out={"a", "b"})
    assert (handed(over), over.capped, over.idle) == ([], True, True)


def test_a_closed_run_hands_out_nothing_and_ends_with_the_last_report() -> None:
    """Stopped, out of time, or in trouble."""
    assert plan(state(open="a"), closed=True).idle
    assert not plan(state(open="a b"), ordered("a"), closed=True).idle


def test_a_unit_that_is_held_back_waits_and_keeps_the_run_alive() -> None:
    """Until its time has come."""
    held = plan(state(open="a"), held_back={"a"})
    assert (handed(held), held.idle) == ([], False)
    assert plan(state(open="a"), held_back={"a"}, closed=True).idle


@given(
    entries=st.lists(
        st.sampled_from(
            [*failed("a", 2), *failed("b", 3), ordered("c"), lost("c"), merged("c"), reported(verdict("c", "pass"))]
        ),
        max_size=12,
    ),
    slots=st.integers(1, 4),
    closed=st.booleans(),
)
def test_whatever_happened_a_plan_is_sane(entries: list[object], slots: int, closed: bool) -> None:
    """No unit twice, none that is in flight or blocked by the same plan, never more than the slots; idle means idle."""
    where = state(open="a b", tried="c")
    ledger = Ledger().extend(entries)
    found = plan(where, *entries, limits=Limits(None, None, 3, slots), closed=closed)
    flying = {name for name, facts in ledger.units.items() if facts.in_flight}
    names = handed(found)
    assert len(names) == len(set(names))
    assert not set(names) & (flying | {block.unit for block in found.blocks})
    assert len(names) <= max(0, slots - len(flying))
    assert not (found.idle and (flying or names or found.blocks))
    assert not (closed and names)
    for one in found.hand_outs:  # identity never goes back (rule 1)
        before = ledger.unit(one.unit)
        assert (one.attempt, one.epoch) > (before.attempt, before.epoch)


def ended(run: int, *names: str, detail: str = "--limit 1") -> j.RunEnded:
    return j.RunEnded(run=run, reason="limit", detail=detail, untouched=list(names))


def test_units_that_share_a_group_never_run_together() -> None:
    """One after the other, from the top; others pass them by."""
    units = {name: unit(name, exclusive=("db",)) for name in ("a", "b")}
    limits = Limits(None, None, 3, 4)
    assert handed(plan(state(open="a b c"), units=units, limits=limits)) == ["a", "c"]
    flying = plan(state(open="a b c"), ordered("a"), units=units, limits=limits)
    assert (handed(flying), flying.idle) == (["c"], False)
    assert handed(plan(state(open="b", tried="a"), *failed("a", 1), units=units, limits=limits)) == ["b"]


def test_a_unit_waits_for_those_at_work_that_its_last_attempt_conflicts_with() -> None:
    """Also while they wait for their merge; then it goes on."""
    conflicts = {"a": {"b"}}
    entries = (*failed("a", 1), ordered("b"))
    assert handed(plan(state(open="b c", tried="a"), *entries, conflicts=conflicts)) == ["c"]
    passed = (*entries, reported(verdict("b", "pass")))
    assert handed(plan(state(open="b", tried="a"), *passed, conflicts=conflicts)) == []
    assert handed(plan(state(passed="b", tried="a"), *passed, merged("b"), conflicts=conflicts)) == ["a"]


def test_two_that_conflict_are_not_handed_out_together() -> None:
    """The one that is higher goes first."""
    entries = (*failed("a", 1), *failed("b", 1))
    assert handed(plan(state(tried="a b"), *entries, conflicts={"b": {"a"}, "a": {"b"}})) == ["a"]


def test_an_archived_unit_counts_when_the_base_holds_it() -> None:
    """A unit of that name in this night counts for itself."""
    units = {"b": unit("b", after=("old",))}
    where = state(open="b")
    assert handed(plan(where, units=units)) == []
    assert handed(plan(where, units=units, archived={"old": False})) == []
    assert handed(plan(where, units=units, archived={"old": True})) == ["b"]
    assert handed(plan(state(open="b", tried="old"), units=units, archived={"old": True})) == ["old"]


def test_an_attempt_whose_base_lacks_what_the_unit_needs_is_begun_anew() -> None:
    """On the tip; else it goes on where it was."""
    entries = (ordered("a"), lost("a"))
    assert plan(state(open="a"), *entries).hand_outs[0].attempt == 1
    assert plan(state(open="a"), *entries, outdated={"a"}).hand_outs == (HandOut("a", 2, 1, None),)


def test_a_unit_that_was_ready_in_three_runs_and_never_handed_out_is_blocked() -> None:
    """With how the last of them ended; 0 switches it off."""
    entries = [ended(n, "b") for n in (1, 2, 3)]
    (block,) = plan(state(open="a b"), *entries).blocks
    assert block == Block("b", "ready in 3 runs and never handed out; the last run ended: --limit 1")
    assert plan(state(open="a b"), *entries[:2]).blocks == ()
    assert plan(state(open="a b"), *entries, limits=Limits(None, None, 3, 2, stale_after=0)).blocks == ()


def test_a_hand_out_or_a_persons_word_starts_the_count_of_runs_anew() -> None:
    """A run in which it was not ready neither counts nor breaks the row."""
    two = [ended(1, "a"), ended(2, "a")]
    assert plan(state(open="a"), *two, ended(3), ended(4, "a")).blocks != ()
    assert plan(state(open="a"), *two, asked("retry", "a"), ended(3, "a")).blocks == ()
    handed_out = (ordered("a"), reported(release("a", "stopped")))
    assert plan(state(open="a"), *two, *handed_out, ended(3, "a")).blocks == ()


def test_untouched_is_what_was_ready_and_not_handed_out() -> None:
    """Not what waits for another, is at work, or was handed out before."""
    units = {"c": unit("c", after=("a",))} | {name: unit(name) for name in "abd"}
    view = View(state(open="a b c d"), units, Ledger().extend([ordered("d")]), NO_MONEY, handed_out={"a"})
    assert untouched(view) == ["b"]


@pytest.mark.parametrize(
    ("reason", "ran_out", "counts"),
    [
        ("done", False, True),
        ("limit", False, True),
        ("stopped", True, True),
        ("stopped", False, False),
        ("engine", False, False),
        ("bad input", False, False),
    ],
)
def test_a_run_that_was_cut_short_passes_nobody_over(reason: str, ran_out: bool, counts: bool) -> None:
    """A person's stop and the machinery's trouble say nothing of a unit (spec S8); time and money that ran out do."""
    assert was_whole(Outcome(3, reason), ran_out=ran_out) is counts


def test_a_unit_that_no_worker_takes_is_blocked_and_says_so() -> None:
    """After ten orders in a row that nobody claimed, no sooner; whoever takes one begins the count anew."""

    def orders(count: int, first: int = 1) -> list[object]:
        epochs = range(first, first + count)
        return [entry for epoch in epochs for entry in (ordered("a", 1, epoch), lost("a", 1, epoch, claimed=False))]

    note = "infrastructure: no worker took it, 10 orders in a row"
    nine = plan(state(open="a"), *orders(9))
    assert (nine.blocks, nine.hand_outs) == ((), (HandOut("a", 1, 10, None),))
    ten = plan(state(open="a"), *orders(10))
    assert (ten.blocks, ten.hand_outs) == ((Block("a", note),), ())
    taken = [*orders(9), ordered("a", 1, 10), lost("a", 1, 10)]
    assert plan(state(open="a"), *taken, *orders(9, first=11)).blocks == ()
    facts = Ledger().extend(orders(10)).unit("a")
    assert (facts.failures, facts.losses, facts.lost_in_all) == (0, 0, 0)  # no attempt, and no worker, was lost


def test_while_the_state_file_cannot_be_written_nobody_is_blocked() -> None:
    """What must be blocked keeps no run from ending; it is at the next look that can write."""
    used_up = failed("a", 3)
    assert plan(state(tried="a"), *used_up).blocks != ()
    found = plan(state(tried="a"), *used_up, writable=False, closed=True)
    assert (found.blocks, found.idle) == ((), True)


def test_a_run_begins_at_most_so_many_attempts() -> None:
    """One that only goes on does not count."""
    limits = Limits(None, None, 3, 4, hand_outs=2)
    assert handed(plan(state(open="a b c"), limits=limits)) == ["a", "b"]
    going_on = plan(state(open="a c"), ordered("a"), lost("a"), limits=limits, begun=2)
    assert (handed(going_on), going_on.capped) == (["a"], True)


def test_nothing_is_begun_that_cannot_finish_before_the_run_must_end() -> None:
    """As far as the quickest attempt so far tells; what was begun goes on."""
    quick = [ordered("x"), reported(verdict("x", "fail", seconds=60.0))]
    found = plan(state(open="a"), *quick, seconds_left=59.0)
    assert (handed(found), found.late, found.idle) == ([], True, True)
    assert handed(plan(state(open="a"), *quick, seconds_left=61.0)) == ["a"]
    assert handed(plan(state(open="a"), seconds_left=1.0)) == ["a"]
    assert handed(plan(state(open="a"), *quick, ordered("a"), lost("a"), seconds_left=5.0)) == ["a"]


@pytest.mark.parametrize("reason", ["disk", "model", "key", "spend", "busy", "stopped", "shutdown", "budget"])
def test_infrastructure_is_never_an_attempt(reason: str) -> None:
    """A disk, the API, a key, a lost host: the same attempt goes on, and no failure is counted."""
    entries = (ordered("a"), reported(release("a", reason)))
    assert plan(state(open="a"), *entries).hand_outs == (HandOut("a", 1, 2, None),)
    facts = Ledger().extend(entries).unit("a")
    assert (facts.failures, facts.conflicts, facts.lessons) == (0, 0, [])
    lost_twice = (ordered("a"), lost("a"), ordered("a", 1, 2), lost("a", 1, 2, claimed=False))
    assert Ledger().extend(lost_twice).unit("a").failures == 0
