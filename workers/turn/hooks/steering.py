"""What a person says to a unit at work is heard between steps, each message once (spec A22)."""

from collections.abc import Sequence
from typing import Any, Protocol

import redis

from workers import prompt
from workers.blocking import blocking
from workers.lease import HeldLease
from workers.orders import Told, UnitOrder
from workers.session import events as ev
from workers.session.session import Session

from .hook import Hook

__all__ = ["Ears", "LeaseEars", "Steering"]


class Ears(Protocol):
    """Where messages of people arrive."""

    async def told(self) -> Sequence[Told]:
        """Return all that the unit was told so far, oldest first; what was heard already may be among it."""
        ...


class LeaseEars:
    """What the order brought along, and what the lease says has come since."""

    def __init__(self, order: UnitOrder, lease: HeldLease) -> None:
        self._lease = lease
        self._told = {told.id: told for told in order.told}
        self._fetched = 0

    async def told(self) -> Sequence[Told]:
        """Return all messages. Redis is asked only when the beat said that there are more; if it is away, next time."""
        waiting = self._lease.told
        if waiting > self._fetched:
            try:
                found = await blocking(self._lease.table.told, self._lease.unit)
            except redis.RedisError:
                return tuple(self._told.values())
            self._told |= {told.id: told for told in found}
        self._fetched = waiting
        return tuple(self._told.values())


class Steering(Hook):
    """Adds new messages before the next model call: behind all results, never between a call and its result."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears
        self._heard: set[str] = set()
        self._seen = 0  # events of the session

    async def between(self, session: Session) -> Sequence[Any]:
        """Return the messages that the session has not heard yet; its own log says which those are."""
        for event in session.events[self._seen :]:
            if isinstance(event, ev.UserMessage) and event.told:
                self._heard.add(event.told)
        self._seen = len(session.events)
        return [prompt.told(told) for told in await self._ears.told() if told.id not in self._heard]
