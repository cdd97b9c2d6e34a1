"""One unit in a real repository, a model that plays a script, and a lease that always holds unless a test says no."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from workers.attempt import Job, attempt
from workers.lease import boottime
from workers.log import read
from workers.model.client import ModelClient
from workers.orders import AgentOrder, UnitOrder, VerifyOrder
from workers.places import Places
from workers.rehearsal import RehearsalServer
from workers.session import events as ev
from workers.session.session import load_events
from workers.turn.loop import Progress


class Killed(BaseException):
    """The process died here, as far as the log and the worktree can tell."""


class FakeLease:
    """Confirmed at every moment, until `stale` or `lost`."""

    def __init__(self, token: str) -> None:
        self.unit = "a"
        self.token = token
        self.holder = "host:1"
        self.lost = False
        self.asked_to_stop = ""
        self.wish = ""
        self.told = 0
        self.stale = False

    @property
    def confirmed_at(self) -> float:
        return boottime() - 3600 if self.stale else boottime()


@dataclass
class AttemptStand:
    """A repository, a home outside of it, a server, and how the next order differs from the last."""

    repository: Any
    home: Path
    server: RehearsalServer
    client: ModelClient
    base: str
    options: dict[str, Any] = field(default_factory=dict)
    watch: Callable[[Progress], None] = lambda _: None
    # Its own: a night's processes are known on the whole host by its id, and other tests run at the same time.
    night: str = field(default_factory=lambda: f"1117-{secrets.token_hex(4)}")
    lease: FakeLease = field(default_factory=lambda: FakeLease("1.1"))
    heard: list[Callable[[], None]] = field(default_factory=list)

    def order(self, *, run: str = "test -f done", protect: tuple[str, ...] = (), **changes: Any) -> UnitOrder:
        """An order for attempt 1, epoch 1 of unit `a`, with changes."""
        verify = VerifyOrder(
            run=run, timeout=20, protect=protect, may_edit=changes.pop("may_edit", ()), setup=changes.pop("setup", None)
        )
        model = changes.pop("model", "claude-sonnet-5-5")
        given = {
            "night": self.night,
            "unit": "a",
            "attempt": 1,
            "epoch": 1,
            "run_id": "r",
            "goal": "Make it.",
            "base": self.base,
            "digest": "d",
            "repository": str(self.repository.path),
            "home": str(self.home),
            "agent": AgentOrder(model=model, base_url=self.server.url),
            "verify": verify,
            "rounds": 4,
            "budget": Decimal(50),
            "seconds": 60.0,
            **changes,
        }
        return UnitOrder(**given)

    def _call(self) -> Callable[..., Any]:
        return lambda model, asked, how, _ready, on_broken: self.client.call(model, asked, how, on_broken=on_broken)

    def hear(self) -> None:
        """Let the attempt notice that its lease has changed."""
        for heard in self.heard:
            heard()

    async def run(self, **changes: Any) -> Any:
        """Attempt an order."""
        order = self.order(**{**self.options, **changes})
        self.lease.token = order.token
        job = Job(order, self.lease, self._call(), self.watch, self.heard)
        return await attempt(job)

    @property
    def places(self) -> Places:
        return Places(self.home, self.night, "a")

    def events(self, attempt: int = 1) -> list[Any]:
        """The session's events on disk."""
        path = self.places.session(attempt)
        return load_events(path, read(path).records)

    def of(self, kind: type) -> list[Any]:
        """The session's events of one type."""
        return [event for event in self.events() if isinstance(event, kind)]

    def told(self) -> list[str]:
        """The texts that the model was told, each with its source."""
        return [f"{event.source}: {event.content[0]['text']}" for event in self.of(ev.UserMessage)]

    def worktrees(self) -> list[str]:
        """Names of the worktrees that are there."""
        place = self.places.worktrees
        return sorted(path.name for path in place.iterdir() if path.name != ".trash") if place.is_dir() else []
