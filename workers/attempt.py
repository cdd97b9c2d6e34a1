"""One hand-out of one unit, from the claim's lock to the flushed report: session, worktree, turns, verify.

It owns the order of things and nothing else: the turn loop talks to the model, `worktrees` talks to git, the lease
says whether any of it may happen.
"""

import asyncio
import errno
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from worktrees.checkpoint import Checkpoint, checkpoint
from worktrees.errors import DiskError, LockBusy, NestedRepository
from worktrees.files import FileLock
from worktrees.process import base_environment, sweep
from worktrees.repository import Repository
from worktrees.worktree import Worktree, Worktrees

from . import notes, prompt, resume
from .blocking import blocking
from .errors import Cancelled, EpochRefused, LeaseLost, LogError, LogWriteFailed
from .lease import HeldLease, boottime
from .model.catalog import parameters, price_of
from .orders import Release, ReleaseReason, UnitOrder, UnitReport, Verdict
from .outbox import Closing
from .session import events as ev
from .session.fork import fork, own
from .session.session import Session
from .tools import Workspace, built_in
from .turn.loop import Ended, Gate, ModelCall, Progress, TurnLoop
from .turn.stops import text_of
from .verify import headline, run_stage, verify

__all__ = ["Job", "Places", "attempt"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})
_discovering = threading.Lock()
_discover = cache(Repository.discover)
_RELEASES: dict[str, ReleaseReason] = {
    "auth": "key",
    "spend_limit": "spend",
    "rate_limit": "model",
    "transient": "model",
}


@dataclass(frozen=True, slots=True)
class Places:
    """Where a unit's files are on this host, under the repository's home."""

    home: Path
    night: str
    unit: str

    @property
    def unit_dir(self) -> Path:
        """Sessions of all attempts, under the unit's one lock."""
        return self.home / "nights" / self.night / "units" / self.unit

    @property
    def lock(self) -> Path:
        """One flock per unit and host (protocol rule 6)."""
        return self.unit_dir / "unit.lock"

    def session(self, attempt: int) -> Path:
        """The session log of one attempt."""
        return self.unit_dir / str(attempt) / "session.jsonl"

    @property
    def scratch(self) -> Path:
        """A folder for the unit's agent, shared by all its attempts."""
        return self.unit_dir / "scratch"

    @property
    def worktrees(self) -> Path:
        """The night's worktrees."""
        return self.home / "worktrees" / self.night

    @property
    def tag(self) -> str:
        """What marks every process of this unit."""
        return f"{self.night}.{self.unit}"


@dataclass
class _Gate(Gate):
    """The lease, the budget and the clock, between the loop and every effect."""

    lease: HeldLease
    changed: asyncio.Event
    budget: Decimal | None
    deadline: float
    fence: float
    show: Callable[[Progress], None]
    state: Progress | None = None

    async def before_step(self) -> None:
        if self.lease.asked_to_stop:
            raise Cancelled(self.lease.asked_to_stop)
        if boottime() >= self.deadline:
            raise Cancelled("time")
        spent = self.state.cost if self.state else None
        if self.budget is not None and spent is not None and spent >= self.budget:
            raise Cancelled("budget")
        await self.before_effect()

    async def before_effect(self) -> None:
        while boottime() - self.lease.confirmed_at > self.fence or self.lease.lost:
            if self.lease.lost:
                raise LeaseLost(f"{self.lease.unit} {self.lease.token} belongs to somebody else now")
            self.changed.clear()
            await self.changed.wait()

    def progress(self, state: Progress) -> None:
        self.state = state
        self.show(state)


@dataclass(frozen=True)
class Job:
    """A claimed order with what its host lends it. `changed` is set whenever the lease was confirmed or lost."""

    order: UnitOrder
    lease: HeldLease
    changed: asyncio.Event
    call: ModelCall
    show: Callable[[Progress], None]

    @property
    def places(self) -> Places:
        """Where the unit's files are."""
        return Places(Path(self.order.home), self.order.night, self.order.unit)


