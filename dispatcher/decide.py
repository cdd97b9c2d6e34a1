"""What to do next: pure. (state, units, ledger, limits) → actions; `night` carries them out."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal

from dispatcher.ledger import Ledger, UnitFacts
from dispatcher.state import Bucket, State
from dispatcher.units import UnitFile, attempts_of

__all__ = ["Block", "HandOut", "Limits", "Plan", "View", "decide"]

# Claimed epochs without progress, and hand-backs for infrastructure's sake, until a person is asked (rule 12).
MOST_LOSSES = 3
MOST_RELEASES = 5
# Orders that nobody took: with the defaults each waits a minute, and workers of one's own may be slow to come.
MOST_UNTAKEN = 10


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps in force: dollars of the night and of a unit (None: no price is known), attempts, distinct units a run."""

    night: Decimal | None
    unit: Decimal | None
    attempts: int
    slots: int
    distinct: int | None = None


@dataclass(frozen=True, slots=True)
class View:
    """All that a decision depends on. `handed_out` are this run's units; those `held_back` wait for a while."""

    state: State
    units: Mapping[str, UnitFile]
    ledger: Ledger
    limits: Limits
    handed_out: Collection[str] = ()
    held_back: Collection[str] = ()
    closed: bool = False  # nothing more is handed out: stopped, out of time, engine trouble
    merging: bool = True  # what passed is still being merged


@dataclass(frozen=True, slots=True)
class HandOut:
    """Give a unit to a worker: a new attempt, or the same one under the next epoch. `reserve` in dollars."""

    unit: str
    attempt: int
    epoch: int
    reserve: Decimal | None


@dataclass(frozen=True, slots=True)
class Block:
    """Raise a unit to `blocked` for a person to see."""

    unit: str
    note: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now. `idle`: nothing can be handed out and nothing is in flight. `short`: money stopped somebody."""

    blocks: tuple[Block, ...]
    hand_outs: tuple[HandOut, ...]
    idle: bool
    short: bool = False
    capped: bool = False


def decide(view: View) -> Plan:
    """Return what follows from a view: first what must be blocked, then orders for free slots from the top."""
    blocks = tuple(found for unit in view.state.ready() if (found := _must_block(unit, view)) is not None)
    blocked = {block.unit for block in blocks}
    flying = sum(facts.in_flight for facts in view.ledger.units.values())
    hand_outs: list[HandOut] = []
    left = None if view.limits.night is None else view.limits.night - view.ledger.spent - view.ledger.reserved
    short = capped = False
    handed = set(view.handed_out)
    for unit in () if view.closed else view.state.ready():
        if unit in blocked or not _is_ready(unit, view):
            continue
        if view.limits.distinct is not None and unit not in handed and len(handed) >= view.limits.distinct:
            capped = True
            continue
        if flying + len(hand_outs) >= view.limits.slots:
            break
        reserve = _allowance(unit, view)
        if left is not None and reserve is not None and reserve > left:
            short = not flying and not hand_outs  # else what those in flight leave over may cover it
            break
        handed.add(unit)
        left = None if left is None or reserve is None else left - reserve
        hand_outs.append(_order(unit, view.ledger.unit(unit), reserve))
    waiting = view.merging and any(facts.waiting is not None for facts in view.ledger.units.values())
    held = any(_is_ready(unit, view, ignore_hold=True) for unit in view.held_back) and not view.closed
    idle = not (flying or hand_outs or waiting or blocks or held)
    return Plan(blocks, tuple(hand_outs), idle, short, capped)


def _must_block(unit: str, view: View) -> Block | None:
    facts = view.ledger.unit(unit)
    if facts.in_flight or facts.waiting is not None:
        return None
    most = attempts_of(unit, view.units, view.limits.attempts)
    last = facts.notes[-1].partition(": ")[2] if facts.notes else ""
    if facts.failures >= most:
        return Block(unit, f"{_times(facts.failures, 'attempt')} used up; last: {last}")
    if facts.conflicts >= 2 * most:
        return Block(unit, f"{_times(facts.conflicts, 'merge conflict')}; last: {last}")
    allowance = _allowance(unit, view)
    if allowance is not None and allowance <= 0:
        return Block(unit, f"unit limit of money used up: ${facts.cost:.2f}; raise it, then retry")
    if facts.losses >= MOST_LOSSES:
        return Block(unit, f"infrastructure: its worker was lost {facts.losses} times without progress")
    if facts.untaken >= MOST_UNTAKEN:
        return Block(unit, f"infrastructure: no worker took it, {facts.untaken} orders in a row")
    if facts.releases >= MOST_RELEASES:
        return Block(unit, f"infrastructure: handed back {facts.releases} times without progress")
    return None


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _is_ready(unit: str, view: View, *, ignore_hold: bool = False) -> bool:
    facts = view.ledger.unit(unit)
    if facts.in_flight or facts.waiting is not None or facts.merged is not None or unit not in view.units:
        return False
    if unit in view.held_back and not ignore_hold:
        return False
    return all(_has_passed(other, view) for other in view.units[unit].after)


def _has_passed(unit: str, view: View) -> bool:
    """A dependency counts when the merged branch holds it, or a person waived it; a status alone does not."""
    facts = view.ledger.unit(unit)
    return view.state.bucket_of(unit) is Bucket.passed and (facts.merged is not None or facts.waived)


def _allowance(unit: str, view: View) -> Decimal | None:
    """Return what a unit may still spend, over all its attempts since the last retry. None: no money limit.

    A hand-out reserves all of it: nothing is started that the budget cannot cover.
    """
    limits = view.limits
    if limits.unit is None:
        return None
    own = view.units[unit].limits.money if unit in view.units else None
    facts = view.ledger.unit(unit)
    left = (own or limits.unit) - (facts.cost - facts.forgiven)
    return left if limits.night is None else min(left, limits.night)


def _order(unit: str, facts: UnitFacts, reserve: Decimal | None) -> HandOut:
    if facts.settled:
        return HandOut(unit, facts.attempt + 1, 1, reserve)
    return HandOut(unit, facts.attempt, facts.epoch + 1, reserve)
