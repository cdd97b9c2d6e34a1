"""Budgets: the one choke point for dollars and turns of units, runs and nights."""

from typing import Any

from entries import dollars, ordered, release, reported, started, unit, verdict
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.budget import Budget, Claim, Limits, budgets, claim_of, not_booked, spent_out, warnings
from dispatcher.decide import View, decide
from dispatcher.ledger import Ledger, UnitFacts
from dispatcher.state import State

NONE = Limits(night=None, unit=None, attempts=3, slots=8)


def limits(**more: Any) -> Limits:
    return Limits(**{"night": None, "unit": None, "attempts": 3, "slots": 8, **more})


def spent(name: str, cost: str, turns: int = 1, attempt: int = 1) -> list[Any]:
    return [ordered(name, attempt), reported(verdict(name, "fail", attempt, cost=dollars(cost), turns=turns))]


def test_a_runs_budget_counts_what_was_spent_since_it_began() -> None:
    """The night's counts everything."""
    ledger = Ledger().extend([started(1), *spent("a", "3"), started(2), *spent("b", "2", turns=4)])
    found = {(one.scope, one.unit): one for one in budgets(ledger, limits(night=dollars("9"), run=dollars("9")), {})}
    assert (found["night", "$"].spent, found["run", "$"].spent) == (dollars("5"), dollars("2"))
    turns = {one.scope: one.spent for one in budgets(ledger, limits(night_turns=9, run_turns=9), {})}
    assert turns == {"night": 5, "run": 4}


def test_what_is_at_work_is_reserved_until_its_report() -> None:
    """Then only what it really was is spent, whatever the verdict: a release is booked, too."""
    at_work = Ledger().extend([started(), ordered("a", reserve=dollars("5"))])
    (night,) = budgets(at_work, limits(night=dollars("9")), {})
    assert (night.spent, night.reserved, night.left) == (dollars("0"), dollars("5"), dollars("4"))
    at_work.add(reported(release("a", "stopped", cost=dollars("0.30"), turns=2)))
    (night,) = budgets(at_work, limits(night=dollars("9")), {})
    assert (night.spent, night.reserved) == (dollars("0.30"), dollars("0"))
    (turns,) = budgets(Ledger().extend([started(), ordered("a")]), limits(run_turns=20), {})
    assert turns.reserved == 5


def test_a_session_that_goes_on_is_not_booked_twice() -> None:
    """Its sum of dollars and of turns is the newest one."""
    ledger = Ledger().extend(
        [
            ordered("a"),
            reported(release("a", "stopped", cost=dollars("1"), turns=2)),
            ordered("a", 1, 2),
            reported(verdict("a", "fail", 1, 2, cost=dollars("1.5"), turns=3)),
        ]
    )
    assert (ledger.spent, ledger.turns, ledger.unit("a").turns_taken) == (dollars("1.5"), 3, 3)


def test_a_claim_is_all_that_the_unit_may_still_spend() -> None:
    """Its own limits before the config's; turns are never more than an attempt's rounds."""
    units = {"a": unit("a", limits={"turns": 7, "rounds": 4, "money": "$2"})}
    ledger = Ledger().extend(spent("a", "0.5", turns=4))
    assert claim_of("a", units, ledger.unit("a"), limits(unit=dollars("5"))) == Claim(dollars("1.5"), 3)
    assert claim_of("b", units, UnitFacts(), limits(turns=2)) == Claim(None, 2)
    assert claim_of("b", units, UnitFacts(), limits(unit=dollars("5"), run=dollars("1"))).money == dollars("1")


def test_turns_used_up_block_a_unit_and_a_retry_forgives_them() -> None:
    """For a person to raise them; fewer than an attempt's rounds go into the order."""
    ledger = Ledger().extend(spent("a", "0", turns=4))
    facts = ledger.unit("a")
    assert (
        spent_out(claim_of("a", {}, facts, limits(turns=4)), facts)
        == "unit limit of turns used up: 4; raise it, then retry"
    )
    view = View(State("Ours").add("a"), {"a": unit("a")}, ledger, limits(turns=6))
    assert decide(view).hand_outs[0].turns == 2
    facts.forgive()
    assert spent_out(claim_of("a", {}, facts, limits(turns=4)), facts) is None


def test_a_budget_that_does_not_cover_the_next_unit_is_named_with_what_it_lacks() -> None:
    """Only when nobody is at work, whose rest may do."""
    units = {name: unit(name) for name in "ab"}
    ledger = Ledger().extend([started(), *spent("a", "0.9")])
    plan = decide(View(State("Ours").add("b"), units, ledger, limits(unit=dollars("0.3"), run=dollars("1"))))
    assert (plan.hand_outs, plan.short, plan.next_claim, plan.idle) == ((), "the run's limit of $1", "$0.30", True)


