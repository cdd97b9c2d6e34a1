"""One run over a night: the loop that takes in what happened, decides, and carries it out. The one writer.

A tick: engine → edits → drop-box → reports → leases → merges → decide → state file → hand-out. It is woken by reports,
by the merge train and by signals, with a slow heartbeat for the rest. Whatever it must remember is in the journal
before it acts on it.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal

import redis
from kombu.exceptions import OperationalError

from dispatcher import dropbox, engine, preflight
from dispatcher.accept import refusal
from dispatcher.config import Config
from dispatcher.decide import HandOut, Limits, Plan, View, decide
from dispatcher.display import Display, Row, Snapshot
from dispatcher.errors import BadInput, DispatcherError, EngineError, WriterLocked
from dispatcher.home import Home
from dispatcher.journal import Asked, Lost, Ordered, Reported, RunEnded, RunStarted
from dispatcher.opening import Opened, open_night
from dispatcher.orders import distinct_verifies, order_of, verify_of
from dispatcher.state import NOTE_LIMIT, Bucket, State, one_line
from dispatcher.train import Train, unit_ref
from dispatcher.units import UNITS_PATH, UnitFile, check_graph, dump, load_all
from dispatcher.watch import Loss, Watch
from workers.app import make_app, send
from workers.lease import LeaseRecord, LeaseTable
from workers.orders import Release
from workers.outbox import Closing, Mailbox, Outbox
from worktrees.errors import LockBusy, RefMoved, RepositoryError, WorktreesError
from worktrees.files import FileLock, write_atomic
from worktrees.repository import Repository
from worktrees.worktree import Worktrees

__all__ = ["ALL_PASSED", "ENGINE", "NOT_ALL_PASSED", "STOPPED", "Night", "Options", "Outcome"]

ALL_PASSED, NOT_ALL_PASSED, STOPPED, ENGINE = 0, 1, 3, 4
_HOLD_SECONDS = {"busy": 2.0, "model": 30.0}


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for on the command line."""

    slots: int
    limit: int | None = None
    flower: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: the exit code, one word, and a line for people."""

    code: int
    reason: str
    detail: str = ""


class Night:
    """One `overnight run`."""

    def __init__(self, repository: Repository, home: Home, config: Config, options: Options, display: Display) -> None:
        self._repository = repository
        self._home = home
        self._config = config
        self._options = options
        self._display = display
        self._units: dict[str, UnitFile] = {}
        self._handed_out: set[str] = set()
        self._held: dict[str, float] = {}
        self._ending: Outcome | None = None  # why nothing more is handed out
        self._killed = False
        self._wake = asyncio.Event()
        self._train_task: asyncio.Task[bool] | None = None
        self._records: dict[str, LeaseRecord] = {}
        self._dead: set[str] = set()
        self._polled_at = float("-inf")
        self._deadline = _next(config.limits.until)

    async def run(self) -> Outcome:
        """Work until nothing can be handed out and nothing is in flight.

        Raises BadInput (nothing was handed out), WriterLocked, EngineError (everything goes on at the next run).
        """
        lock = FileLock(self._home.writer_lock)
        try:
            lock.acquire(f"overnight run, pid {os.getpid()}")
        except LockBusy as busy:
            raise WriterLocked(busy.path, busy.holder) from busy
        try:
            self._home.make()
            return await self._with_lock()
        finally:
            lock.release()

    async def _with_lock(self) -> Outcome:
        self._load_units()
        preflight.check_refs(self._repository)
        opened = open_night(self._repository, self._home, self._config)
        try:
            self._open(opened)
            self._journal_run()
            outcome = await self._guarded()
            self._note(RunEnded(run=self._ledger.runs, reason=outcome.reason, detail=outcome.detail))
            return outcome
        finally:
            opened.journal.close()

    def _open(self, opened: Opened) -> None:
        self._journal, self._ledger, self._keeper = opened.journal, opened.ledger, opened.keeper
        self._worktrees = Worktrees(self._repository, self._home.worktrees / self._ledger.night)
        self._train = Train(
            self._repository, self._worktrees, self._journal, self._ledger, self._config, self._display.note
        )
        self._engine = engine.start(self._home, self._options.slots, self._config.engine, flower=self._options.flower)
        self._watch = Watch(self._config.engine.lost_after)
        self._leases = LeaseTable(self._engine.client, self._ledger.night)
        self._mailbox = Mailbox(self._engine.client, self._ledger.night)
        self._celery = make_app(self._engine.broker)

    def _journal_run(self) -> None:
        self._note(
            RunStarted(
                run=self._ledger.runs + 1,
                pid=os.getpid(),
                host=socket.gethostname(),
                slots=self._options.slots,
                embedded=self._engine.embedded,
            )
        )

    async def _guarded(self) -> Outcome:
        """Run, and journal how it ended also when it ended badly."""
        try:
            return await self._work()
        except (DispatcherError, WorktreesError) as error:
            reason = "bad input" if isinstance(error, BadInput) else "engine"
            with suppress(EngineError):  # a full disk cannot be journalled either
                self._note(RunEnded(run=self._ledger.runs, reason=reason, detail=str(error)))
            raise

    async def _work(self) -> Outcome:
        self._train.recover()
        self._refuse_rewound()
        if not self._take_in() and self._keeper.broken is not None:
            raise self._keeper.broken
        for report in Outbox(self._home.outbox).pending():  # what workers said after the last run died
            if report.night == self._ledger.night:
                self._take_report(report)
        plan = self._decide()
        self._save(plan)
        if plan.idle:
            return self._done(plan)
        await self._preflight()
        try:
            await self._engine.start()
            if self._engine.flower_address:
                self._display.note(f"flower      {self._engine.flower_address}")
            return await self._loop()
        finally:
            await self._engine.stop()

    async def _preflight(self) -> None:
        preflight.check_prices(self._config)
        await preflight.check_model(self._config)
        waiting = [self._units[unit] for unit in self._keeper.state.ready() if unit in self._units]
        on_the_base = preflight.OnTheBase(self._config, self._worktrees, self._ledger, self._display.status)
        found = await on_the_base.run(waiting, self._ledger.base)
        if found.verifies:
            self._note(*found.verifies)
            self._display.note(_preflight_line(found))

    # -- the loop ---------------------------------------------------------------------------------------------------

    async def _loop(self) -> Outcome:
        self._listen_to_signals()
        waker = asyncio.create_task(self._wait_for_reports())
        try:
            while (plan := await self._tick()) is None or not plan.idle:
                self._wake.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self._config.engine.beat / 2)
                if self._killed:
                    return Outcome(STOPPED, "stopped", "stopped at once; sessions go on where they are")
            await self._final_verify()
            return self._done(plan)
        finally:
            waker.cancel()
            await asyncio.gather(waker, self._stop_train(), return_exceptions=True)
            self._display.close()

    async def _tick(self) -> Plan | None:
        """Do everything there is to do now; None while the state file cannot be read."""
        for holder in self._engine.reap():
            self._dead.add(holder)
            self._display.note(f"engine      started a process again that died ({holder})")
        readable = self._take_in()
        await self._take_reports()
        await self._poll()
        self._run_train()
        self._stop_in_time()
        plan = self._decide()
        if not readable:
            return plan if self._ending is not None and plan.idle else None
        self._save(plan)
        for hand_out in plan.hand_outs:
            await self._hand_out(hand_out)
        self._show()
        return plan

    def _take_in(self) -> bool:
        """Take in what people did: the state file, unit files, the drop-box. False while the file is broken."""
        was_broken = self._keeper.broken
        if not self._keeper.take_in():
            if str(was_broken) != str(self._keeper.broken):
                self._display.note(f"state file  {self._keeper.broken}; nothing is handed out until it is mended")
            return False
        try:
            self._load_units()
        except BadInput as error:
            self._display.status(f"unit files: {error}")
        self._adopt()
        for path, request in dropbox.pending(self._home.dropbox):
            self._obey(request)
            dropbox.done(path)
        return True

    def _load_units(self) -> None:
        units = load_all(self._repository.root / UNITS_PATH)
        check_graph(units)
        for unit in units.values():
            verify_of(unit, self._config)
        self._units = units

    def _adopt(self) -> None:
        """Give typed goals a unit file, and unit files that no bucket lists a place in `open`."""
        state = self._keeper.state
        for unit, goal in dict(state.typed_goals).items():
            if unit not in self._units:
                self._units[unit] = self._write_unit_file(UnitFile(id=unit, goal=goal))
            state = state.adopted(unit)
        for unit in self._units:
            if state.bucket_of(unit) is None and unit not in self._ledger.cancelled:
                state = state.add(unit)
        self._keeper.save(state)

    def _write_unit_file(self, unit: UnitFile) -> UnitFile:
        """Keep a typed goal; without a verify in force it could never pass, which `_load_units` says from now on."""
        path = self._repository.root / UNITS_PATH / f"{unit.id}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, dump(unit).encode())
        return unit

    # -- requests and reports ---------------------------------------------------------------------------------------

    def _obey(self, request: dropbox.Request) -> None:
        if request.id in self._ledger.asked:
            return
        why_not = self._why_not(request)
        self._note(Asked(request=request.model_dump(mode="json"), obeyed=why_not is None, reason=why_not or ""))
        subject = getattr(request, "unit", "the run")
        self._display.note(f"asked       {request.kind} {subject}: {why_not or 'done'}")
        if isinstance(request, dropbox.Stop):
            self._end(Outcome(STOPPED, "stopped", "asked to stop"))

    def _why_not(self, request: dropbox.Request) -> str | None:
        if isinstance(request, dropbox.Stop):
            return None
        bucket = self._keeper.state.bucket_of(request.unit)
        facts = self._ledger.unit(request.unit)
        match request:
            case _ if bucket is None:
                return "there is no such unit"
            case dropbox.Answer():
                return None if facts.question is not None else "it has asked nothing"
            case dropbox.Retry():
                if bucket is Bucket.passed or facts.waiting is not None:
                    return "it has passed"
                return "it is being worked on" if facts.in_flight else None
            case _:
                return f"{request.kind} is not available in this version"

    async def _take_reports(self) -> None:
        try:
            reports = await asyncio.to_thread(self._mailbox.receive)
            for report in reports:
                self._take_report(report)
                await asyncio.to_thread(self._mailbox.acknowledge, report.task_id)
        except redis.RedisError:
            return  # everybody waits for Redis

    def _take_report(self, report: Closing) -> None:
        """Journal a report, accepted or refused; one that the journal holds already changes nothing."""
        if report.task_id in self._ledger.reports:
            return
        commit = report.commit if report.kind == "verdict" else None
        has_commit = commit is not None and self._repository.has_commit(commit)
        reason = refusal(report, self._ledger.unit(report.unit), has_commit=has_commit)
        self._note(Reported(report=report, accepted=reason is None, reason=reason or ""))
        self._display.note(_report_line(report, reason))
        if reason is None:
            self._set_branch(report)
            if report.kind == "release":
                self._released(report)

    def _set_branch(self, report: Closing) -> None:
        """Let people see the attempt's commits under a branch (rule 16)."""
        ref = f"refs/overnight/{report.night}/{report.unit}/{report.attempt}.{report.epoch}"
        commit = (report.commit if report.kind == "verdict" else None) or self._repository.read_ref(ref)
        if commit is None:
            return
        branch = unit_ref(report.night, report.unit, report.attempt)
        try:
            self._repository.update_ref(branch, commit, self._repository.read_ref(branch), message="overnight")
        except (RefMoved, RepositoryError) as error:
            self._display.note(f"branch      {branch} was not set: {error}")

    def _released(self, report: Release) -> None:
        now = asyncio.get_running_loop().time()
        self._held[report.unit] = now + _HOLD_SECONDS.get(report.reason, 0.0)
        if report.reason == "disk":
            self._end(Outcome(ENGINE, "engine", f"disk: {report.detail}"))
        elif report.reason == "key":
            self._end(Outcome(ENGINE, "engine", f"the model's key was refused: {report.detail}"))
        elif report.reason == "spend":
            self._end(Outcome(STOPPED, "stopped", f"the account's spend limit is reached: {report.detail}"))

    # -- leases -----------------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        """Count one poll of every hand-out in flight, a beat apart; a Redis that does not answer counts for nobody."""
        now = asyncio.get_running_loop().time()
        if now - self._polled_at < self._config.engine.beat:
            return
        self._polled_at = now
        tokens = {
            unit: f"{facts.attempt}.{facts.epoch}" for unit, facts in self._ledger.units.items() if facts.in_flight
        }
        try:
            run_id, records = await asyncio.to_thread(self._read_leases, list(tokens))
            self._records = records
            if self._watch.new_redis(run_id):
                await self._publish_closed(tokens, list(tokens))
                return
            await self._publish_closed(tokens, self._watch.missing(tokens, records))
        except redis.RedisError:
            return
        for loss in self._watch.observe(tokens, records, self._dead):
            self._lose(loss, records.get(loss.unit))

    def _lose(self, loss: Loss, record: LeaseRecord | None) -> None:
        facts = self._ledger.unit(loss.unit)
        step = int(record.progress.get("step", 0)) if record is not None else 0
        self._note(Lost(unit=loss.unit, attempt=facts.attempt, epoch=facts.epoch, claimed=loss.claimed, step=step))
        why = "its worker is gone" if loss.claimed else "nobody took it"
        self._display.note(f"lost        {loss.unit} {facts.attempt}.{facts.epoch}: {why}")

    def _read_leases(self, units: Sequence[str]) -> tuple[str, dict[str, LeaseRecord]]:
        return self._leases.run_id(), self._leases.poll(units)

    async def _publish_closed(self, tokens: dict[str, str], units: Sequence[str]) -> None:
        for unit in units:
            await asyncio.to_thread(self._leases.publish, unit, tokens[unit], "closed")

    async def _wait_for_reports(self) -> None:
        while True:
            try:
                if await asyncio.to_thread(self._mailbox.wait, 1.0):
                    self._wake.set()
            except redis.RedisError:
                await asyncio.sleep(1.0)

    # -- merging ----------------------------------------------------------------------------------------------------

    def _run_train(self) -> None:
        """Start the next merge, and take in how the last one went."""
        if self._train_task is not None and self._train_task.done():
            task, self._train_task = self._train_task, None
            self._took_merge(task)
        if self._train_task is None and self._may_merge():
            self._next_merge()

    def _may_merge(self) -> bool:
        """Whatever passed is still merged when a run is stopped; not when the machinery is in trouble."""
        return self._ending is None or self._ending.code == STOPPED

    def _next_merge(self) -> None:
        waiting = [facts.waiting for facts in self._ledger.units.values() if facts.waiting is not None]
        if waiting:
            report = waiting[0]
            self._refuse_rewound()
            self._train_task = asyncio.create_task(self._train.merge(report, self._units.get(report.unit)))
            self._train_task.add_done_callback(lambda _: self._wake.set())

    def _took_merge(self, task: "asyncio.Task[bool]") -> None:
        try:
            task.result()
        except RepositoryError as error:
            self._end(Outcome(ENGINE, "engine", f"the merged branch cannot be moved: {error}"))

    async def _stop_train(self) -> None:
        if self._train_task is not None:
            self._train_task.cancel()
            await asyncio.gather(self._train_task, return_exceptions=True)

    def _refuse_rewound(self) -> None:
        if not self._train.is_whole():
            raise BadInput(
                f"{self._train.ref} no longer holds every unit that passed: somebody moved it back. "
                f"`git update-ref {self._train.ref} {self._ledger.tip}` puts it right; no unit is merged twice"
            )

    async def _final_verify(self) -> None:
        """Run every distinct verify once more on the final tip, where something was merged (design, A night, 7)."""
        facts = self._ledger.units
        merged = [unit for unit in self._units.values() if unit.id in facts and facts[unit.id].merged]
        if not merged or self._ending is not None:
            return
        commands = list(distinct_verifies(merged, self._config))
        if self._config.merge.verify is not None:
            commands.append(self._config.merge.verify)
        for result in await self._train.verify_tip(list(dict.fromkeys(commands))):
            self._display.note(f"tip         {result.command}: {'passed' if result.passed else 'FAILED'}")

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _decide(self) -> Plan:
        now = asyncio.get_running_loop().time()
        self._held = {unit: until for unit, until in self._held.items() if until > now}
        limits = self._config.limits
        return decide(
            View(
                state=self._due(),
                units=self._units,
                ledger=self._ledger,
                limits=Limits(limits.night, limits.unit, limits.attempts, self._options.slots, self._options.limit),
                handed_out=self._handed_out,
                held_back=self._held,
                closed=self._ending is not None,
                merging=self._may_merge(),
            )
        )

    def _due(self) -> State:
        """Return the state with every move that the journal holds and no state write has made."""
        state = self._keeper.state
        for unit, due in self._ledger.due.items():
            if state.bucket_of(unit) is not None:
                count = f" ({self._ledger.unit(unit).failures} of {self._most_attempts(unit)})" if due.counted else ""
                note = one_line(due.note, NOTE_LIMIT - len(count)) + count
                state = state.move(unit, due.bucket, note, first=due.first)
        return state

    def _most_attempts(self, unit: str) -> int:
        own = self._units[unit].limits.attempts if unit in self._units else None
        return own or self._config.limits.attempts

    def _save(self, plan: Plan) -> None:
        state = self._due()
        for block in plan.blocks:
            if state.bucket_of(block.unit) is not Bucket.passed:
                state = state.move(block.unit, Bucket.blocked, block.note)
        before = self._keeper.state
        self._keeper.save(state)
        for unit in self._keeper.state.passed:
            if before.bucket_of(unit.id) is not Bucket.passed:
                self._display.note(f"passed      {unit.id}")

    async def _hand_out(self, hand_out: HandOut) -> None:
        """Journal, publish the record, send (rule 4). A Redis that is away makes it a loss that costs nothing."""
        facts = self._ledger.unit(hand_out.unit)
        unit = self._units[hand_out.unit]
        is_new = hand_out.attempt != facts.attempt
        base = await asyncio.to_thread(self._train.tip) if is_new else facts.base
        order = order_of(
            unit,
            hand_out,
            facts,
            self._config,
            night=self._ledger.night,
            base=base,
            run_id="",
            repository=self._repository.root,
            home=self._home.root,
        )
        self._note(
            Ordered(
                unit=unit.id,
                attempt=order.attempt,
                epoch=order.epoch,
                base=base,
                digest=order.digest,
                reserve=hand_out.reserve,
            )
        )
        self._handed_out.add(unit.id)
        self._display.note(f"order       {unit.id} {order.token}")
        with suppress(redis.RedisError, OperationalError):
            run_id = await asyncio.to_thread(self._leases.publish, unit.id, order.token, "open")
            await asyncio.to_thread(send, self._celery, order.model_copy(update={"run_id": run_id}))

    # -- the end --------------------------------------------------------------------------------------------------------

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupted)

    def _interrupted(self) -> None:
        """Once: let every unit finish its step, checkpoint and stop. Twice: now; sessions go on where they are."""
        if self._ending is None:
            self._end(Outcome(STOPPED, "stopped", "stopped by a signal"))
            self._display.note("stopping    after the current steps; once more stops at once")
        else:
            self._killed = True
            if isinstance(self._engine, engine.Engine):
                self._engine.kill()
        self._wake.set()

    def _end(self, outcome: Outcome) -> None:
        self._ending = self._ending or outcome
        self._wake.set()

    def _stop_in_time(self) -> None:
        """Tell those at work to stop where the run is ending, or its time is over."""
        if self._deadline is not None and datetime.now().astimezone() >= self._deadline:
            self._end(Outcome(STOPPED, "stopped", f"it is {self._config.limits.until:%H:%M}"))
        if self._ending is not None:
            with suppress(redis.RedisError):
                for unit in self._records:
                    self._leases.wish(unit, "stop")

    def _done(self, plan: Plan) -> Outcome:
        if self._ending is not None:
            return self._ending
        if plan.short:
            return Outcome(STOPPED, "stopped", f"the night's limit of ${self._config.limits.night} is reached")
        if plan.capped:
            return Outcome(STOPPED, "limit", f"--limit {self._options.limit}: {len(self._handed_out)} units handed out")
        state = self._keeper.state
        failed = [one for one in self._ledger.verified.values() if one.stage == "final" and not one.passed]
        if state.tried or state.open or state.blocked or failed:
            return Outcome(NOT_ALL_PASSED, "done", "some did not pass, or need you")
        return Outcome(ALL_PASSED, "done", "all passed" if state.passed else "nothing to do")

    def _note(self, *entries: object) -> None:
        self._journal.write(*entries)
        self._ledger.extend(entries)

    def _show(self) -> None:
        self._display.update(
            Snapshot(
                counts=self._keeper.state.counts(),
                spent=self._ledger.spent + sum((_cost(record) for record in self._records.values()), Decimal(0)),
                limit=self._config.limits.night,
                until=self._deadline,
                rows=[
                    Row(unit, record.progress)
                    for unit, record in self._records.items()
                    if self._ledger.unit(unit).in_flight
                ],
            )
        )


def _next(until: time | None) -> datetime | None:
    """Return the next moment at which the clock shows `until`."""
    if until is None:
        return None
    now = datetime.now().astimezone()
    today = now.replace(hour=until.hour, minute=until.minute, second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)


def _cost(record: LeaseRecord) -> Decimal:
    return Decimal(record.progress.get("cost") or 0)


def _preflight_line(found: preflight.Findings) -> str:
    setup = "" if found.setup_seconds is None else f"setup {found.setup_seconds:.0f} s ✔   "
    red = sum(not one.passed for one in found.verifies)
    commit = found.verifies[0].commit[:6]
    return f"preflight   {setup}verify {len(found.verifies)} run on {commit} ({red} red, as expected of work not done)"


def _report_line(report: Closing, refused: str | None) -> str:
    said = report.verdict if report.kind == "verdict" else f"released ({report.reason})"
    note = report.note if report.kind == "verdict" else report.detail
    cost = "" if report.cost is None else f"  ${report.cost:.2f}"
    line = f"report      {report.unit} {report.attempt}.{report.epoch}: {said}{cost}  {note}".rstrip()
    return line if refused is None else f"{line}  (refused: {refused})"
