"""What to do next: pure. (state, units, ledger, limits, facts of git) → actions; `night` carries them out."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from dispatcher.budget import Bound, Budget, Claim, Limits, budgets, claim_of, spent_out, within
from dispatcher.ledger import Ledger, UnitFacts
from dispatcher.state import Bucket, State
from dispatcher.units import UnitFile, attempts_of

__all__ = ["Block", "HandOut", "Limits", "Plan", "View", "decide", "untouched", "used_up", "waits_for"]

# Claimed epochs without progress, and hand-backs for infrastructure's sake, until a person is asked (rule 12).
MOST_LOSSES = 3
# Losses of an attempt in all, progress or not: a unit whose worker always dies somewhat further on ends, too. Fewer
# than the engine bears of one child (`_MOST_YOUNG_DEATHS`).
MOST_LOSSES_IN_ALL = 7
# From here on a unit runs alone: it may be the one that takes the others' process along.
LOSSES_UNTIL_ALONE, LOSSES_IN_ALL_UNTIL_ALONE = 2, 4
MOST_RELEASES = 5
# Orders that nobody took: with the defaults each waits a minute, and workers of one's own may be slow to come.
MOST_UNTAKEN = 10


@dataclass(frozen=True, slots=True)
class View:
    """All that a decision depends on. `handed_out` are this run's units; those `held_back` wait for a while.

    What git says: `archived` units of earlier nights, and whether the base holds them; `outdated` units, whose attempt
    began on a base without what they come after; `conflicts`, for a unit those whose work its last attempt conflicts
    with.
    """

    state: State
    units: Mapping[str, UnitFile]
    ledger: Ledger
    limits: Limits
    handed_out: Collection[str] = ()
    held_back: Collection[str] = ()
    closed: bool = False  # nothing more is handed out: stopped, out of time, engine trouble
    merging: bool = True  # what passed is still being merged
    paused: bool = False  # a person wants nothing handed out for now: the run waits for another word
    archived: Mapping[str, bool] = field(default_factory=dict)
    outdated: Collection[str] = ()
    conflicts: Mapping[str, Collection[str]] = field(default_factory=dict)
    begun: int = 0  # attempts that this run has begun
    seconds_left: float | None = None  # until the run must end
    writable: bool = True  # else nobody can be moved: the state file cannot be read


@dataclass(frozen=True, slots=True)
class HandOut:
    """Give a unit to a worker: a new attempt, or the same one under the next epoch. `reserve` in dollars.

    `turns` is what the attempt may take, where that is fewer than its verify rounds; `bound`: whose limit `reserve` is.
    """

    unit: str
    attempt: int
    epoch: int
    reserve: Decimal | None
    turns: int | None = None
    bound: Bound = "unit"


@dataclass(frozen=True, slots=True)
class Block:
    """Raise a unit to `blocked` for a person to see."""

    unit: str
    note: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now. `idle`: nothing can be handed out and nothing is in flight.

    `short` names the budget that does not cover the next unit; `capped`: the run may begin no more; `late`: there is
    too little time left to begin anything.
    """

    blocks: tuple[Block, ...]
    hand_outs: tuple[HandOut, ...]
    idle: bool
    short: str = ""
    capped: bool = False
    late: bool = False
    next_claim: str = ""  # what the next unit needs, where a budget is short
    held: str = ""  # why slots stay empty, where what is reserved for others holds them so


def decide(view: View) -> Plan:
    """Return what follows from a view: first what must be blocked, then orders for free slots from the top."""
    ready = view.state.ready()
    blocks = tuple(found for unit in ready if view.writable and (found := _must_block(unit, view)) is not None)
    flying = [unit for unit, facts in view.ledger.units.items() if facts.in_flight]
    merging = [unit for unit, facts in view.ledger.units.items() if facts.waiting is not None]
    queue = _Queue(view, flying, merging)
    if not view.closed and not view.paused:
        queue.fill(ready, {block.unit for block in blocks})
    waits = ready if view.paused else view.held_back
    held = any(is_ready(unit, view, ignore_hold=True) for unit in waits) and not view.closed
    idle = not (flying or queue.hand_outs or (view.merging and merging) or blocks or held)
    return Plan(
        blocks, tuple(queue.hand_outs), idle, queue.short, queue.capped, queue.late, queue.next_claim, queue.held
    )


