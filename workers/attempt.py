"""One hand-out of one unit, from the claim's lock to the flushed report: session, worktree, turns, verify.

It owns the order of things and nothing else: the turn loop talks to the model, `worktrees` talks to git, the lease
says whether any of it may happen.
"""

import errno
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from worktrees.errors import DiskError, LockBusy, NestedRepository, WorktreesError
from worktrees.files import FileLock
from worktrees.process import base_environment
from worktrees.repository import Repository
from worktrees.worktree import Worktrees

from . import attachments, evidence, notes, prompt, reports, resume
from .agents.loader import Agents, Learn, learn_nothing
from .blocking import blocking
from .errors import EpochRefused, ImageRefused, LeaseLost, LogAlreadyOwned, LogError, LogWriteFailed
from .gate import LeaseGate
from .lease import HeldLease, boottime
from .model.patience import Waits
from .orders import ReleaseReason, Report, UnitOrder, UnitReport, Verdict
from .places import Places
from .session import events as ev
from .session.fork import fork, own
from .session.session import Session
from .tools import Workspace
from .turn.hooks import attached
from .turn.loop import Ended, ModelCall, Progress, TurnLoop
from .turn.stops import WINDOW_FULL
from .verify import headline
from .workplace import Workplace

__all__ = ["Job", "attempt"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})
_discovering = threading.Lock()
_discover = cache(Repository.discover)
_WINDOW_FULL = (
    "the model's context window is full, and a summary of the session did not make enough room: shorten the goal or "
    "the instructions, or take a model with a larger window"
)
_UNPRICED = (
    "this attempt cannot go on under a money limit: {what} is unknown; `overnight retry` begins a new one on the "
    "config's model"
)
_RELEASES: dict[str, ReleaseReason] = {
    "auth": "key",
    "spend_limit": "spend",
    "rate_limit": "model",
    "transient": "model",
}


@dataclass(frozen=True)
class Job:
    """A claimed order with what its host lends it. `heard` are called whenever the lease was confirmed or lost.

    `learn` asks the endpoint what the model of an agent takes; `waits` is how long the unit has waited for its model.
    """

    order: UnitOrder
    lease: HeldLease
    call: ModelCall
    show: Callable[[Progress], None]
    heard: list[Callable[[], None]] = field(default_factory=list)
    learn: Learn = learn_nothing
    waits: Waits = field(default_factory=Waits)

    @property
    def places(self) -> Places:
        """Where the unit's files are."""
        return Places(Path(self.order.home), self.order.night, self.order.unit)


async def attempt(job: Job) -> Report | None:
    """Work on a claimed order and return what is to be reported; None when it was not ours after all.

    Raises asyncio.CancelledError when the task is cancelled; nothing of the unit runs any more by then.
    """
    order, places = job.order, job.places
    lock = FileLock(places.lock)
    try:
        places.unit_dir.mkdir(parents=True, exist_ok=True)
        lock.acquire(f"{order.task_id} {job.lease.holder}")
    except LockBusy:
        return reports.release(order, "busy", "another process on this host still holds the unit")
    except (OSError, DiskError) as error:
        return reports.release(order, "disk", str(error))
    try:
        return await _under_lock(job)
    except (EpochRefused, LeaseLost):
        return None
    except LogError as error:
        return _without_log(order, error)
    except DiskError as error:  # of the disk, or of a path that an agent has ruined: that is the unit's own trouble
        if isinstance(error.__cause__, OSError) and error.__cause__.errno not in _FULL:
            raise
        return reports.release(order, "disk", str(error))
    except OSError as error:
        if error.errno not in _FULL:
            raise
        return reports.release(order, "disk", f"{error.strerror}: {error.filename or places.unit_dir}")
    finally:
        lock.release()


def _without_log(order: UnitOrder, error: LogError) -> Report:
    """Return what is said of a hand-out whose log cannot be written, or not even read: then it holds no verdict either.

    What was promised is damaged then, and a person must say how it goes on. The state file has room for the beginning.
    """
    if isinstance(error, LogWriteFailed):
        return reports.release(order, "disk", str(error))
    if isinstance(error, LogAlreadyOwned):
        return reports.release(order, "busy", str(error))
    said = (
        f"its session: {error.message}. `overnight unblock {order.unit}` then goes on with it; `overnight retry "
        f"{order.unit}` begins a new attempt instead. The log is {error.path}"
    )
    return reports.release(order, "session", said)


