"""The asyncio host of one worker process: every slot's thread hands its unit's coroutine here and waits.

One event loop, one shared model client per endpoint, one beating thread, one courier. Whatever blocks leaves the loop.
"""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from worktrees.errors import DiskError

from . import places, reports
from .attempt import Job, attempt
from .lease import Beater, HeldLease, LeaseTable, WishListener, boottime
from .model.assembly import Answer, Broken
from .model.catalog import Parameters
from .model.limiter import Limiter
from .model.patience import Waits
from .model.pool import Pool
from .orders import AgentOrder, Report, UnitOrder
from .outbox import Courier, Mailbox, Outbox
from .session.surface import Request
from .turn.loop import ModelCall, Progress, Ready

__all__ = ["Host", "connect"]

_TICK_SECONDS = 0.5
_SHOWN = tuple(field.name for field in fields(Progress))
# Some of these wait for the worktree lock at a night's start: the others' barriers must not wait behind them.
_THREADS = 48
Show = Callable[[UnitOrder, Progress], None]


def connect(url: str) -> redis.Redis:
    """Return a client that fails soon instead of hanging (facts: `delay()` on a hung Redis blocks over a minute)."""
    if url.startswith("redis+socket://"):
        url = "unix://" + url.removeprefix("redis+socket://")
    # One retry at once, for a pooled connection that a restart of Redis cut; the default would sleep for seconds, and
    # with it the beat of every other unit.
    retry = Retry(NoBackoff(), retries=1)
    return redis.Redis.from_url(url, socket_timeout=10, socket_connect_timeout=3, retry=retry)


class Host:
    """One a process. `beat` is seconds between beats, `patience` seconds until a silent event loop is killed."""

    def __init__(self, broker: str, *, beat: float, patience: float, show: Show) -> None:
        self._redis = connect(broker)
        self._show = show
        self._beat = beat
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="blocking"))
        self._ticked = boottime()
        self._leases: dict[str, HeldLease] = {}
        self._limiter = Limiter(self._redis, every=beat)
        self._models = Pool(self._limiter)
        self._beater = Beater(every=beat, ticked=lambda: self._ticked, patience=patience, bark=_die)
        self._wishes = WishListener(self._redis, self._beater.hurry, every=beat)
        self._courier = Courier(lambda night: Mailbox(self._redis, night), self._delivered, every=beat)
        self._thread = threading.Thread(target=self._serve, name="host", daemon=True)

    def start(self, outbox: Path | None = None) -> None:
        """Start the threads; reports that a dead process left in `outbox` go out first."""
        self._thread.start()
        self._beater.start()
        self._wishes.start()
        self._courier.start()
        self._limiter.start()
        if outbox is not None:
            box = Outbox(outbox)
            for report in box.pending():
                self._courier.carry(box, report)

    def drain(self) -> None:
        """Ask every unit to stop at its next step (a shutdown that is not in a hurry)."""
        for lease in list(self._leases.values()):
            lease.draining = True

    def finish(self, seconds: float) -> None:
        """Wait a little until the dispatcher has everything that was reported; the rest goes out at the next start."""
        deadline = boottime() + seconds
        while not self._courier.idle() and boottime() < deadline:
            time.sleep(0.05)

    def run(self, order: UnitOrder) -> str:
        """Work on one order and return a line for people. Blocks: called from a slot's thread.

        Raises whatever an honest bug raises; the lease then stands still, and the dispatcher counts a loss.
        """
        lease = self._claim(order)
        if lease is None:
            return "not ours: claimed already, or an old order"
        try:
            report = asyncio.run_coroutine_threadsafe(self._work(order, lease), self._loop).result()
            if report is not None:
                report = self._deliver(order, report)
        except BaseException:
            self._delivered(order.task_id)
            raise
        if report is None:
            self._delivered(order.task_id)
            return "given up: somebody else holds the unit"
        return _line(report)

    def _claim(self, order: UnitOrder) -> HeldLease | None:
        table = LeaseTable(self._redis, order.night)
        if not table.claim(order.unit, order.token, self.name, order.run_id):
            return None
        return HeldLease(table, order.unit, order.token, self.name, lambda: None)

    async def _work(self, order: UnitOrder, lease: HeldLease) -> Report | None:
        waits = Waits(lambda seconds: _note_wait(lease, seconds))
        show = self._watcher(order, lease, waits)
        job = Job(order, lease, self._caller(order.agent, waits), show, learn=self._models.learn, waits=waits)
        task = asyncio.current_task()
        assert task is not None

        def on_change() -> None:
            for heard in job.heard:
                heard()
            if lease.lost:
                task.cancel()

        def tell_loop() -> None:
            self._loop.call_soon_threadsafe(on_change)

        lease.on_change = tell_loop
        self._leases[order.task_id] = lease
        self._beater.hold(order.task_id, lease)
        try:
            await self._models.learn(order.agent)
            return await attempt(job)
        except asyncio.CancelledError:
            if lease.lost:
                return None
            raise
        finally:
            self._leases.pop(order.task_id, None)

    def _caller(self, agent: AgentOrder, waits: Waits) -> ModelCall:
        """Return the model call of one unit: the process's shared client, behind the fleet's one limiter."""

        async def call(
            model: str, request: Request, parameters: Parameters, ready: Ready, on_broken: Callable[[Broken], None]
        ) -> Answer:
            return await self._models.call(
                agent, model, request, parameters, waits=waits, ready=ready, on_broken=on_broken
            )

        return call

    def _watcher(self, order: UnitOrder, lease: HeldLease, waits: Waits) -> Callable[[Progress], None]:
        def watch(state: Progress) -> None:
            lease.progress = {
                **{name: getattr(state, name) for name in _SHOWN},  # three times a step: asdict would copy
                "waited": round(waits.total, 1),
            }
            self._show(order, state)

        return watch

    def _deliver(self, order: UnitOrder, report: Report) -> Report:
        """Hand a report to the courier; the lease is kept beating until the dispatcher has it (rule 14).

        Returns what is carried: where the outbox's disk is full, the unit's release, from memory alone. The session's
        log has the verdict, and the next hand-out tells it.
        """
        outbox = Outbox(places.outbox(Path(order.home)))
        try:
            outbox.put(report)
        except DiskError as error:
            report = report if report.kind == "release" else reports.instead(report, "disk", str(error))
        self._courier.carry(outbox, report)
        return report

    def _delivered(self, task_id: str) -> None:
        self._beater.drop(task_id)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.create_task(self._tick())
        self._loop.run_forever()

    async def _tick(self) -> None:
        while True:
            self._ticked = boottime()
            await asyncio.sleep(_TICK_SECONDS)


def _note_wait(lease: HeldLease, seconds: float) -> None:
    """Show how long the unit still waits for its model; 0: no longer."""
    progress = dict(lease.progress)
    if seconds > 0:
        progress["waiting"] = round(seconds, 1)
    else:
        progress.pop("waiting", None)
    lease.progress = progress


def _line(report: Report) -> str:
    if report.kind == "verdict":
        return f"{report.verdict}  {report.turns} turns  {report.steps} steps  ${report.cost}  {report.note}".strip()
    return f"released: {report.reason} {report.detail}".strip()


def _die() -> None:
    """End this process at once: its event loop no longer ticks, so nothing it says can be believed (rule 11)."""
    os.kill(os.getpid(), signal.SIGKILL)
