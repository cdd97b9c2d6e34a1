"""The lease, the budget and the clock between the turn loop and every effect (protocol rule 9)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from .errors import Cancelled, LeaseLost
from .lease import HeldLease, boottime
from .model.patience import Waits
from .turn.loop import Gate, Progress, TurnLoop

__all__ = ["LeaseGate"]


@dataclass
class LeaseGate(Gate):
    """Asks the lease before every effect. `budget`: dollars (None: no limit); `deadline`: boottime; `fence`: seconds.

    What the unit has waited for its model does not count against the deadline.
    """

    lease: HeldLease
    budget: Decimal | None
    deadline: float
    fence: float
    show: Callable[[Progress], None]
    waits: Waits = field(default_factory=Waits)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    state: Progress | None = None
    loop: TurnLoop | None = None

    def look(self) -> None:
        """Take note that the lease has changed: a unit that a person cancelled ends its turn at once (spec A10)."""
        self.changed.set()
        if self.lease.wish == "cancel" and self.loop is not None:
            self.loop.cancel("cancelled by a person")

    async def before_step(self) -> None:
        """Return when a model call may be made. Raises Cancelled, LeaseLost."""
        if self.lease.asked_to_stop:
            raise Cancelled(self.lease.asked_to_stop)
        if boottime() >= self.deadline + self.waits.total:
            raise Cancelled("time")
        if self.budget is not None and self.state is not None:
            if self.state.cost is None:  # a limit that nobody can measure lets nothing through
                raise Cancelled("price")
            if self.state.cost >= self.budget:
                raise Cancelled("budget")
        await self.before_effect()

    async def before_effect(self) -> None:
        """Return when something may be changed: a beat was confirmed lately. Raises LeaseLost."""
        while boottime() - self.lease.confirmed_at > self.fence or self.lease.lost:
            if self.lease.lost:
                raise LeaseLost(f"{self.lease.unit} {self.lease.token} belongs to somebody else now")
            self.changed.clear()
            await self.changed.wait()

    def progress(self, state: Progress) -> None:
        """Show where the loop is, and remember what it has spent."""
        self.state = state
        self.show(state)
