"""One run over a night: the loop that takes in what happened, decides, and carries it out. The one writer.

A tick: engine → edits → drop-box → reports → leases → merges → decide → state file → hand-out. It is woken by reports,
by the merge train and by signals, with a slow heartbeat for the rest. Whatever it must remember is in the journal
before it acts on it.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

import redis

from dispatcher import engine, forks, moves, people, preflight, statecommit
from dispatcher.archive import ARCHIVE_PATH, archive, is_over, parse_night
from dispatcher.book import Book
from dispatcher.budget import budgets, not_booked, warnings
from dispatcher.config import Config
from dispatcher.decide import Block, HandOut, Plan, View, decide, untouched, used_up
from dispatcher.due import with_due
from dispatcher.errors import BadInput, DispatcherError, EngineError, WriterLocked
from dispatcher.fleet import Fleet
from dispatcher.home import Home
from dispatcher.inbox import Inbox
from dispatcher.journal import RunEnded, RunStarted, Spent
from dispatcher.keeper import Keeper
from dispatcher.ledger import Ledger
from dispatcher.moves import Cause
from dispatcher.opening import open_night
from dispatcher.options import Options, cap_reached, deadline, limits_of
from dispatcher.orders import base_of, distinct_verifies, order_of
from dispatcher.outcome import ALL_PASSED, ENGINE, NOT_ALL_PASSED, STOPPED, Outcome, was_whole
from dispatcher.probe import Probe
from dispatcher.roster import Roster
from dispatcher.shown.display import Display, Row, Snapshot
from dispatcher.state import Bucket, State
from dispatcher.steering import PAUSED
from dispatcher.train import Train
from dispatcher.units import UNITS_PATH
from dispatcher.unreported import unreported
from dispatcher.upkeep.prune import compress_archived
from dispatcher.watch import Watch
from workers.lease import LeaseTable
from workers.outbox import Mailbox, Outbox
from worktrees.errors import DiskError, LockBusy, RepositoryError, WorktreesError
from worktrees.files import FileLock, sweep
from worktrees.repository import Repository
from worktrees.worktree import Worktrees

__all__ = ["Setting", "run_night"]

# Other commands hold the writer's lock for a moment to see whether a run does.
_LOOK_SECONDS = 1.0
# Shorter waits for the model are over before anybody has read of them.
_WORTH_A_WORD_SECONDS = 2.0
_PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a run takes place."""

    repository: Repository
    home: Home
    config: Config
    options: Options
    display: Display


async def run_night(setting: Setting) -> Outcome:
    """Work until nothing can be handed out and nothing is in flight.

    Raises BadInput (nothing was handed out), WriterLocked, EngineError and DiskError (all goes on at the next run).
    """
    lock = FileLock(setting.home.writer_lock)
    try:
        lock.wait(_LOOK_SECONDS, "overnight run")
    except LockBusy as busy:
        raise WriterLocked(busy.path, busy.holder) from busy
    try:
        setting.home.make()
        return await _with_lock(setting)
    finally:
        lock.release()


async def _with_lock(setting: Setting) -> Outcome:
    roster = Roster(setting.repository.root, setting.config)
    preflight.check_written(roster, setting.repository)
    _put_away(setting, roster)
    opened = open_night(setting.repository, setting.home, setting.config)
    try:
        return await _journalled(Night(setting, roster, opened.book, opened.keeper), opened.book)
    finally:
        opened.book.close()


def _put_away(setting: Setting, roster: Roster) -> None:
    """Archive a night whose units have all passed, once there is something new to do; finish what a crash cut off."""
    put_away = archive(
        setting.repository, setting.home, wanted=lambda state, ledger: is_over(state, ledger, roster.units)
    )
    if put_away is not None:
        roster.load()
        setting.display.note(f"archived    {len(put_away.units)} units of the last night → {ARCHIVE_PATH}")
        with suppress(DiskError):  # `overnight prune` compresses what is left
            compress_archived(setting.home, parse_night(put_away.text))


async def _journalled(night: "Night", book: Book) -> Outcome:
    """Run, and journal how it ended, also when it ended badly."""
    night.begin()
    try:
        outcome = await night.work()
        night.book_losses()
        night.commit_state(outcome)
    except (DispatcherError, WorktreesError) as error:
        reason = "bad input" if isinstance(error, BadInput) else "engine"
        with suppress(EngineError):  # a full disk cannot be journalled either
            book.note(RunEnded(run=book.ledger.runs, reason=reason, detail=str(error)))
        raise
    untouched = night.untouched(outcome)
    book.note(RunEnded(run=book.ledger.runs, reason=outcome.reason, detail=outcome.detail, untouched=untouched))
    return outcome


