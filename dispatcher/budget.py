"""Budgets: what a unit, a run and a night may still spend, in dollars and turns. The one choke point, and pure.

A hand-out claims all that the unit may still spend; the claim is reserved until its report says what it really was.
Nothing is begun that what is left does not cover in full; with nobody at work a unit may claim less, the rest of the
money. So the most that can be spent beyond a budget is the one step (of each unit at work) that crosses its line.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from dispatcher.ledger import Ledger, UnitFacts
from dispatcher.units import UnitFile

__all__ = [
    "WARN_AT",
    "Bound",
    "Budget",
    "Claim",
    "Limits",
    "budgets",
    "claim_of",
    "not_booked",
    "spent_out",
    "warnings",
    "within",
]

WARN_AT = Decimal("0.8")
"""The share of a budget from which on people are warned."""

Bound = Literal["unit", "run", "night"]
"""Whose limit it is that a claim ends at: a unit's own, or what its run or night has left."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps in force. Dollars of the night, the run and a unit, and turns of the same; None: no cap.

    `attempts` and `rounds` (verify rounds, the most turns that an attempt is given) are a unit's; `distinct` units
    and `hand_outs` (attempts begun) are a run's.
    """

    night: Decimal | None
    unit: Decimal | None
    attempts: int
    slots: int
    distinct: int | None = None
    run: Decimal | None = None
    turns: int | None = None
    run_turns: int | None = None
    night_turns: int | None = None
    rounds: int = 5
    hand_outs: int | None = None
    stale_after: int = 3


@dataclass(frozen=True, slots=True)
class Claim:
    """What a hand-out may spend. `money` None: no price is known, or no cap; `bound`: whose limit its money is."""

    money: Decimal | None
    turns: int
    bound: Bound = "unit"


@dataclass(frozen=True, slots=True)
class Budget:
    """One cap of a run or a night: what was spent, and what is reserved for those at work."""

    scope: Literal["run", "night"]
    unit: str  # "$" or "turns"
    cap: Decimal
    spent: Decimal
    reserved: Decimal

    @property
    def left(self) -> Decimal:
        """What can still be claimed."""
        return self.cap - self.spent - self.reserved

    def covers(self, claim: Claim, beside: Iterable[Claim] = ()) -> bool:
        """Say whether a claim fits beside others that were made since."""
        wanted = [self._of(one) for one in (claim, *beside)]
        return sum(wanted, Decimal(0)) <= self.left

    def _of(self, claim: Claim) -> Decimal:
        return (claim.money or Decimal(0)) if self.unit == "$" else Decimal(claim.turns)

    def holds_back(self, claim: Claim, beside: Iterable[Claim], empty: int, slots: int) -> str:
        """Return what to say of slots that stay empty for what is reserved, and what changes that."""
        left = self.left - sum((self._of(one) for one in beside), Decimal(0))
        rest = f"${left:.2f}" if self.unit == "$" else f"{left} turns"
        key = "unit" if self.unit == "$" else "rounds"
        return (
            f"{empty} of {slots} slots stay empty: beside what is reserved for those at work {self} has {rest} left, "
            f"and the next unit may take {self.wanted(claim)}; a lower [limits] {key} reserves less for each"
        )

    def wanted(self, claim: Claim) -> str:
        """Return what a claim takes of this budget, for people."""
        wanted = self._of(claim)
        return f"${wanted:.2f}" if self.unit == "$" else f"{wanted} turns"

    def amount(self, number: Decimal) -> str:
        """Return a number of dollars or turns for people."""
        return f"${number}" if self.unit == "$" else f"{number} turns"

    def __str__(self) -> str:
        return f"the {self.scope}'s limit of {self.amount(self.cap)}"


def budgets(ledger: Ledger, limits: Limits, units: Mapping[str, UnitFile]) -> tuple[Budget, ...]:
    """Return every cap that is set, with what it has come to."""
    flying = {unit: facts for unit, facts in ledger.units.items() if facts.in_flight}
    money = sum((facts.reserve for facts in flying.values() if facts.reserve is not None), Decimal(0))
    turns = sum(_turns(unit, units, facts, limits) for unit, facts in flying.items())
    found: tuple[tuple[Literal["run", "night"], str, Decimal | int | None, Decimal | int, Decimal | int], ...] = (
        ("night", "$", limits.night, ledger.spent, money),
        ("run", "$", limits.run, ledger.spent - ledger.spent_before, money),
        ("night", "turns", limits.night_turns, ledger.turns, turns),
        ("run", "turns", limits.run_turns, ledger.turns - ledger.turns_before, turns),
    )
    return tuple(
        Budget(scope, unit, Decimal(cap), Decimal(spent), Decimal(reserved))
        for scope, unit, cap, spent, reserved in found
        if cap is not None
    )


def claim_of(unit: str, units: Mapping[str, UnitFile], facts: UnitFacts, limits: Limits) -> Claim:
    """Return what a hand-out of the unit may spend: all that it has left, over all its attempts since a retry."""
    turns = _turns(unit, units, facts, limits)
    if limits.unit is None:
        return Claim(None, turns)
    own = units[unit].limits.money if unit in units else None
    left = (own or limits.unit) - (facts.cost - facts.forgiven)
    caps: list[tuple[Decimal | None, Bound]] = [(left, "unit"), (limits.run, "run"), (limits.night, "night")]
    money, bound = min(((cap, whose) for cap, whose in caps if cap is not None), key=lambda one: one[0])
    return Claim(money, turns, bound)


def within(claim: Claim, short: Sequence[Budget], ledger: Ledger) -> Claim | None:
    """Return the claim cut down to the rest of the money, None where the rest is too little to begin anything with.

    For when nobody is at work, whose reserve may come back. What sessions of the night have cost on average is enough;
    less would most likely be spent in vain. Only money is cut: with too few turns an attempt fails.
    """
    if claim.money is None or any(one.unit != "$" for one in short):
        return None
    least = min(short, key=lambda one: one.left)
    costs = [cost for facts in ledger.units.values() for cost in facts.costs.values() if cost > 0]
    enough = sum(costs, Decimal(0)) / max(1, len(costs))
    return replace(claim, money=least.left, bound=least.scope) if least.left > 0 and least.left >= enough else None


def _turns(unit: str, units: Mapping[str, UnitFile], facts: UnitFacts, limits: Limits) -> int:
    own = units[unit].limits if unit in units else None
    rounds = (own.rounds if own is not None else None) or limits.rounds
    cap = (own.turns if own is not None else None) or limits.turns
    return rounds if cap is None else min(rounds, cap - facts.turns_taken)


def spent_out(claim: Claim, facts: UnitFacts) -> str | None:
    """Return why a unit cannot be handed out any more, None while it has something left."""
    if claim.money is not None and claim.money <= 0:
        return f"unit limit of money used up: ${facts.cost:.2f}; raise it, then retry"
    if claim.turns <= 0:
        return f"unit limit of turns used up: {facts.turns_taken}; raise it, then retry"
    return None


def not_booked(told: Mapping[str, Decimal], ledger: Ledger) -> Decimal:
    """Return what those at work say they have spent, by unit, beyond what the journal has of their attempt already."""
    found = Decimal(0)
    for unit, cost in told.items():
        facts = ledger.units.get(unit)
        if facts is not None and facts.in_flight:
            found += max(Decimal(0), cost - facts.costs.get(facts.attempt, Decimal(0)))
    return found


def warnings(found: Iterable[Budget], spending: Decimal = Decimal(0)) -> Mapping[str, str]:
    """Return a line for each budget that is used to 80 % or more, by a name of it and how far it has come.

    `spending` are dollars that those at work say they have spent so far.
    """
    lines = {}
    for one in found:
        used = one.spent + (spending if one.unit == "$" else 0)
        share = used / one.cap
        if share >= WARN_AT:
            word = "used up" if share >= 1 else f"{share:.0%} used"
            number = f"{used:.2f}" if one.unit == "$" else f"{used}"
            name = f"{one.scope} {one.unit} {'over' if share >= 1 else 'near'}"
            lines[name] = f"{one} is {word}: {one.amount(Decimal(number))}"
    return lines