async def attempt(job: Job) -> Closing | None:
    """Work on a claimed order and return what is to be reported; None when it was not ours after all.

    Raises asyncio.CancelledError when the task is cancelled; nothing of the unit runs any more by then.
    """
    order, places = job.order, job.places
    lock = FileLock(places.lock)
    try:
        places.unit_dir.mkdir(parents=True, exist_ok=True)
        lock.acquire(f"{order.task_id} {job.lease.holder}")
    except LockBusy:
        return _release(order, "busy", "another process on this host still holds the unit")
    except OSError as error:
        return _release(order, "disk", str(error))
    try:
        return await _under_lock(job)
    except (EpochRefused, LeaseLost):
        return None
    except LogWriteFailed as error:
        return _release(order, "disk", str(error))
    except DiskError as error:  # of the disk, or of a path that an agent has ruined: that is the unit's own trouble
        if isinstance(error.__cause__, OSError) and error.__cause__.errno not in _FULL:
            raise
        return _release(order, "disk", str(error))
    except OSError as error:
        if error.errno not in _FULL:
            raise
        return _release(order, "disk", f"{error.strerror}: {error.filename or places.unit_dir}")
    finally:
        lock.release()


async def _under_lock(job: Job) -> Closing | None:
    order, places, lease = job.order, job.places, job.lease
    with ExitStack() as opened:

        def take() -> Session:  # in the thread: a session that was opened while we were cancelled is closed too
            path = places.session(order.attempt)
            return opened.enter_context(closing(Session.open(path, lease.holder, lambda: lease.lost)))

        session = await blocking(take)
        _refuse_old_epoch(order, places, session)
        problem = await blocking(_fill, order, places, session)
        session.repair()
        gate = _Gate(
            lease=lease,
            changed=job.changed,
            budget=order.budget,
            deadline=boottime() + order.seconds,
            fence=order.fence,
            show=job.show,
        )
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

    def __init__(self, job: Job, session: Session, gate: _Gate, worktrees: Worktrees) -> None:
        self.order = order = job.order
        self.places = job.places
        self.call = job.call
        self.session = session
        self.gate = gate
        self.worktrees = worktrees
        self.started = boottime()
        self.env = base_environment()
        self.name = f"{order.unit}.{order.attempt}"

    async def run(self, problem: str | None = None) -> Closing:
        """Go from wherever the session stands to a report; a problem that is known already is one for a person."""
        closing = await self._work(problem)
        return await self._finish(closing) if isinstance(closing, UnitReport) else closing

    async def _work(self, problem: str | None) -> Closing:
        where = resume.standing(self.session.events, self.order.answers)
        await self._open_session()
        if problem is not None:
            return self._report("block", note=problem)
        if isinstance(where, resume.Finished):
            return UnitReport.model_validate(where.report).model_copy(update={"epoch": self.order.epoch})
        if isinstance(where, resume.Verified) and where.result.passed and where.result.digest == self.order.digest:
            return self._report("pass", result=where.result)
        worktree, rebuilt = await self._worktree()
        await blocking(notes.make_folder, self.places.scratch)
        problem = await self._setup(worktree)
        if problem is not None:
            return self._report("block", note=problem)
        loop = self._loop(worktree)
        try:
            async with asyncio.timeout(max(0.0, self.gate.deadline - boottime())):
                return await self._turns(loop, worktree, where, rebuilt=rebuilt)
        except TimeoutError:
            last = self.session.events[-1]
            if isinstance(last, ev.VerifyResult) and last.passed:  # time was up in the very moment
                return self._report("pass", result=last)
            return await self._out_of("time", worktree)

    async def _open_session(self) -> None:
        if not self.session.events:
            self.session.append(
                ev.SessionStart(
                    night=self.order.night,
                    unit=self.order.unit,
                    attempt=self.order.attempt,
                    base=self.order.base,
                    digest=self.order.digest,
                    model=self.order.agent.model,
                    system=prompt.system(),
                    tools=[tool.schema for tool in built_in().values()],
                )
            )
        await self.session.record(ev.Claim(epoch=self.order.epoch, holder=self.gate.lease.holder))

    # -- the worktree ---------------------------------------------------------------------------------------------

    async def _worktree(self) -> tuple[Worktree, bool]:
        """Adopt the worktree that is there, or make one at the last checkpoint; True where effects were lost."""
        is_first = self.order.attempt == 1 and self.session.count(ev.Claim) == 1  # nobody was here before
        alone = is_first or await sweep(self.places.tag)
        await self.gate.before_effect()
        if not alone:  # somebody is still at work in there, and cannot be killed: leave it to them (rule 7)
            self.name = f"{self.order.unit}.{self.order.attempt}.e{self.order.epoch}"
        elif (found := await blocking(self.worktrees.adopt, self.name)) is not None:
            return found, False
        last = self.session.last(ev.Checkpoint)
        commit = last.commit if last is not None else self.order.base
        made = await blocking(self.worktrees.create, self.name, commit)
        return made, self.session.count(ev.TurnStart) > 0

    async def _setup(self, worktree: Worktree) -> str | None:
        """Run the setup command once per tree; the reason when it failed."""
        command = self.order.verify.setup
        marker = worktree.admin_dir / "overnight-setup-done"  # goes when the tree goes
        if command is None or marker.exists():
            return None
        done = await run_stage(command, self.order.verify.setup_timeout, worktree.path, self.env, self.places.tag)
        await self.session.record(ev.SetupResult(ok=done.ok, seconds=round(done.seconds, 3), output=done.output))
        if not done.ok:
            return f"setup failed: {headline(done.output)}"
        marker.touch()
        return None

    # -- turns and verify -----------------------------------------------------------------------------------------

    def _loop(self, worktree: Worktree) -> TurnLoop:
        loop = TurnLoop(
            self.session,
            model=self.order.agent.model,
            parameters=parameters(self.order.agent),
            price=price_of(self.order.agent),
            call=self.call,
            tools=built_in(),
            workspace=Workspace(worktree.path, {**self.env, notes.VARIABLE: str(self.places.scratch)}, self.places.tag),
            gate=self.gate,
        )
        self.gate.state = Progress(loop.turn, loop.step, "", loop.spent)
        return loop

    async def _turns(self, loop: TurnLoop, worktree: Worktree, where: resume.Standing, *, rebuilt: bool) -> Closing:
        outcome = await self._first(loop, worktree, where, rebuilt=rebuilt)
        while isinstance(outcome, ev.UserMessage):
            outcome = await self._judge(await loop.run_turn(outcome), worktree)
        return outcome

    async def _first(  # noqa: PLR0911  # one flat match, a row a standing
        self, loop: TurnLoop, worktree: Worktree, where: resume.Standing, *, rebuilt: bool
    ) -> ev.UserMessage | Closing:
        """Return the message of the next turn, or the report, from where the session stood."""
        rebuilt = rebuilt and not _is_kept(self.session.events)
        gone = prompt.REBUILT.format(commit=await blocking(worktree.head)) if rebuilt else ""
        match where:
            case resume.Fresh():
                return prompt.goal(self.order, await blocking(notes.read, self.places.scratch))
            case resume.Suspended(pause, seq, None):
                return self._report("block", note=pause.question, question=pause.question, pause_seq=seq)
            case resume.Suspended(pause, _, answer):
                self.session.append(
                    ev.Resume(call_id=pause.call_id, text=answer or ""),
                    ev.ToolResult(call_id=pause.call_id, content=f"{answer}\n\n{gone}" if gone else answer or ""),
                )
                return await self._judge(await loop.go_on(), worktree)
            case resume.Unverified() | resume.CutShort() if rebuilt:
                return prompt.runtime(gone)
            case resume.Unverified(text):
                return await self._judge(Ended("completed", text=text), worktree)
            case resume.Verified(result) if not result.passed:
                return await self._next_round(result)
            case resume.Verified():  # under a digest that is no longer in force
                return await self._verify(worktree)
            case resume.CutShort():
                return await self._judge(Ended("max-tokens"), worktree)
            case _:
                failed = where.failed if isinstance(where, resume.Forked) else None
                is_new = rebuilt or isinstance(where, resume.Forked)
                words = prompt.REBUILT.format(commit=await blocking(worktree.head)) if is_new else prompt.RESUMED
                return prompt.forked(words, failed)

    async def _judge(self, ended: Ended, worktree: Worktree) -> ev.UserMessage | Closing:
        """Return what a turn's ending leads to; strangers among the endings are treated as errors (spec L8)."""
        match ended.reason:
            case "completed":
                return await self._verify(worktree)
            case "suspended":
                await self._keep(worktree)  # the answer may come on another day, to another tree
                question, seq = ended.question, ended.pause_seq
                return self._report("block", note=question or "", question=question, pause_seq=seq)
            case "max-tokens" if self._rounds_used() < self.order.rounds:
                return prompt.cut_short()
            case "max-tokens":
                return self._report("fail", note="the answer hit the model's output limit in every round")
            case "aborted":
                return await self._aborted(str(ended.facts.get("cause", "")), worktree)
            case _:
                return await self._broken(ended)

    async def _aborted(self, cause: str, worktree: Worktree) -> Closing:
        """Keep the work of a turn that was asked to stop, and say why it stopped."""
        if cause in ("budget", "time"):
            return await self._out_of(cause, worktree)
        await self._keep(worktree)
        return await self._let_go("shutdown" if cause == "shutdown" else "stopped", "")

    async def _broken(self, ended: Ended) -> Closing:
        """Tell trouble that is not the unit's (no attempt spent) from what its owner must see."""
        cause, message = str(ended.facts.get("cause", "")), str(ended.facts.get("message", ended.reason))
        if cause in _RELEASES:
            return await self._let_go(_RELEASES[cause], message)
        if ended.reason == "blocked":
            return self._report("block", note="the model refused to go on")
        return self._report("block", note=f"the model call failed: {message}")

    async def _verify(self, worktree: Worktree) -> ev.UserMessage | Closing:
        try:
            made = await self._checkpoint(worktree, f"{self.order.unit}: attempt {self.order.attempt}")
        except NestedRepository as error:
            return prompt.runtime(f"{error}. Remove it: a repository inside the worktree cannot be committed.")
        self.gate.progress(replace(self._progress(), tool="verify"))
        commands = {"verify": self.order.verify.run}
        if self.order.verify.setup is not None:
            commands = {"setup": self.order.verify.setup, **commands}
        outcome = await verify(
            self.worktrees,
            f"{self.name}.verify",
            made.commit,
            commands=commands,
            timeouts={"setup": self.order.verify.setup_timeout, "verify": self.order.verify.timeout},
            env=self.env,
            tag=self.places.tag,
        )
        result = ev.VerifyResult(
            commit=made.commit,
            tree=made.tree,
            command=outcome.command,
            digest=self.order.digest,
            passed=outcome.passed,
            seconds=round(outcome.seconds, 3),
            exit_code=outcome.exit_code,
            output=outcome.output,
        )
        await self.session.record(result)
        if result.passed:
            return self._report("pass", result=result)
        return await self._next_round(result)

    async def _next_round(self, result: ev.VerifyResult) -> ev.UserMessage | Closing:
        if self._rounds_used() >= self.order.rounds:
            return self._report("fail", note=headline(result.output), result=result)
        made = self.session.last(ev.Checkpoint)
        return prompt.verify_failed(result, made.taken_back if made is not None else ())

    def _rounds_used(self) -> int:
        mine = own(self.session.events)
        cut = sum(isinstance(event, ev.TurnEnd) and event.reason == "max-tokens" for event in mine)
        return _count(mine, ev.VerifyResult) + cut

    async def _checkpoint(self, worktree: Worktree, message: str) -> Checkpoint:
        """Commit the worktree, taking protected paths back, and log it."""
        await self.gate.before_effect()
        last = self.session.last(ev.Checkpoint)
        made = await blocking(
            checkpoint,
            worktree,
            base=self.order.base,
            message=message,
            protected=self.order.verify.protect,
            may_edit=self.order.verify.may_edit,
            expected=None if last is None else last.commit,
        )
        repository = self.worktrees.repository
        found = await blocking(repository.read_ref, self.order.ref)
        await blocking(repository.update_ref, self.order.ref, made.commit, found, message="checkpoint")
        await self.session.record(ev.Checkpoint(commit=made.commit, tree=made.tree, taken_back=list(made.taken_back)))
        return made

    # -- reports --------------------------------------------------------------------------------------------------

    async def _out_of(self, what: str, worktree: Worktree) -> Closing:
        await self._keep(worktree)
        notes = {
            "time": f"out of time after {self.order.seconds / 60:g} min",
            "budget": f"unit limit ${self.order.budget}",
        }
        return self._report("fail", note=notes[what])

    async def _keep(self, worktree: Worktree) -> None:
        """Checkpoint work in progress; a tree that cannot be committed stays where it is."""
        try:
            await self._checkpoint(worktree, f"{self.order.unit}: work in progress")
        except NestedRepository:
            return

    def _progress(self) -> Progress:
        assert self.gate.state is not None
        return self.gate.state

    def _report(
        self,
        verdict: Verdict,
        *,
        note: str = "",
        result: ev.VerifyResult | None = None,
        question: str | None = None,
        pause_seq: int | None = None,
    ) -> UnitReport:
        last = self.session.last(ev.AssistantMessage)
        passed = result if result is not None and result.passed else None
        return UnitReport(
            night=self.order.night,
            unit=self.order.unit,
            attempt=self.order.attempt,
            epoch=self.order.epoch,
            verdict=verdict,
            note=note,
            commit=passed.commit if passed else None,
            tree=passed.tree if passed else None,
            digest=self.order.digest,
            summary=text_of(last.content) if last is not None else "",
            output="" if result is None else result.output[-4000:],
            question=question,
            pause_seq=pause_seq,
            **self._counts(),
        )

    async def _finish(self, report: UnitReport) -> Closing:
        """Make the report the log's flushed terminal event (rule 14), and give the worktree back."""
        await self.gate.before_effect()
        await self.session.record(ev.Report(report=report.model_dump(mode="json")))
        if report.verdict != "block":  # its commits are safe; a suspended turn still needs its files
            last = self.session.last(ev.Checkpoint)
            await blocking(self.worktrees.remove, self.name, kept=None if last is None else last.commit)
        return report

    async def _let_go(self, reason: ReleaseReason, detail: str) -> Closing:
        await self.session.flush()
        return _release(self.order, reason, detail, **self._counts())

    def _counts(self) -> dict[str, object]:
        mine = own(self.session.events)
        costs = [event.cost for event in mine if isinstance(event, ev.AssistantMessage)]
        return {
            "cost": None if None in costs else sum((c for c in costs if c is not None), Decimal(0)),
            "turns": _count(mine, ev.TurnStart),
            "steps": _count(mine, ev.StepStart),
            "seconds": round(boottime() - self.started, 3),
        }


def _is_kept(history: Sequence[Any]) -> bool:
    """Tell whether a checkpoint holds everything that the agent did."""
    for event in reversed(history):
        if isinstance(event, ev.Checkpoint):
            return True
        if isinstance(event, ev.ToolCall):
            return False
    return True


def _count(history: Sequence[Any], kind: type) -> int:
    return sum(isinstance(event, kind) for event in history)


def _release(order: UnitOrder, reason: ReleaseReason, detail: str, **counts: object) -> Release:
    return Release(
        night=order.night,
        unit=order.unit,
        attempt=order.attempt,
        epoch=order.epoch,
        reason=reason,
        detail=detail,
        **counts,
    )
