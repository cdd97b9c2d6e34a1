"""The ledger: what the journal says of each unit, folded entry by entry. Pure; the journal is the only source."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from dispatcher import journal as j
from dispatcher.moves import Cause, may
from dispatcher.revisions import Revisions
from dispatcher.state import Bucket, one_line, parse
from workers.orders import Answered, ForkPoint, Release, Told, UnitReport

__all__ = ["Due", "Ledger", "Lesson", "UnitFacts"]

_CAUSES = {
    Bucket.tried: Cause.failed,
    Bucket.passed: Cause.merged,
    Bucket.blocked: Cause.stuck,
    Bucket.open: Cause.asked,
}


@dataclass(frozen=True, slots=True)
class Due:
    """Where an entry puts a unit, until a state write has done so. `counted`: the attempt counts as a failure."""

    bucket: Bucket
    note: str = ""
    counted: bool = False
    first: bool = False

    @property
    def cause(self) -> Cause:
        """Why the unit moves: each bucket is reached for one reason only."""
        return _CAUSES[self.bucket]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What came of an attempt that did not pass: a line, the agent's last words, the end of verify's output."""

    attempt: int
    note: str
    summary: str = ""
    output: str = ""


@dataclass
class UnitFacts:
    """One unit's history in this night.

    `attempt` and `epoch` are of the last order; `failures` and `conflicts` are attempts that did not pass since the
    last `retry`; `losses` are claimed epochs without progress, `releases` hand-backs for infrastructure's sake.
    `bases` has the commit that each attempt started from; `fork` is what the next attempt goes on from, `forked`
    what the current one did. `passed_over` counts runs in a row in which it was ready and never handed out.
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
    lost_in_all: int = 0  # claimed epochs lost since the last verdict, progress or not
    done_when_lost: int = 0
    releases: int = 0
    passed_over: int = 0
    notes: list[str] = field(default_factory=list)
    lessons: list[Lesson] = field(default_factory=list)
    turns: dict[int, int] = field(default_factory=dict)  # by attempt, as the session counts them
    forgiven_turns: int = 0
    costs: dict[int, Decimal] = field(default_factory=dict)  # by attempt: the session's own sum, so never twice
    forgiven: Decimal = Decimal(0)  # what had been spent when a person last asked for a retry
    unpriced: bool = False
    waiting: UnitReport | None = None  # a pass that is not merged yet
    passed_as: UnitReport | None = None  # the last pass, whatever became of it
    question: UnitReport | None = None
    answers: tuple[Answered, ...] = ()
    told: tuple[Told, ...] = ()  # all that people said to it: an order carries all, a session hears each once
    blocked_as: str = ""  # why it was last blocked, in full: the state file's note is cut
    is_cancelled: bool = False
    merged: str | None = None
    waived: bool = False

    @property
    def cost(self) -> Decimal:
        """Dollars spent on all attempts, as far as prices are known."""
        return sum(self.costs.values(), Decimal(0))

    @property
    def turns_taken(self) -> int:
        """Turns of all attempts since the last retry."""
        return sum(self.turns.values()) - self.forgiven_turns

    def whole(self, note: str) -> str:
        """Return what a note of the state file is the beginning of, where it was written for the last block."""
        return self.blocked_as if note and note == one_line(self.blocked_as) else note

    @property
    def is_fresh(self) -> bool:
        """Tell whether a retry would change nothing: no attempt has begun since the last one, and nothing counts."""
        counted = self.failures or self.conflicts or self.losses or self.releases or self.untaken or self.passed_over
        is_waiting = self.question is not None or self.fork is not None or self.is_cancelled
        has_spent = self.cost > self.forgiven or self.turns_taken > 0
        return self.settled and not (counted or self.lost_in_all or is_waiting or has_spent)

    def forgive(self) -> None:
        """Start counting anew, because a person asked for a retry: a new attempt in a fresh context.

        Whoever is at work goes on, and its verdict counts.
        """
        self.failures = self.conflicts = self.losses = self.releases = self.untaken = self.passed_over = 0
        self.lost_in_all = 0
        self.forgiven = self.cost
        self.is_cancelled = False
        self.forgiven_turns = sum(self.turns.values())
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
        self.texts = Revisions()
        self.units: dict[str, UnitFacts] = {}
        self.verified: dict[tuple[str, str], j.Verified] = {}
        self.intent: j.MergeIntent | None = None
        self.tip: str | None = None
        self.asked: set[str] = set()
        self.cancelled: set[str] = set()
        self.paused = False
        self.reports: set[str] = set()
        self.due: dict[str, Due] = {}
        self.ended: j.RunEnded | None = None  # how the last run ended that came to an end
        self.archived: j.Archived | None = None
        self.committing: j.StateCommitted | None = None
        self.state_commits: set[str] = set()
        self.quickest: float | None = None  # seconds of the quickest hand-out that ended in a verdict
        self.spent = Decimal(0)  # dollars of the whole night
        self.turns = 0
        self.spent_before = Decimal(0)  # this run
        self.turns_before = 0
        self._buckets: dict[str, Bucket] | None = None

    def extend(self, entries: Iterable[Any]) -> "Ledger":
        """Fold entries in and return self."""
        for entry in entries:
            self.add(entry)
        return self

    def unit(self, unit: str) -> UnitFacts:
        """Return a unit's facts; an unknown one has none yet."""
        return self.units.setdefault(unit, UnitFacts())

    def passed_verify(self, tree: str, command: str, setup: str | None = None) -> bool:
        """Tell whether the journal holds a passed verify of this very tree by this command behind `setup` (rule 17)."""
        found = self.verified.get((tree, command))
        return found is not None and found.passed and found.setup == (setup or "")

    @property
    def reserved(self) -> Decimal:
        """Dollars that hand-outs in flight may still spend: a lost log keeps its reserve until it is known."""
        held = (facts.reserve for facts in self.units.values() if facts.in_flight and facts.reserve is not None)
        return sum(held, Decimal(0))

    def add(self, entry: Any) -> None:
        """Fold one entry in; strangers change nothing."""
        match entry:
            case j.NightStarted() | j.RunStarted() | j.RunEnded():
                self._begun_or_ended(entry)
            case j.Verified():
                self.verified[entry.tree, entry.command] = entry
            case j.Written():
                self.rev = entry.rev
                self._written(entry)
            case j.Archived() | j.StateCommitted():
                self._put_away(entry)
            case j.Asked():
                self._asked(entry)
            case j.Edited():
                self._edited(entry)
            case j.Ordered() | j.Lost() | j.Spent() | j.Reported():
                self._work(entry)
            case j.MergeIntent() | j.MergeDone() | j.MergeDropped() | j.MergeFailed():
                self._merge(entry)
            case _:
                pass

    def _begun_or_ended(self, entry: j.NightStarted | j.RunStarted | j.RunEnded) -> None:
        match entry:
            case j.NightStarted():
                self.night, self.title = entry.night, entry.title
                self.base, self.base_name = entry.base, entry.base_name
                for unit, notes in entry.notes.items():
                    self.unit(unit).notes = list(notes)
            case j.RunStarted():
                self.runs = entry.run
                self.spent_before, self.turns_before = self.spent, self.turns
                if entry.embedded:  # whoever was at work is dead (rule 2), and its session goes on
                    for facts in self.units.values():
                        facts.in_flight = False
            case j.RunEnded():
                self.ended = entry
                for unit in entry.untouched:
                    self.unit(unit).passed_over += 1

    def _put_away(self, entry: j.Archived | j.StateCommitted) -> None:
        if isinstance(entry, j.Archived):
            self.archived = entry
        elif entry.is_done:
            self.committing = None
            self.state_commits.add(entry.new)
        else:
            self.committing = entry

    def _written(self, entry: j.Written) -> None:
        """Take in where everybody is now, and forget what was due and need not be done any more.

        An adoption may be written before what a merge made due. What the table of moves does not allow from where a
        unit is now (a person, or a cap, has blocked it) will never be done: else it would be due for ever.
        """
        was = self._buckets_before(entry)
        self.texts.keep(entry.rev, entry.text, entry.change)
        if not entry.change:
            self._buckets = None  # read again when somebody asks
        else:
            self._buckets = was
            _follow(was, entry.moves)
        if not self.due:
            return
        now = self._buckets = _buckets(entry.text) if self._buckets is None else self._buckets
        moved = {move.partition(":")[0] for move in entry.moves}
        for unit, due in list(self.due.items()):
            found = now.get(unit)
            was_blocked = unit in moved and found is Bucket.blocked and due.bucket is not Bucket.passed
            if found in (None, due.bucket) or was_blocked or not may(found, due.bucket, due.cause):
                del self.due[unit]

    def _buckets_before(self, entry: j.Written) -> dict[str, Bucket]:
        """Return who was where before a change; a full text says for itself who is where."""
        if not entry.change:
            return {}
        return _buckets(self.texts[entry.rev - 1]) if self._buckets is None else self._buckets

    def _work(self, entry: j.Ordered | j.Lost | j.Spent | j.Reported) -> None:
        match entry:
            case j.Ordered():
                facts = self.unit(entry.unit)
                if entry.attempt != facts.attempt:
                    facts.closed_epoch = facts.done_when_lost = 0
                    facts.answers = ()  # they are known by their place in the session of the attempt that asked
                    facts.fork, facts.forked = None, entry.fork
                facts.attempt, facts.epoch = entry.attempt, entry.epoch
                facts.base, facts.digest, facts.reserve = entry.base, entry.digest, entry.reserve
                facts.bases[entry.attempt] = entry.base
                facts.in_flight, facts.settled, facts.passed_over = True, False, 0
                facts.is_cancelled = False
            case j.Lost():
                facts = self.unit(entry.unit)
                facts.in_flight = False
                facts.untaken = 0 if entry.claimed else facts.untaken + 1
                if entry.cost is not None:  # what it told of; its log says it again when the session goes on
                    self._book(facts, entry.attempt, entry.cost)
                if entry.claimed:
                    facts.losses = 1 if entry.done > facts.done_when_lost else facts.losses + 1
                    facts.lost_in_all += 1
                    facts.done_when_lost = max(facts.done_when_lost, entry.done)
            case j.Spent():
                self._book(self.unit(entry.unit), entry.attempt, entry.cost)
            case j.Reported():
                self._reported(entry)

    def _reported(self, entry: j.Reported) -> None:
        report = entry.report
        self.reports.add(report.task_id)
        facts = self.unit(report.unit)
        if report.cost is None:  # which is also what a hand-out says that came to no step
            facts.unpriced = facts.unpriced or report.steps > 0
        else:  # the session's running sum: the newest is the whole, whatever became of the verdict (rule 15)
            self._book(facts, report.attempt, report.cost)
        more = max(0, report.turns - facts.turns.get(report.attempt, 0))
        facts.turns[report.attempt] = facts.turns.get(report.attempt, 0) + more
        self.turns += more
        if not entry.accepted:
            if (report.attempt, report.epoch) == (facts.attempt, facts.epoch):
                facts.in_flight = False  # whatever it said, nobody is at work any more
                facts.releases += 1  # and a pass whose commit never gets here must not go round for ever
            return
        facts.in_flight, facts.closed_epoch, facts.untaken = False, report.epoch, 0
        if report.kind == "release":
            self._released(report, facts)
        else:
            self._verdict(report, facts)

    def _released(self, report: Release, facts: UnitFacts) -> None:
        facts.releases += report.reason not in ("stopped", "shutdown", "busy", "session", "budget")
        if report.reason == "session":  # handing it out again would help nobody: a person must mend it
            facts.blocked_as = report.detail
            self.due[report.unit] = Due(Bucket.blocked, report.detail)

    def _book(self, facts: UnitFacts, attempt: int, cost: Decimal) -> None:
        """Book a session's running sum: the newest is the whole."""
        more = max(Decimal(0), cost - facts.costs.get(attempt, Decimal(0)))
        facts.costs[attempt] = facts.costs.get(attempt, Decimal(0)) + more
        self.spent += more

    def _verdict(self, report: UnitReport, facts: UnitFacts) -> None:
        facts.losses = facts.lost_in_all = facts.releases = 0
        facts.settled = report.question is None
        facts.question = report if report.question is not None else None
        if report.seconds > 0:
            self.quickest = min(report.seconds, self.quickest or report.seconds)
        if report.verdict != "pass" and facts.settled:
            facts.lessons.append(Lesson(report.attempt, report.note, report.summary, report.output))
        match report.verdict:
            case "pass":
                facts.waiting = facts.passed_as = report
            case "fail":
                facts.failures += 1
                facts.notes.append(f"attempt {report.attempt}: {report.note}")
                self.due[report.unit] = Due(Bucket.tried, report.note, counted=True)
            case "block":
                facts.blocked_as = report.note
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
                facts.lessons.append(self._lesson_of_merge(entry))
                self.due[entry.unit] = Due(Bucket.tried, entry.note, counted=entry.why == "verify")

    def _lesson_of_merge(self, entry: j.MergeFailed) -> Lesson:
        """Join what the agent had said of its pass with what the merged tree's verify said against it."""
        facts = self.unit(entry.unit)
        said = facts.passed_as.summary if facts.passed_as is not None else ""
        ran = (one for one in reversed(self.verified.values()) if one.unit == entry.unit and not one.passed)
        failed = next(ran, None) if entry.why == "verify" else None
        return Lesson(entry.attempt, entry.note, said, failed.output if failed is not None else "")

    def _asked(self, entry: j.Asked) -> None:
        request = entry.request
        self.asked.add(request["id"])
        if not entry.obeyed:
            return
        if request["kind"] in ("pause", "resume"):
            self.paused = request["kind"] == "pause"
        if "unit" not in request:
            return
        unit, facts = request["unit"], self.unit(request["unit"])
        match request["kind"]:
            case "answer" | "approve" | "deny" if facts.question is not None:
                facts.answers = (*facts.answers, _answered(request, facts.question))
                facts.question = None
                self.due[unit] = Due(Bucket.open, first=True)
            case "retry":
                facts.forgive()
                self.due[unit] = Due(Bucket.open)
            case "fork":
                facts.forgive()
                facts.fork = ForkPoint(attempt=request["attempt"], at=request["keep"])
                self.due[unit] = Due(Bucket.open, first=True)
            case "tell":
                facts.told = (*facts.told, Told(id=request["id"], text=request["text"], effort=request.get("effort")))
            case "cancel":  # whoever is at work is asked to go home, and what it still says counts no more
                facts.settled, facts.question, facts.answers, facts.is_cancelled = True, None, (), True
                self.due[unit] = Due(Bucket.blocked, "cancelled by a person")
            case "block":
                self.due[unit] = Due(Bucket.blocked, request["reason"] or "blocked by a person")
            case "unblock":
                self.due[unit] = Due(Bucket.open, first=True)
            case _:
                pass

    def _edited(self, entry: j.Edited) -> None:
        for unit in entry.retried:
            self.unit(unit).forgive()
        for unit in entry.waived:
            self.unit(unit).waived = True
        for unit in {*entry.waived, *entry.cancelled}:  # what is still being said of them counts no more
            self.unit(unit).settled, self.unit(unit).waiting = True, None
            self.due.pop(unit, None)
        for unit in entry.retried:  # a person's later word
            if self.due.get(unit) is not None and self.due[unit].bucket is not Bucket.passed:
                del self.due[unit]
        self.cancelled |= set(entry.cancelled)
        self.cancelled -= {*entry.adopted, *entry.retried}


def _answered(request: dict[str, Any], question: UnitReport) -> Answered:
    """Return what a person said to a question (`approved` None) or to a call that waited for their yes."""
    assert question.pause_seq is not None
    text = request.get("text") or request.get("reason") or ""
    approved = None if request["kind"] == "answer" else request["kind"] == "approve"
    return Answered(text=text, seq=question.pause_seq, call=question.pause_call, approved=approved)


def _buckets(text: str) -> dict[str, Bucket]:
    state = parse(text)
    return {unit: bucket for bucket in Bucket for unit in state.ids(bucket)}


def _follow(buckets: dict[str, Bucket], moves: Iterable[str]) -> None:
    """Bring a map of who is where up to date, in place."""
    for move in moves:
        unit, _, rest = move.partition(": ")
        to = rest.rpartition(" → ")[2]
        if to == "gone":
            buckets.pop(unit, None)
        else:
            buckets[unit] = Bucket(to)
