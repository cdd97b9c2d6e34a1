"""The model's use of the real pure functions: ledger, decision, acceptance and watch, of one unit's compact facts.

Each is called once for each different input and remembered; the model itself has no idea of what they do.
"""

from functools import cache
from typing import Any, NamedTuple

from dispatcher import journal as j
from dispatcher.accept import refusal
from dispatcher.budget import Limits
from dispatcher.decide import MOST_RELEASES, MOST_UNTAKEN, View, decide
from dispatcher.due import with_due
from dispatcher.ledger import Ledger
from dispatcher.state import Bucket, State, render
from dispatcher.units import UnitFile
from dispatcher.watch import _UNCLAIMED, Loss, Watch, _Count
from workers.lease import LeaseRecord
from workers.orders import Release, UnitReport

NIGHT, UNIT = "1130-k3v", "u"
# So many orders that nobody takes, or that come back, until a person is asked; the real caps are only larger.
FEW = 2
_UNITS = {UNIT: UnitFile(id=UNIT, goal="Do it.", verify="true")}
_HASH = "c" * 40

Token = tuple[int, int]
Report = tuple[int, int, str]
"""Attempt, epoch, and `pass`, `fail` or `busy`."""


class Facts(NamedTuple):
    """What the journal says of the unit, as far as the protocol depends on it."""

    attempt: int = 0
    epoch: int = 0
    closed: int = 0
    in_flight: bool = False
    settled: bool = True
    failures: int = 0
    untaken: int = 0
    losses: int = 0
    releases: int = 0
    waiting: int | None = None  # the epoch of a pass that is not merged yet
    intent: bool = False
    merged: bool = False
    due: str | None = None
    reports: frozenset[Report] = frozenset()

    @property
    def token(self) -> Token:
        return self.attempt, self.epoch


def report_of(report: Report) -> UnitReport | Release:
    """The real report or release."""
    attempt, epoch, word = report
    named = {"night": NIGHT, "unit": UNIT, "attempt": attempt, "epoch": epoch}
    if word == "busy":
        return Release(**named, reason="busy")
    passed = {"commit": _HASH, "tree": _HASH} if word == "pass" else {}
    return UnitReport(**named, verdict=word, digest="d", **passed)


def _entry(kind: str, *args: Any) -> Any:
    match kind:
        case "ordered":
            return j.Ordered(unit=UNIT, attempt=args[0], epoch=args[1], base=_HASH, digest="d")
        case "lost":
            return j.Lost(unit=UNIT, attempt=args[0], epoch=args[1], claimed=args[2])
        case "reported":
            return j.Reported(report=report_of(args[0]), accepted=args[1], reason="" if args[1] else "refused")
        case "intent":
            return j.MergeIntent(unit=UNIT, attempt=args[0], ref="m", old=None, new=_HASH, tree=_HASH)
        case "dropped":
            return j.MergeDropped(unit=UNIT)
        case "merged":
            return j.MergeDone(unit=UNIT, attempt=args[0], commit=_HASH)
        case "not merged":
            return j.MergeFailed(unit=UNIT, attempt=args[0], why="verify", note="red")
        case "run":
            return j.RunStarted(run=1, pid=1, host="h", slots=2, embedded=args[0])
        case _:
            raise AssertionError(kind)


def _ledger(facts: Facts) -> Ledger:
    ledger = Ledger()
    ledger.night = NIGHT
    of = ledger.unit(UNIT)
    of.attempt, of.epoch, of.closed_epoch = facts.attempt, facts.epoch, facts.closed
    of.in_flight, of.settled, of.failures = facts.in_flight, facts.settled, facts.failures
    of.untaken, of.losses, of.releases = facts.untaken, facts.losses, facts.releases
    if facts.waiting is not None:
        waiting = report_of((facts.attempt, facts.waiting, "pass"))
        assert isinstance(waiting, UnitReport)
        of.waiting = waiting
    of.merged = _HASH if facts.merged else None
    of.notes = ["note: red"] * facts.failures
    ledger.reports = {report_of(report).task_id for report in facts.reports}
    if facts.intent:
        ledger.add(_entry("intent", facts.attempt))
    return ledger