async def _under_lock(job: Job) -> Report | None:
    order, places, lease = job.order, job.places, job.lease
    with ExitStack() as opened:

        def take() -> Session:  # in the thread: a session that was opened while we were cancelled is closed too
            path = places.session(order.attempt)
            return opened.enter_context(closing(Session.open(path, lease.holder, lambda: lease.lost)))

        session = await blocking(take)
        _refuse_old_epoch(order, places, session)
        problem = await blocking(_fill, order, places, session)
        session.repair()
        gate = LeaseGate(
            lease=lease,
            budget=order.budget,
            deadline=boottime() + order.seconds,
            fence=order.fence,
            show=job.show,
            waits=job.waits,
        )
        job.heard.append(gate.look)
        repository = await blocking(_repository, Path(order.repository))
        return await _Attempt(job, session, gate, Worktrees(repository, places.worktrees)).run(problem)


def _repository(path: Path) -> Repository:
    """Discover a repository once a process: six git commands, the same for all units that start together."""
    with _discovering:
        return _discover(path)


def _refuse_old_epoch(order: UnitOrder, places: Places, session: Session) -> None:
    """Raise EpochRefused for an order that is not newer than what this host has seen (protocol rule 6)."""
    newest = max((int(path.name) for path in places.unit_dir.iterdir() if path.name.isdigit()), default=0)
    claim = session.last(ev.Claim)
    if order.attempt < newest or (claim is not None and order.epoch <= claim.epoch):
        raise EpochRefused(f"{order.task_id} is not newer than what was worked on already")


def _fill(order: UnitOrder, places: Places, session: Session) -> str | None:
    """Copy what a fork goes on from, unless that was done; the reason where it cannot be."""
    if order.fork is None or any(
        isinstance(event, ev.SessionFork) and event.attempt == order.attempt for event in session.events
    ):
        return None
    source = order.fork.attempt
    try:
        fork(places.session(source), order.fork.at, session, source_attempt=source, attempt=order.attempt)
    except LogWriteFailed:
        raise
    except LogError as error:
        return f"cannot go on from attempt {source}: {error}"
    return None