class _Queue:
    """One pass over the queue, from the top, while there are slots and budgets cover what comes next."""

    def __init__(self, view: View, flying: Collection[str], merging: Collection[str]) -> None:
        self.view = view
        self.hand_outs: list[HandOut] = []
        self.short, self.next_claim, self.held, self.capped, self.late = "", "", "", False, False
        self._flying = len(flying)
        self._is_alone = any(_is_suspect(unit, view) for unit in flying)
        self._beside = {*flying, *merging}
        self._groups = {group for unit in flying for group in _groups(unit, view)}
        self._handed = set(view.handed_out)
        self._begun = view.begun
        self._claims: list[Claim] = []
        self._budgets: tuple[Budget, ...] | None = None

    def fill(self, ready: Collection[str], blocked: Collection[str]) -> None:
        """Hand out what can be; a budget that does not cover one unit is not spent on those behind it."""
        for unit in sorted(ready, key=lambda unit: _is_suspect(unit, self.view)):  # stable: else from the top
            if self._flying + len(self.hand_outs) >= self.view.limits.slots:
                return
            if unit in blocked or not is_ready(unit, self.view) or self._must_wait(unit) or self._is_capped(unit):
                continue
            if not self._take(unit):
                return

    def _must_wait(self, unit: str) -> bool:
        """Tell whether somebody at work now is in the unit's way: a shared group, or a conflict seen before.

        A unit that may have killed its workers is worked on alone, when nothing else is left to do (rule 12).
        """
        if self._is_alone or (_is_suspect(unit, self.view) and (self._flying or self.hand_outs)):
            return True
        beside = self._beside.intersection(self.view.conflicts.get(unit, ()))
        return bool(beside) or not self._groups.isdisjoint(_groups(unit, self.view))

    def _is_capped(self, unit: str) -> bool:
        limits, facts = self.view.limits, self.view.ledger.unit(unit)
        many = limits.distinct is not None and unit not in self._handed and len(self._handed) >= limits.distinct
        is_new = _is_new(unit, facts, self.view)
        often = limits.hand_outs is not None and is_new and self._begun >= limits.hand_outs
        quickest, left = self.view.ledger.quickest, self.view.seconds_left
        late = is_new and left is not None and quickest is not None and left < quickest
        self.capped, self.late = self.capped or many or often, self.late or late
        return many or often or late

    def _take(self, unit: str) -> bool:
        view, facts = self.view, self.view.ledger.unit(unit)
        claim = self._covered(claim_of(unit, view.units, facts, view.limits))
        if claim is None:
            return False
        is_new = _is_new(unit, facts, view)
        attempt, epoch = (facts.attempt + 1, 1) if is_new else (facts.attempt, facts.epoch + 1)
        rounds = view.units[unit].limits.rounds or view.limits.rounds
        turns = claim.turns if claim.turns < rounds else None
        self.hand_outs.append(HandOut(unit, attempt, epoch, claim.money, turns, claim.bound))
        self._begun += is_new
        self._is_alone = _is_suspect(unit, view)
        self._handed.add(unit)
        self._claims.append(claim)
        self._beside.add(unit)
        self._groups.update(_groups(unit, view))
        return True

    def _covered(self, claim: Claim) -> Claim | None:
        """Return a claim that every budget covers, None where there is none: while others work, their rest may do."""
        view = self.view
        if self._budgets is None:
            self._budgets = budgets(view.ledger, view.limits, view.units)
        short = [one for one in self._budgets if not one.covers(claim, self._claims)]
        if not short:
            return claim
        at_work = self._flying + len(self.hand_outs)
        if at_work:
            slots = view.limits.slots
            self.held = short[0].holds_back(claim, self._claims, slots - at_work, slots)
            return None
        less = within(claim, short, view.ledger)
        if less is None:
            self.short, self.next_claim = str(short[0]), short[0].wanted(claim)
        return less