class Night:
    """One `overnight run`, with everything that it conducts."""

    def __init__(self, setting: Setting, roster: Roster, book: Book, keeper: Keeper) -> None:
        self._repository, self._home, self._config = setting.repository, setting.home, setting.config
        self._options, self._display = setting.options, setting.display
        self._roster, self._book, self._keeper = roster, book, keeper
        night = book.ledger.night
        self._worktrees = Worktrees(self._repository, self._home.worktrees / night)
        self._train = Train(self._repository, self._worktrees, book, self._config, self._display)
        self._engine = engine.start(self._home, self._options.slots, self._config.engine, flower=self._options.flower)
        self._mailbox = Mailbox(self._engine.client, night)
        self._inbox = Inbox(
            book,
            self._repository,
            self._mailbox,
            self._display,
            self._end,
            self._hold,
            self._events,
            self._used_up,
        )
        self._fleet = Fleet(
            book,
            LeaseTable(self._engine.client, night),
            self._engine.broker,
            Watch(self._config.engine.lost_after),
            self._config.engine.beat,
            self._display,
        )
        self._handed_out: set[str] = set()
        self._told = set(keeper.state.ids(Bucket.passed))  # whoever moves a unit there, people hear of it once
        self._held: dict[str, float] = {}
        self._ending: Outcome | None = None  # why nothing more is handed out
        self._limited = False  # whether the model's limits hold somebody back, for showing
        self._killed = False
        self._wake = asyncio.Event()
        self._merging: asyncio.Task[bool] | None = None
        self._deadline = deadline(self._config, datetime.now().astimezone())
        self._probe = Probe(self._repository)
        self._conflicts: Mapping[str, Collection[str]] = {}
        self._probed_at = float("-inf")
        self._begun = 0
        self._broken = ""  # what was said last of a state file that cannot be read
        self._unworkable: Mapping[str, str] = {}  # why nobody can work on a unit that is listed, as it was said
        self._warned: set[str] = set()
        self._ran_out = False  # of time or money: what was not reached was passed over (spec S8)

    @property
    def _ledger(self) -> Ledger:
        return self._book.ledger

    def _sweep(self) -> None:
        """Delete what killed processes have left half written, in folders that only we write such files to."""
        root = self._repository.root
        for folder in (self._home.outbox, self._home.dropbox, root / UNITS_PATH, root / ARCHIVE_PATH):
            sweep(folder)

    def begin(self) -> None:
        """Journal that the run has begun, and what those were still spending whom the last one left at work."""
        self._book.note(
            *self._unreported(unit for unit, facts in self._ledger.units.items() if facts.in_flight),
            RunStarted(
                run=self._ledger.runs + 1,
                pid=os.getpid(),
                host=socket.gethostname(),
                slots=self._options.slots,
                embedded=self._engine.embedded,
            ),
        )

    def _unreported(self, units: Iterable[str]) -> list[Spent]:
        return unreported(self._home, self._ledger, units)

    def book_losses(self) -> None:
        """Book what lost workers had spent since they last told of it."""
        self._book.note(*self._unreported(unit for unit, facts in self._ledger.units.items() if facts.lost_in_all))

    async def work(self) -> Outcome:
        """Recover, check, and go through the night."""
        self._worktrees.empty_trash()
        self._sweep()
        self._train.recover()
        statecommit.recover(self._repository, self._book)
        self._refuse_rewound()
        if not self._take_in():
            assert self._keeper.broken is not None
            raise self._keeper.broken
        self._inbox.collect_left_over(Outbox(self._home.outbox))
        self._roster.refuse_unworkable(self._due(self._keeper.state), self._ledger)
        plan = self._decide()
        self._save(plan)
        if plan.idle:
            await self._verify_tip()  # a run that was killed may have left it undone
            return self._outcome(plan)
        if self._ledger.paused:
            self._display.note(f"paused      {PAUSED}")
        await self._preflight()
        try:
            await self._engine.start()
            if self._engine.flower_address:
                self._display.note(f"flower      {self._engine.flower_address}")
            return await self._loop()
        finally:
            await self._engine.stop()
            self._display.close()

    async def _preflight(self) -> None:
        units = self._roster.units
        await preflight.check_work(self._repository, self._roster, self._keeper.state, self._config)
        waiting = [units[unit] for unit in self._keeper.state.ready() if unit in units]
        on_the_base = preflight.OnTheBase(self._config, self._worktrees, self._ledger, self._display.status)
        found = await on_the_base.run(waiting, self._ledger.base)
        if found.verifies:
            self._book.note(*found.verifies)
            self._display.note(f"preflight   {found.line}")

    # -- the loop ---------------------------------------------------------------------------------------------------

    async def _loop(self) -> Outcome:
        self._listen_to_signals()
        waker = asyncio.create_task(self._wait_for_reports())
        try:
            while (plan := await self._tick()) is None or not plan.idle:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self._config.engine.beat / 2)
                self._wake.clear()
                if self._killed:
                    return Outcome(STOPPED, "stopped", "stopped at once; sessions go on where they are")
            return await self._last_verifies(plan)
        finally:
            tasks = [task for task in (waker, self._merging) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _last_verifies(self, plan: Plan) -> Outcome:
        """Verify the tip, unless somebody does not want to wait for it."""
        task = asyncio.create_task(self._verify_tip())
        task.add_done_callback(lambda _: self._wake.set())
        while not task.done() and not self._killed:
            await self._wake.wait()
            self._wake.clear()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return Outcome(STOPPED, "stopped", "stopped before the tip was verified")
        task.result()
        return self._outcome(plan)

    async def _tick(self) -> Plan | None:
        """Do everything there is to do now; None while the state file cannot be read and somebody is at work."""
        dead = self._engine.reap()
        self._fleet.bury(dead)
        for holder in dead:
            self._display.note(f"engine      started a process again that died ({holder})")
        readable = self._take_in()
        if readable:
            self._say_unworkable()
        await self._inbox.collect()
        await self._fleet.poll(asyncio.get_running_loop().time())
        self._run_train()
        await self._stop_what_must_stop()
        await self._look()
        plan = self._decide()
        if not readable:
            return plan if self._ending is not None and plan.idle else None
        self._save(plan)
        for hand_out in plan.hand_outs:
            await self._hand_out(hand_out)
        self._show()
        return plan

    def _take_in(self) -> bool:
        """Take in what people did: the state file, unit files, the drop-box. False while the state file is broken."""
        wrong = self._roster.reload()
        if wrong is not None:
            self._display.status(f"unit files  {wrong}; they stay as they were read last")
        is_readable = self._keeper.take_in()
        before, self._broken = self._broken, "" if is_readable else str(self._keeper.broken)
        if not is_readable:
            if self._broken != before:  # as it was said last: the keeper may have found it while it wrote
                self._display.note(f"state file  {self._keeper.broken}; nothing is handed out until it is mended")
            self._inbox.obey(self._home.dropbox, self._keeper.state, is_readable=False)
            return False
        self._keeper.update(self._adopted)
        self._inbox.obey(self._home.dropbox, self._keeper.state)
        return self._keeper.broken is None

    def _say_unworkable(self) -> None:
        """Say once of each listed unit that nobody can work on, why; the run goes on with the others."""
        found = self._roster.unworkable(self._due(self._keeper.state), self._ledger)
        wrong = {unit: str(error) for unit, error in found.items()}
        for unit, line in wrong.items():
            if unit not in self._unworkable:
                self._display.note(f"unit files  {line}")
        self._unworkable = wrong

    def _adopted(self, state: State) -> State:
        """Return the state with what is due, what people wrote down, and without what they cancelled and deleted."""
        adopted = self._roster.adopt(self._due(state), self._ledger)
        return people.without_deleted(adopted, self._ledger, self._roster.has_file)

    async def _wait_for_reports(self) -> None:
        while True:
            try:
                if await asyncio.to_thread(self._mailbox.wait, 1.0):
                    self._wake.set()
            except redis.RedisError:
                await asyncio.sleep(1.0)

    # -- merging ----------------------------------------------------------------------------------------------------

    def _run_train(self) -> None:
        """Take in how the last merge went, and start the next one."""
        if self._merging is not None and self._merging.done():
            task, self._merging = self._merging, None
            try:
                task.result()
            except RepositoryError as error:
                self._end(Outcome(ENGINE, "engine", f"the merged branch cannot be moved: {error}"))
        waiting = [facts.waiting for facts in self._ledger.units.values() if facts.waiting is not None]
        if self._merging is None and waiting and self._may_merge():
            self._refuse_rewound()
            report = waiting[0]
            self._merging = asyncio.create_task(self._train.merge(report, lambda: self._roster.units.get(report.unit)))
            self._merging.add_done_callback(lambda _: self._wake.set())

    def _may_merge(self) -> bool:
        """Whatever passed is still merged when a run is stopped; not when the machinery is in trouble."""
        return self._ending is None or self._ending.code == STOPPED

    def _refuse_rewound(self) -> None:
        if not self._train.is_whole():
            raise BadInput(
                f"{self._train.ref} no longer holds every unit that passed: somebody moved it back. "
                f"`git update-ref {self._train.ref} {self._ledger.tip}` puts it right; no unit is merged twice"
            )

    async def _verify_tip(self) -> None:
        """Run every distinct verify once more on the final tip, where something was merged (design, A night, 7)."""
        facts = self._ledger.units
        merged = [unit for unit in self._roster.units.values() if unit.id in facts and facts[unit.id].merged]
        if not merged or self._ending is not None:
            return
        commands = list(distinct_verifies(merged, self._config))
        if self._config.merge.verify is not None:
            commands.append(self._config.merge.verify)
        for result in await self._train.verify_tip(list(dict.fromkeys(commands))):
            self._display.note(f"tip         {result.command}: {'passed' if result.passed else 'FAILED'}")

    # -- decisions --------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Ask git now and then whose work is in whose way: never more often than every two seconds."""
        now = asyncio.get_running_loop().time()
        if now - self._probed_at >= _PROBE_SECONDS and self._ending is None:
            self._probed_at = now
            ready = self._keeper.state.ready()
            self._conflicts = await asyncio.to_thread(self._probe.conflicts, ready, self._ledger)

    def _view(self) -> View:
        left = None if self._deadline is None else (self._deadline - datetime.now().astimezone()).total_seconds()
        return View(
            state=self._due(self._keeper.state),
            units=self._roster.units,
            ledger=self._ledger,
            limits=limits_of(self._config, self._options),
            handed_out=self._handed_out,
            held_back=self._held,
            closed=self._ending is not None,
            merging=self._may_merge(),
            paused=self._ledger.paused,
            archived=self._roster.landed(self._ledger.base, self._probe.holds),
            outdated=self._probe.outdated(self._roster.units, self._ledger),
            conflicts=self._conflicts,
            begun=self._begun,
            seconds_left=left,
            writable=self._keeper.broken is None,
        )

    def commit_state(self, outcome: Outcome) -> None:
        """Commit state file and archive on the merged branch, where the config says so (spec S13)."""
        if self._config.state.commit and outcome.code != ENGINE:
            commit = statecommit.commit_state(self._repository, self._book)
            if commit is not None:
                self._display.note(f"state       committed as {commit[:8]}")

    def untouched(self, outcome: Outcome) -> list[str]:
        """Return what was ready and never handed out, unless a person or the machinery cut the run short."""
        is_whole = was_whole(outcome, ran_out=self._ran_out) and not self._ledger.paused
        return untouched(replace(self._view(), held_back=())) if is_whole else []

    def _decide(self) -> Plan:
        now = asyncio.get_running_loop().time()
        self._held = {unit: until for unit, until in self._held.items() if until > now}
        view = self._view()
        for name, line in warnings(budgets(self._ledger, view.limits, view.units), self._spending()).items():
            if name not in self._warned:
                self._warned.add(name)
                self._display.note(f"budget      {line}")
        plan = decide(view)
        if plan.held and "slots" not in self._warned:
            self._warned.add("slots")
            self._display.note(f"budget      {plan.held}")
        return plan

    def _due(self, state: State) -> State:
        return with_due(state, self._ledger, self._roster.attempts)

    def _save(self, plan: Plan) -> None:
        self._keeper.update(lambda state: _blocked(self._due(state), plan.blocks))
        for unit in self._keeper.state.ids(Bucket.passed):
            if unit not in self._told:
                self._told.add(unit)
                self._display.note(f"passed      {unit}")

    async def _hand_out(self, hand_out: HandOut) -> None:
        facts = self._ledger.unit(hand_out.unit)
        if hand_out.attempt > facts.attempt > 0:  # nobody comes back to the last one
            self._book.note(*self._unreported([hand_out.unit]))
        base = base_of(hand_out, facts)
        if base is None:
            base = await asyncio.to_thread(self._train.tip)
        order = order_of(
            self._roster.units[hand_out.unit],
            hand_out,
            facts,
            self._config,
            night=self._ledger.night,
            base=base,
            run_id="",
            repository=self._repository.root,
            home=self._home.root,
        )
        self._handed_out.add(hand_out.unit)
        self._begun += hand_out.epoch == 1
        await self._fleet.hand_out(order, hand_out.reserve)

    def _events(self, unit: str, attempt: int) -> int:
        return forks.stored(self._home.session(self._ledger.night, unit, attempt))

    def _used_up(self, unit: str, ledger: Ledger) -> str:
        limits = limits_of(self._config, self._options)
        return used_up(unit, View(self._keeper.state, self._roster.units, ledger, limits))

    def _hold(self, unit: str, seconds: float) -> None:
        self._held[unit] = asyncio.get_running_loop().time() + seconds

    # -- the end ----------------------------------------------------------------------------------------------------

    def _listen_to_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._interrupted)

    def _interrupted(self) -> None:
        """Once: let every unit finish its step, checkpoint and stop. Twice: now; sessions go on where they are."""
        if self._ending is None:
            self._end(Outcome(STOPPED, "stopped", "stopped by a signal"))
            self._display.note("stopping    after the current steps; once more stops at once")
        else:
            self._killed = True
            self._engine.kill()
        self._wake.set()

    def _end(self, outcome: Outcome) -> None:
        self._ending = self._ending or outcome
        self._wake.set()

    async def _stop_what_must_stop(self) -> None:
        """Ask those at work to stop where the run is ending, its time is over, or a person took the unit away."""
        if self._deadline is not None and datetime.now().astimezone() >= self._deadline:
            self._ran_out = True
            paused = f", and the night is paused: {PAUSED}" if self._ledger.paused else ""
            self._end(Outcome(STOPPED, "stopped", f"it is {self._deadline:%H:%M}{paused}"))
        wanted = set() if self._ending is not None else set(self._keeper.state.ready())
        await self._fleet.ask_to_stop(lambda unit: unit in wanted, lambda unit: self._ledger.unit(unit).is_cancelled)

    def _outcome(self, plan: Plan) -> Outcome:
        if self._ending is not None:
            return self._ending
        if plan.short:
            self._ran_out = True
            detail = f"{plan.short} is reached: what is left does not cover {plan.next_claim} for the next unit"
            return Outcome(STOPPED, "stopped", detail)
        if plan.late:
            self._ran_out = True
            return Outcome(STOPPED, "stopped", f"too little time for another unit before {self._deadline:%H:%M}")
        if plan.capped:
            return Outcome(STOPPED, "limit", cap_reached(self._options, len(self._handed_out), self._begun))
        state = self._keeper.state
        if state.tried or state.open or state.blocked:
            return Outcome(NOT_ALL_PASSED, "done", "some did not pass, or need you")
        if self._train.is_red():
            return Outcome(NOT_ALL_PASSED, "done", "all passed alone, and the merged branch fails a verify")
        return Outcome(ALL_PASSED, "done", "all passed" if state.passed else "nothing to do")

    def _spending(self) -> Decimal:
        """Return what those at work say they have spent, beyond what is booked."""
        told = {unit: record.progress.get("cost") for unit, record in self._fleet.records.items()}
        return not_booked({unit: Decimal(cost) for unit, cost in told.items() if cost is not None}, self._ledger)

    def _show(self) -> None:
        flying = [(unit, record) for unit, record in self._fleet.records.items() if self._ledger.unit(unit).in_flight]
        self._show_limits([float(record.progress.get("waiting", 0)) for _, record in flying])
        self._display.update(
            Snapshot(
                counts=self._keeper.state.counts(),
                spent=self._ledger.spent + self._spending(),
                limit=self._config.limits.night,
                until=self._deadline,
                rows=[Row(unit, record.progress) for unit, record in flying],
                is_partly_unknown=any(facts.unpriced for facts in self._ledger.units.values()),
            )
        )

    def _show_limits(self, waiting: list[float]) -> None:
        """Say once a pause that the model's limits hold somebody back, where no table shows it."""
        longest = max(waiting, default=0.0)
        if longest > _WORTH_A_WORD_SECONDS and not self._limited:
            self._display.note(f"waiting     for the model's limits, {longest:.0f} s; no attempt is spent")
        self._limited = longest > 0


def _blocked(state: State, blocks: Iterable[Block]) -> State:
    """Raise units to `blocked`, unless a person has taken them away meanwhile."""
    for block in blocks:
        if block.unit in state.ready():
            state = moves.move(state, block.unit, Bucket.blocked, Cause.capped, block.note)
    return state
