"""Celery: carries orders to slots and shows their progress; it is never asked what is true (facts: Celery).

The only module that imports Celery. Settings come from the facts page: early acknowledgement, no prefetch, a short
visibility timeout; the lease makes what the broker loses or doubles harmless.
"""

import gc
import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import worker_init, worker_shutdown, worker_shutting_down
from kombu.exceptions import OperationalError

from . import places
from .host import Host
from .model.client import warm
from .orders import UnitOrder
from .turn.loop import Progress

__all__ = ["BEAT", "BROKER", "HOME", "PATIENCE", "QUEUE", "TASK", "app", "make_app", "send"]

QUEUE = "overnight"
TASK = "overnight.run_unit"
# What the engine, or whoever starts a worker by hand, says to the worker process.
BROKER, HOME, BEAT, PATIENCE = "OVERNIGHT_BROKER", "OVERNIGHT_REPOSITORY_HOME", "OVERNIGHT_BEAT", "OVERNIGHT_PATIENCE"
# An event costs about as much CPU as a fifth of a step (docs/benchmarks.md): a few a turn are enough to watch.
_SHOW_EVERY_SECONDS = 3.0
_SHOW_AT_MOST = 1000
_GATHER_SECONDS = 0.5  # events that go out together: making ready to send costs more than sending
_FAREWELL_SECONDS = 3.0


def make_app(broker: str) -> Celery:
    """Return the application for a broker URL (`redis://…` or `redis+socket:///path`)."""
    made = Celery("overnight", broker=broker)
    made.conf.update(
        task_acks_late=False,
        worker_disable_prefetch=True,
        worker_prefetch_multiplier=1,
        task_ignore_result=True,
        task_track_started=True,
        worker_send_task_events=True,
        task_send_sent_event=True,
        task_default_queue=QUEUE,
        task_serializer="json",
        accept_content=["json"],
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        broker_transport_options={
            "visibility_timeout": 60,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_timeout": 10,
            "socket_connect_timeout": 3,
        },
    )
    return made


class Announcer:
    """Sends progress events for Flower from a thread of its own, a few a turn (facts: Flower)."""

    def __init__(self, celery: Celery) -> None:
        self.hostname = ""
        self._celery = celery
        self._shown: dict[str, tuple[int, float]] = {}  # task id -> turn and time last shown
        self._queue: queue.Queue[dict[str, object]] = queue.Queue(_SHOW_AT_MOST)
        threading.Thread(target=self._run, name="announcer", daemon=True).start()

    def show(self, order: UnitOrder, state: Progress) -> None:
        """Queue an event; a view that cannot keep up, or a broker that is away, loses some."""
        now = time.monotonic()
        turn, at = self._shown.get(order.task_id, (0, 0.0))
        if turn == state.turn and now - at < _SHOW_EVERY_SECONDS:
            return
        self._shown[order.task_id] = (state.turn, now)
        cost = "?" if state.cost is None else f"{state.cost:.2f}"
        line = f"turn {state.turn} step {state.step} ${cost} {state.tool}"
        with suppress(queue.Full):
            self._queue.put_nowait(
                {"uuid": order.task_id, "turn": state.turn, "step": state.step, "cost": cost, "result": line}
            )

    def _run(self) -> None:
        while True:
            first = self._queue.get()
            time.sleep(_GATHER_SECONDS)
            with suppress(OperationalError, OSError), self._celery.events.default_dispatcher(self.hostname) as to:
                for fields in (first, *self._waiting()):
                    to.send("task-progress", **fields)

    def _waiting(self) -> Iterator[dict[str, object]]:
        with suppress(queue.Empty):
            while True:
                yield self._queue.get_nowait()


app = make_app(os.environ.get(BROKER, "redis://127.0.0.1:6379/0"))


class _Process:
    """What this worker process holds: one of each, because Celery gives one process to a task function."""

    host: Host | None = None
    lock = threading.Lock()
    announcer: Announcer


@app.task(name=TASK, bind=True)
def run_unit(self: Any, order: dict[str, Any]) -> str:
    """Run one order in this process's host. The returned line is what Flower shows."""
    parsed = UnitOrder.model_validate(order)
    host = _host()
    _Process.announcer.hostname = self.request.hostname
    return host.run(parsed)


def _host() -> Host:
    with _Process.lock:
        if _Process.host is None:
            _Process.announcer = Announcer(app)
            _Process.host = Host(
                os.environ[BROKER],
                beat=float(os.environ.get(BEAT, "1.0")),
                patience=float(os.environ.get(PATIENCE, "5.0")),
                show=_Process.announcer.show,
            )
            home = os.environ.get(HOME)
            _Process.host.start(places.outbox(Path(home)) if home else None)
        return _Process.host


@worker_init.connect
def _start_host(**_: object) -> None:
    """Send what a dead process left in the outbox without waiting for the first order, and be ready for that one."""
    _host()
    warm()
    gc.collect()
    gc.freeze()  # what was imported stays: no collection has to walk through all of it again


@worker_shutting_down.connect
def _drain(**_: object) -> None:
    if _Process.host is not None:
        _Process.host.drain()


@worker_shutdown.connect
def _finish(**_: object) -> None:
    if _Process.host is not None:
        _Process.host.finish(_FAREWELL_SECONDS)


def send(sender: Celery, order: UnitOrder) -> None:
    """Publish an order under its readable task id. Raises kombu's OperationalError when the broker is away."""
    sender.send_task(
        TASK,
        kwargs={"order": order.model_dump(mode="json")},
        task_id=order.task_id,
        queue=QUEUE,
        argsrepr=f"{order.unit} attempt={order.attempt}",
        kwargsrepr="",
        retry=False,
    )