def _is_suspect(unit: str, view: View) -> bool:
    """Tell whether a unit has lost so many workers that it runs alone, so as not to fail its neighbours (rule 12)."""
    facts = view.ledger.units.get(unit)
    if facts is None:
        return False
    return facts.losses >= LOSSES_UNTIL_ALONE or facts.lost_in_all >= LOSSES_IN_ALL_UNTIL_ALONE


def _groups(unit: str, view: View) -> Collection[str]:
    return view.units[unit].exclusive if unit in view.units else ()


def _is_new(unit: str, facts: UnitFacts, view: View) -> bool:
    """Tell whether the next order is a new attempt: the last one is over, or its base lacks what the unit needs."""
    return facts.settled or unit in view.outdated


def _must_block(unit: str, view: View) -> Block | None:
    facts = view.ledger.units.get(unit)
    if facts is None or facts.in_flight or facts.waiting is not None:
        return None
    if view.limits.stale_after and facts.passed_over >= view.limits.stale_after:
        return Block(unit, _stale(facts.passed_over, view.ledger))
    if not facts.attempt and not facts.conflicts:
        return None
    most = attempts_of(unit, view.units, view.limits.attempts)
    last = facts.notes[-1].partition(": ")[2] if facts.notes else ""
    if facts.failures >= most:
        return Block(unit, f"{_times(facts.failures, 'attempt')} used up; last: {last}")
    if facts.conflicts >= 2 * most:
        return Block(unit, f"{_times(facts.conflicts, 'merge conflict')}; last: {last}")
    spent = spent_out(claim_of(unit, view.units, facts, view.limits), facts)
    if spent is not None:
        return Block(unit, spent)
    trouble = _infrastructure(facts)
    return Block(unit, f"infrastructure: {trouble}") if trouble else None


def used_up(unit: str, view: View) -> str:
    """Return which of a unit's caps is used up, in words; "" where it may be handed out."""
    found = _must_block(unit, view)
    return "" if found is None else found.note


def _infrastructure(facts: UnitFacts) -> str:
    if facts.losses >= MOST_LOSSES:
        return f"its worker was lost {facts.losses} times without progress"
    if facts.lost_in_all >= MOST_LOSSES_IN_ALL:
        return f"its worker was lost {facts.lost_in_all} times"
    if facts.untaken >= MOST_UNTAKEN:
        return f"no worker took it, {facts.untaken} orders in a row"
    if facts.releases >= MOST_RELEASES:
        return f"handed back {facts.releases} times without progress"
    return ""


def _stale(runs: int, ledger: Ledger) -> str:
    ended = f"; the last run ended: {ledger.ended.detail or ledger.ended.reason}" if ledger.ended is not None else ""
    return f"ready in {_times(runs, 'run')} and never handed out{ended}"


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def untouched(view: View) -> list[str]:
    """Return the units that are ready and that this run has not handed out (spec S8)."""
    return [unit for unit in view.state.ready() if unit not in view.handed_out and is_ready(unit, view)]


def is_ready(unit: str, view: View, *, ignore_hold: bool = False) -> bool:
    """Tell whether a unit could be handed out, were there a slot and the money."""
    facts = view.ledger.units.get(unit)
    if facts is not None and (facts.in_flight or facts.waiting is not None or facts.merged is not None):
        return False
    if unit not in view.units or (unit in view.held_back and not ignore_hold):
        return False
    return all(_has_passed(other, view) for other in view.units[unit].after)


def waits_for(unit: str, view: View) -> tuple[str, ...]:
    """Return what a unit comes after and must still wait for."""
    return (
        tuple(other for other in view.units[unit].after if not _has_passed(other, view)) if unit in view.units else ()
    )


def _has_passed(unit: str, view: View) -> bool:
    """A dependency counts when the base holds its merged commit, or a person waived it; a status alone does not.

    What the journal calls merged is an ancestor of the merged branch's tip, which every new attempt starts from.
    """
    if view.state.bucket_of(unit) is None and unit not in view.units:
        return view.archived.get(unit, False)
    facts = view.ledger.unit(unit)
    return view.state.bucket_of(unit) is Bucket.passed and (facts.merged is not None or facts.waived)