@cache
def fold(facts: Facts, *entry: Any) -> Facts:
    """Return the facts after one more journal entry, as the real ledger folds it in."""
    ledger = _ledger(facts)
    ledger.add(_entry(*entry))
    of = ledger.unit(UNIT)
    due = ledger.due.get(UNIT)
    return Facts(
        of.attempt,
        of.epoch,
        of.closed_epoch,
        of.in_flight,
        of.settled,
        of.failures,
        min(of.untaken, FEW),
        of.losses,
        min(of.releases, FEW),
        None if of.waiting is None else of.waiting.epoch,
        ledger.intent is not None,
        of.merged is not None,
        facts.due if due is None else due.bucket.value,
        facts.reports | {entry[1]} if entry[0] == "reported" else facts.reports,
    )


@cache
def knows(facts: Facts, report: Report) -> bool:
    """Tell whether the journal holds a report already: what the inbox looks at first."""
    return report_of(report).task_id in _ledger(facts).reports


@cache
def refused(facts: Facts, report: Report, readable: bool) -> bool:
    """Tell whether the real `refusal` refuses a report."""
    return refusal(report_of(report), _ledger(facts).unit(UNIT), has_commit=readable) is not None


@cache
def plan(facts: Facts, bucket: str, attempts: int) -> tuple[str, int, int] | None:
    """Return what the real `decide` wants: ("order", attempt, epoch), ("block", 0, 0), or nothing now."""
    ledger = _ledger(facts)
    of = ledger.unit(UNIT)
    of.untaken += MOST_UNTAKEN - FEW
    of.releases += MOST_RELEASES - FEW
    state = State("Model", NIGHT, 1).add(UNIT, Bucket(bucket))
    found = decide(
        View(state=state, units=_UNITS, ledger=ledger, limits=Limits(night=None, unit=None, attempts=attempts, slots=1))
    )
    if found.blocks:
        return "block", 0, 0
    for order in found.hand_outs:
        return "order", order.attempt, order.epoch
    return None


@cache
def settled_state(facts: Facts, bucket: str) -> tuple[Facts, str]:
    """Return facts and bucket after the state write that makes what is due so, by the real `with_due` and ledger."""
    ledger = _ledger(facts)
    before = State("Model", NIGHT, 1).add(UNIT, Bucket(bucket))
    ledger.due = {UNIT: _due(facts)}
    after = with_due(before, ledger, lambda _: 0)
    found = after.bucket_of(UNIT)
    assert found is not None
    ledger.add(j.Written(rev=1, text=render(after.stamped(NIGHT, 1)), moves=[f"{UNIT}: {bucket} → {found}"]))
    return facts._replace(due=facts.due if ledger.due else None), found.value


def _due(facts: Facts) -> Any:
    """What the ledger says is due, from the entry that made it so."""
    ledger = Ledger()
    match facts.due:
        case "passed":
            ledger.add(_entry("merged", 1))
        case "tried":
            ledger.add(_entry("not merged", 1))
        case _:
            raise AssertionError(facts.due)
    return ledger.due[UNIT]


@cache
def watched(mark: int | None, beat: int, *, here: bool, recalled: bool) -> tuple[str, int | None]:
    """Count one healthy poll by the real watch, with K = 1: the beat of the last poll → "", `recall`, `claimed` or
    `untaken`, and the new mark.

    The polls that an order may lie about before it is recalled are one here, too: more only cost time.
    """
    token = "1.1"
    watch = Watch(1, "r", recalled={(UNIT, token)} if recalled else set())
    if mark is not None:
        watch._counts = {UNIT: _Count(token, mark, _UNCLAIMED - 1)}
    records = {UNIT: LeaseRecord(token, "w" if beat else "", beat, {})} if here else {}
    found = watch.observe({UNIT: token}, records)
    after = watch._counts.get(UNIT)
    return _word(found), None if after is None else after.beat


def _word(losses: list[Loss]) -> str:
    if not losses:
        return ""
    return "recall" if losses[0].recall else "claimed" if losses[0].claimed else "untaken"
