"""The ledger: what the journal says of each unit, folded entry by entry. Pure; the journal is the only source."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from dispatcher import journal as j
from dispatcher.state import Bucket, parse
from workers.orders import Answered, ForkPoint, UnitReport

__all__ = ["Due", "Ledger", "UnitFacts"]


@dataclass(frozen=True, slots=True)
class Due:
    """Where an entry puts a unit, until a state write has done so. `counted`: the attempt counts as a failure."""

    bucket: Bucket
    note: str = ""
    counted: bool = False
    first: bool = False


@dataclass
class UnitFacts:
    """One unit's history in this night.

    `attempt` and `epoch` are of the last order; `failures` and `conflicts` are attempts that did not pass since the
    last `retry`; `losses` are claimed epochs without progress, `releases` hand-backs for infrastructure's sake.
    `bases` has the commit that each attempt started from; `fork` is what the next attempt goes on from, `forked`
    what the current one did.
    """

    attempt: int = 0
    epoch: int = 0
    base: str = ""
    bases: dict[int, str] = field(default_factory=dict)
    fork: ForkPoint | None = None
    forked: ForkPoint | None = None
    digest: str = ""
    reserve: Decimal | None = None
    closed_epoch: int = 0  # the newest epoch of this attempt whose report was accepted
    in_flight: bool = False
    settled: bool = True  # the current attempt has its verdict, so that the next order is a new attempt
    failures: int = 0
    conflicts: int = 0
    untaken: int = 0  # orders in a row that nobody took
    losses: int = 0
    lost_at_step: int = 0
    releases: int = 0
    notes: list[str] = field(default_factory=list)
    costs: dict[int, Decimal] = field(default_factory=dict)  # by attempt: the session's own sum, so never twice
    forgiven: Decimal = Decimal(0)  # what had been spent when a person last asked for a retry
    unpriced: bool = False
    waiting: UnitReport | None = None  # a pass that is not merged yet
    question: UnitReport | None = None
    answers: tuple[Answered, ...] = ()
    merged: str | None = None
    waived: bool = False

    @property
    def cost(self) -> Decimal:
        """Dollars spent on all attempts, as far as prices are known."""
        return sum(self.costs.values(), Decimal(0))

    def forgive(self) -> None:
        """Start counting anew, because a person asked for a retry: a new attempt in a fresh context.

        Whoever is at work goes on, and its verdict counts.
        """
        self.failures = self.conflicts = self.losses = self.releases = self.untaken = 0
        self.forgiven = self.cost
        if not self.in_flight:
            self.settled, self.question, self.answers, self.fork = True, None, (), None


class Ledger:
    """The fold over a whole journal."""

    def __init__(self) -> None:
        self.night = ""
        self.title = ""
        self.base = ""
        self.base_name = ""
        self.runs = 0
        self.rev = 0
        self.texts: dict[int, str] = {}
        self.units: dict[str, UnitFacts] = {}
        self.verified: dict[tuple[str, str], j.Verified] = {}
        self.intent: j.MergeIntent | None = None
        self.tip: str | None = None
        self.asked: set[str] = set()
        self.cancelled: set[str] = set()
        self.reports: set[str] = set()
        self.due: dict[str, Due] = {}

    def extend(self, entries: Iterable[Any]) -> "Ledger":
        """Fold entries in and return self."""
        for entry in entries:
            self.add(entry)
        return self

    def unit(self, unit: str) -> UnitFacts:
        """Return a unit's facts; an unknown one has none yet."""
        return self.units.setdefault(unit, UnitFacts())

    def passed_verify(self, tree: str, command: str) -> bool:
        """Tell whether the journal holds a passed verify of exactly this tree by this command (rule 17)."""
        found = self.verified.get((tree, command))
        return found is not None and found.passed

    @property
    def spent(self) -> Decimal:
        """Dollars of the whole night."""
        return sum((facts.cost for facts in self.units.values()), Decimal(0))

    @property
    def reserved(self) -> Decimal:
        """Dollars that hand-outs in flight may still spend: a lost log keeps its reserve until it is known."""
        held = (facts.reserve for facts in self.units.values() if facts.in_flight and facts.reserve is not None)
        return sum(held, Decimal(0))

    def add(self, entry: Any) -> None:
        """Fold one entry in; strangers change nothing."""
        match entry:
            case j.NightStarted():
                self.night, self.title, self.base, self.base_name = (
                    entry.night,
                    entry.title,
                    entry.base,
                    entry.base_name,
                )
            case j.RunStarted():
                self.runs = entry.run
                if entry.embedded:  # whoever was at work is dead (rule 2), and its session goes on
                    for facts in self.units.values():
                        facts.in_flight = False
            case j.Verified():
                self.verified[entry.tree, entry.command] = entry
            case j.Written():
                self.rev = entry.rev
                self.texts[entry.rev] = entry.text
                self._settle(entry)
            case j.Asked():
                self._asked(entry)
            case j.Edited():
                self._edited(entry)
            case j.Ordered() | j.Lost() | j.Reported():
                self._work(entry)
            case j.MergeIntent() | j.MergeDone() | j.MergeDropped() | j.MergeFailed():
                self._merge(entry)
            case _:
                pass

    def _settle(self, entry: j.Written) -> None:
        """Forget what was due and is in the file now; an adoption may be written before what a merge made due.

        What was due and then had to be blocked, in one write, is settled too: else it would be due for ever.
        """
        if not self.due:
            return
        state, moved = parse(entry.text), {move.partition(":")[0] for move in entry.moves}
        for unit, due in list(self.due.items()):
            found = state.bucket_of(unit)
            was_blocked = unit in moved and found is Bucket.blocked and due.bucket is not Bucket.passed
            if found in (None, due.bucket) or was_blocked:
                del self.due[unit]

    def _work(self, entry: j.Ordered | j.Lost | j.Reported) -> None:
        match entry:
            case j.Ordered():
                facts = self.unit(entry.unit)
                if entry.attempt != facts.attempt:
                    facts.closed_epoch = facts.lost_at_step = 0
                    facts.answers = ()  # they are known by their place in the session of the attempt that asked
                    facts.fork, facts.forked = None, entry.fork
                facts.attempt, facts.epoch = entry.attempt, entry.epoch
                facts.base, facts.digest, facts.reserve = entry.base, entry.digest, entry.reserve
                facts.bases[entry.attempt] = entry.base
                facts.in_flight, facts.settled = True, False
            case j.Lost():
                facts = self.unit(entry.unit)
                facts.in_flight = False
                facts.untaken = 0 if entry.claimed else facts.untaken + 1
                if entry.cost is not None:  # what it told of; its log says it again when the session goes on
                    facts.costs[entry.attempt] = max(entry.cost, facts.costs.get(entry.attempt, Decimal(0)))
                if entry.claimed:
                    facts.losses = 1 if entry.step > facts.lost_at_step else facts.losses + 1
                    facts.lost_at_step = max(facts.lost_at_step, entry.step)
            case j.Reported():
                self._reported(entry)

    def _reported(self, entry: j.Reported) -> None:
        report = entry.report
        self.reports.add(report.task_id)
        facts = self.unit(report.unit)
        if report.cost is None:
            facts.unpriced = True
        else:  # the session's running sum: the newest is the whole, whatever became of the verdict (rule 15)
            facts.costs[report.attempt] = max(report.cost, facts.costs.get(report.attempt, Decimal(0)))
        if not entry.accepted:
            if (report.attempt, report.epoch) == (facts.attempt, facts.epoch):
                facts.in_flight = False  # whatever it said, nobody is at work any more
                facts.releases += 1  # and a pass whose commit never gets here must not go round for ever
            return
        facts.in_flight, facts.closed_epoch, facts.untaken = False, report.epoch, 0
        if report.kind == "release":
            facts.releases += report.reason not in ("stopped", "shutdown", "busy")
        else:
            self._verdict(report, facts)

    def _verdict(self, report: UnitReport, facts: UnitFacts) -> None:
        facts.losses = facts.releases = 0
        facts.settled = report.question is None
        facts.question = report if report.question is not None else None
        match report.verdict:
            case "pass":
                facts.waiting = report
            case "fail":
                facts.failures += 1
                facts.notes.append(f"attempt {report.attempt}: {report.note}")
                self.due[report.unit] = Due(Bucket.tried, report.note, counted=True)
            case "block":
                self.due[report.unit] = Due(Bucket.blocked, report.note)

    def _merge(self, entry: j.MergeIntent | j.MergeDone | j.MergeDropped | j.MergeFailed) -> None:
        match entry:
            case j.MergeIntent():
                self.intent = entry
            case j.MergeDone():
                facts = self.unit(entry.unit)
                facts.merged, facts.waiting, self.intent, self.tip = entry.commit, None, None, entry.commit
                self.due[entry.unit] = Due(Bucket.passed)
            case j.MergeDropped():
                self.intent = None
            case j.MergeFailed():
                facts = self.unit(entry.unit)
                facts.waiting = None
                facts.conflicts += entry.why == "conflict"
                facts.failures += entry.why == "verify"
                facts.notes.append(f"attempt {entry.attempt}: {entry.note}")
                self.due[entry.unit] = Due(Bucket.tried, entry.note, counted=entry.why == "verify")

    def _asked(self, entry: j.Asked) -> None:
        request = entry.request
        self.asked.add(request["id"])
        if not entry.obeyed:
            return
        facts = self.unit(request["unit"]) if "unit" in request else None
        if request["kind"] == "answer" and facts is not None and facts.question is not None:
            assert facts.question.pause_seq is not None
            facts.answers = (*facts.answers, Answered(text=request["text"], seq=facts.question.pause_seq))
            facts.question = None
            self.due[request["unit"]] = Due(Bucket.open, first=True)
        elif request["kind"] == "retry" and facts is not None:
            facts.forgive()
            self.due[request["unit"]] = Due(Bucket.open)
        elif request["kind"] == "fork" and facts is not None:
            facts.forgive()
            facts.fork = ForkPoint(attempt=request["attempt"], at=request["keep"])
            self.due[request["unit"]] = Due(Bucket.open, first=True)

    def _edited(self, entry: j.Edited) -> None:
        for unit in entry.retried:
            self.unit(unit).forgive()
        for unit in entry.waived:
            self.unit(unit).waived = True
        for unit in {*entry.waived, *entry.cancelled}:  # what is still being said of them counts no more
            self.unit(unit).settled, self.unit(unit).waiting = True, None
        self.cancelled |= set(entry.cancelled)
        self.cancelled -= {*entry.adopted, *entry.retried}