class _Attempt:
    """The attempt's steps, each of which leaves the session so that the next start finds its way."""

    def __init__(self, job: Job, session: Session, gate: LeaseGate, worktrees: Worktrees) -> None:
        self.order = order = job.order
        self.places = job.places
        self.call = job.call
        self.session = session
        self.gate = gate
        self.place = Workplace(order, job.places, session, gate, worktrees)
        self.started = boottime()
        self.agents = Agents(order, worktrees.repository, job.learn)

    async def run(self, problem: str | None = None) -> Report:
        """Go from wherever the session stands to a report; a problem that is known already is one for a person."""
        report = await self._work(problem)
        return await self._finish(report) if isinstance(report, UnitReport) else report

    async def _work(self, problem: str | None) -> Report:
        where = resume.standing(self.session.events, self.order.answers)
        await self._open_session()
        if problem is not None:
            return self._report("block", note=problem)
        if isinstance(where, resume.Settled):
            return UnitReport.model_validate(where.report).model_copy(update={"epoch": self.order.epoch})
        if isinstance(where, resume.Verified) and where.result.passed and where.result.digest == self.order.digest:
            return self._report("pass", result=where.result)
        rebuilt = await self.place.open()
        await blocking(notes.make_folder, self.places.scratch)
        problem = await self.place.set_up()
        if problem is not None:
            return self._report("block", note=problem)
        loop = self._loop()
        try:
            async with self.gate.waits.timeout(max(0.0, self.gate.deadline - boottime())):
                return await self._turns(loop, where, rebuilt=rebuilt)
        except TimeoutError:
            last = self.session.events[-1]
            if isinstance(last, ev.VerifyResult) and last.passed:  # time was up in the very moment
                return self._report("pass", result=last)
            return await self._out_of("time")

    async def _open_session(self) -> None:
        if not self.session.events:
            head = (await self.agents.fresh()).head()
            self.session.append(
                ev.SessionStart(
                    night=self.order.night,
                    unit=self.order.unit,
                    attempt=self.order.attempt,
                    base=self.order.base,
                    digest=self.order.digest,
                    agent=head.name,
                    model=head.model,
                    effort=head.effort,
                    system=head.system,
                    tools=head.tools,
                )
            )
        await self.session.record(ev.Claim(epoch=self.order.epoch, holder=self.gate.lease.holder))

    # -- turns and verify -----------------------------------------------------------------------------------------

    def _loop(self) -> TurnLoop:
        env = base_environment({notes.VARIABLE: str(self.places.scratch)})
        loop = TurnLoop(
            self.session,
            agents=self.agents,
            call=self.call,
            workspace=Workspace(self.place.tree.path, env, self.places.tag, self.places.scratch),
            gate=self.gate,
            hooks=attached(self.order, self.places, self.gate.lease),
        )
        self.gate.state = Progress(loop.turn, loop.step, "", loop.spent, loop.done)
        self.gate.loop = loop
        return loop

    async def _turns(self, loop: TurnLoop, where: resume.Standing, *, rebuilt: bool) -> Report:
        outcome = await self._first(loop, where, rebuilt=rebuilt)
        while isinstance(outcome, ev.UserMessage):
            outcome = await self._judge(await loop.run_turn(outcome))
        return outcome

    async def _first(  # noqa: PLR0911  # one flat match, a row a standing
        self, loop: TurnLoop, where: resume.Standing, *, rebuilt: bool
    ) -> ev.UserMessage | Report:
        """Return the message of the next turn, or the report, from where the session stood."""
        rebuilt = rebuilt and not _is_kept(self.session.events)
        gone = prompt.REBUILT.format(commit=await blocking(self.place.tree.head)) if rebuilt else ""
        match where:
            case resume.Fresh():
                return await self._goal()
            case resume.Suspended(pause, seq, None):
                return self._report("block", pause=pause, pause_seq=seq)
            case resume.Suspended() if model := self.agents.unpriced(self.session):
                return self._report("block", note=_UNPRICED.format(what=f"the price of {model!r}, its model,"))
            case resume.Suspended(pause, _, answer) if answer is not None:
                return await self._judge(await loop.resume(pause, answer, gone))
            case resume.CutShort(error) if error == WINDOW_FULL or not rebuilt:
                return await self._judge(Ended("max-tokens", facts={"error": error}))
            case resume.Unverified() | resume.CutShort() if rebuilt:
                return prompt.runtime(gone)
            case resume.Unverified():
                return await self._verify()
            case resume.Verified(result) if not result.passed:
                return await self._next_round(result)
            case resume.Verified():  # under a digest that is no longer in force
                return await self._verify()
            case _:
                failed = where.failed if isinstance(where, resume.Forked) else None
                is_new = rebuilt or isinstance(where, resume.Forked)
                words = prompt.REBUILT.format(commit=await blocking(self.place.tree.head)) if is_new else prompt.RESUMED
                return prompt.forked(words, failed)

    async def _goal(self) -> ev.UserMessage | Report:
        try:
            images = await blocking(attachments.read, self.place.tree.path, self.order.attach)
        except ImageRefused as error:
            return self._report("block", note=str(error))
        skills = await blocking(self.agents.invoked, self.order.goal)
        return prompt.goal(self.order, await blocking(notes.read, self.places.scratch), skills, images)

    async def _judge(self, ended: Ended) -> ev.UserMessage | Report:
        """Return what a turn's ending leads to; strangers among the endings are treated as errors (spec L8)."""
        match ended.reason:
            case "completed":
                return await self._verify()
            case "suspended":
                await self._keep()  # the answer may come on another day, to another tree
                return self._report("block", pause=ended.pause, pause_seq=ended.pause_seq)
            case "max-tokens" if ended.facts.get("error") == WINDOW_FULL:
                await self._keep()
                return self._report("block", note=_WINDOW_FULL)
            case "max-tokens" if self._rounds_used() < self.order.rounds:
                return prompt.cut_short()
            case "max-tokens":
                return self._report("fail", note="the answer hit the model's output limit in every round")
            case "aborted":
                return await self._aborted(str(ended.facts.get("cause", "")))
            case _:
                return await self._broken(ended)

    async def _aborted(self, cause: str) -> Report:
        """Keep the work of a turn that was asked to stop, and say why it stopped."""
        if cause == "time" or (cause == "budget" and self.order.budget_of == "unit"):
            return await self._out_of(cause)
        await self._keep()
        if cause == "budget":  # the unit has something left: it goes on when there is money again
            return await self._let_go("budget", f"the {self.order.budget_of}'s money is used up")
        if cause == "cancelled by a person":
            return self._report("block", note=cause)
        if cause == "price":
            return self._report("block", note=_UNPRICED.format(what="what its calls cost"))
        return await self._let_go("shutdown" if cause == "shutdown" else "stopped", "")

    async def _broken(self, ended: Ended) -> Report:
        """Tell trouble that is not the unit's (no attempt spent) from what its owner must see."""
        cause, message = str(ended.facts.get("cause", "")), str(ended.facts.get("message", ended.reason))
        if cause in _RELEASES:
            return await self._let_go(_RELEASES[cause], message)
        await self._keep()
        if ended.reason == "blocked":
            why = ended.facts.get("details", {}).get("explanation") or ended.facts.get("details", {}).get("category")
            return self._report("block", note=f"the model refused to go on{f': {why}' if why else ''}")
        if cause == "compaction":
            return self._report("block", note=message)
        return self._report("block", note=f"the model call failed: {message}")

    async def _verify(self) -> ev.UserMessage | Report:
        try:
            made = await self.place.checkpoint(f"{self.order.unit}: attempt {self.order.attempt}")
        except NestedRepository as error:
            return prompt.runtime(f"{error}. Remove it: a repository inside the worktree cannot be committed.")
        self.gate.progress(replace(self._progress(), tool="verify"))
        result = await self.place.verify(made)
        if result.passed:
            return self._report("pass", result=result)
        return await self._next_round(result)

    async def _next_round(self, result: ev.VerifyResult) -> ev.UserMessage | Report:
        if self._rounds_used() >= self.order.rounds:
            return self._report("fail", note=headline(result.output), result=result)
        made = self.session.last(ev.Checkpoint)
        return prompt.verify_failed(result, made.taken_back if made is not None else ())

    def _rounds_used(self) -> int:
        mine = own(self.session.events)
        cut = sum(isinstance(event, ev.TurnEnd) and event.reason == "max-tokens" for event in mine)
        return sum(isinstance(event, ev.VerifyResult) for event in mine) + cut

    # -- reports --------------------------------------------------------------------------------------------------

    async def _out_of(self, what: str) -> Report:
        await self._keep()
        notes = {
            "time": f"out of time after {self.order.seconds / 60:g} min",
            "budget": f"unit limit ${self.order.budget}",
        }
        return self._report("fail", note=notes[what])

    async def _keep(self) -> None:
        """Checkpoint work in progress; a tree that cannot be committed stays where it is."""
        try:
            await self.place.checkpoint(f"{self.order.unit}: work in progress")
        except NestedRepository:
            return

    def _progress(self) -> Progress:
        assert self.gate.state is not None
        return self.gate.state

    def _report(self, verdict: Verdict, **said: Any) -> UnitReport:
        return reports.verdict(self.order, self.session.events, verdict, self._seconds(), **said)

    def _seconds(self) -> float:
        return round(boottime() - self.started, 3)

    async def _finish(self, report: UnitReport) -> Report:
        """Make the report the log's flushed terminal event (rule 14), and give the worktree back."""
        report = await self._checked(report)
        await self.gate.before_effect()
        await self.session.record(ev.Report(report=report.model_dump(mode="json")))
        if report.verdict != "block":  # its commits are safe; a suspended turn still needs its files
            await self.place.give_back()
        return report

    async def _checked(self, report: UnitReport) -> UnitReport:
        """Return a verdict with those claims of its summary that nothing supports (spec A22)."""
        if report.verdict == "block" or report.unsupported or self.session.last(ev.Checkpoint) is None:
            return report
        try:
            changed = await self.place.changed()
        except WorktreesError:  # a verdict never waits for what is only said about its words
            return report
        claims = await blocking(evidence.unsupported, report.summary, self.session.events, changed)
        return report.model_copy(update={"unsupported": claims})

    async def _let_go(self, reason: ReleaseReason, detail: str) -> Report:
        await self.session.flush()
        return reports.release(self.order, reason, detail, self.session.events, self._seconds())


def _is_kept(history: Sequence[Any]) -> bool:
    """Tell whether a checkpoint holds everything that the agent did."""
    for event in reversed(history):
        if isinstance(event, ev.Checkpoint):
            return True
        if isinstance(event, ev.ToolCall):
            return False
    return True