def test_the_rest_of_the_money_is_used_by_one_unit_alone() -> None:
    """It claims less than its own limit then; what is less than sessions have cost on average is not begun with."""
    units = {name: unit(name) for name in "abc"}
    ledger, caps = Ledger().extend([started(), *spent("a", "0.21")]), limits(unit=dollars("5"), run=dollars("1"))
    (first,) = decide(View(State("Ours").add("b").add("c"), units, ledger, caps)).hand_outs
    assert (first.unit, first.reserve, first.bound) == ("b", dollars("0.79"), "run")
    ledger.extend(spent("b", "0.63"))
    plan = decide(View(State("Ours").add("c"), units, ledger, caps))
    assert (plan.hand_outs, plan.short, plan.next_claim) == ((), "the run's limit of $1", "$1.00")
    turns = limits(unit=dollars("5"), run=dollars("1"), run_turns=4)
    assert decide(View(State("Ours").add("c"), units, ledger, turns)).hand_outs == ()


def test_whose_limit_a_reserve_is() -> None:
    """The unit's, unless the run's or the night's whole money is less."""
    claim = claim_of("a", {}, UnitFacts(), limits(unit=dollars("5"), run=dollars("9"), night=dollars("2")))
    assert (claim.money, claim.bound) == (dollars("2"), "night")
    claim = claim_of("a", {}, UnitFacts(), limits(unit=dollars("5"), run=dollars("5")))
    assert (claim.money, claim.bound) == (dollars("5"), "unit")


def test_reserves_that_hold_slots_empty_are_said() -> None:
    """With the key that changes it; not where a slot is empty for want of units."""
    units = {name: unit(name) for name in "abc"}
    view = View(
        State("Ours").add_all(["a", "b", "c"]),
        units,
        Ledger().extend([started()]),
        limits(unit=dollars("5"), night=dollars("12")),
    )
    plan = decide(view)
    assert [one.unit for one in plan.hand_outs] == ["a", "b"]
    assert plan.held == (
        "6 of 8 slots stay empty: beside what is reserved for those at work the night's limit of $12 has $2.00 left, "
        "and the next unit may take $5.00; a lower [limits] unit reserves less for each"
    )
    assert decide(View(State("Ours").add("a"), units, view.ledger, view.limits)).held == ""


def test_what_those_at_work_have_spent_is_counted_once() -> None:
    """Not what was booked when the session was handed back, nor a unit whose report is in."""
    handed_back = [ordered("a"), reported(release("a", "stopped", cost=dollars("1"))), ordered("a", 1, 2)]
    ledger = Ledger().extend([*handed_back, *spent("b", "2"), ordered("c")])
    told = {"a": dollars("1.5"), "b": dollars("2"), "c": dollars("0.25"), "x": dollars("9")}
    assert not_booked(told, ledger) == dollars("0.75")


def test_a_warning_comes_at_80_percent_and_again_when_all_is_gone() -> None:
    """With what those at work say they have spent; once for each."""
    night = Budget("night", "$", dollars("10"), dollars("7"), dollars("0"))
    assert warnings([night]) == {}
    assert warnings([night], dollars("1.2")) == {"night $ near": "the night's limit of $10 is 82% used: $8.20"}
    assert warnings([night], dollars("3")) == {"night $ over": "the night's limit of $10 is used up: $10.00"}
    turns = Budget("run", "turns", dollars("10"), dollars("9"), dollars("0"))
    assert warnings([turns], dollars("3")) == {"run turns near": "the run's limit of 10 turns is 90% used: 9 turns"}


@given(
    costs=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    cap=st.integers(10, 300),
    slots=st.integers(1, 5),
    order=st.randoms(use_true_random=False),
)
def test_never_more_than_the_budget_is_promised_or_spent(costs: list[int], cap: int, slots: int, order: Any) -> None:
    """Units that keep to their reserve never take a run over its budget, however reports and hand-outs interleave."""
    names = [f"u{n}" for n in range(len(costs))]
    units = {name: unit(name) for name in names}
    state, ledger = State("Ours").add_all(names), Ledger().extend([started()])
    caps = Limits(None, dollars("0.40"), 3, slots, run=dollars(cap) / 100)
    working: list[Any] = []
    for _ in range(200):
        plan = decide(View(state, units, ledger, caps))
        for one in plan.hand_outs:
            ledger.add(ordered(one.unit, one.attempt, one.epoch, reserve=one.reserve))
            working.append(one)
        assert ledger.spent + ledger.reserved <= caps.run
        if not working:
            assert plan.idle
            break
        done = working.pop(order.randrange(len(working)))
        cost = min(dollars(costs[int(done.unit[1:])]) / 100, done.reserve)
        ledger.add(reported(verdict(done.unit, "pass", done.attempt, done.epoch, cost=cost)))
        state = state.remove(done.unit)
        ledger.unit(done.unit).waiting = None
    assert ledger.spent <= caps.run
