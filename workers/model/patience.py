"""When to try a model call again: capped, jittered, cancellable; limits and overloads are waited for by all together.

A limit spends nothing: no try, no attempt, none of a unit's minutes (`Waits`), only the night's time.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from workers.errors import ModelError
from workers.lease import boottime

from .assembly import Answer
from .failures import pauses_everybody
from .limiter import CAP_SECONDS, Door

__all__ = ["Patience", "Waits"]

# How long a wait for the model goes on before it looks whether it is still wanted.
_SLICE_SECONDS = 2.0
# After a pause all who waited begin within this share of it, so that the API does not meet them all at once.
_SPREAD, _LEAST_SPREAD, _MOST_SPREAD = 0.1, 0.1, 5.0


class Waits:
    """How long one unit has waited for its model: time that must not count against it."""

    def __init__(self, show: Callable[[float], None] = lambda _seconds: None) -> None:
        """`show` hears how many seconds a wait still takes, again and again while it goes on, and 0 when it is over."""
        self._show = show
        self._past = 0.0
        self._since: float | None = None
        self._limits: dict[asyncio.Timeout, float] = {}

    @property
    def total(self) -> float:
        """Seconds waited so far, the wait that goes on included."""
        return self._past + (0.0 if self._since is None else boottime() - self._since)

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Limit a block like asyncio.timeout, not counting what it waits for the model. Raises TimeoutError."""
        async with asyncio.timeout(seconds) as limit:
            self._limits[limit] = 0.0
            try:
                yield limit
            finally:
                del self._limits[limit]

    def go_on(self, seconds: float) -> None:
        """A wait goes on, or begins, and will take so long."""
        if self._since is None:
            self._since = boottime()
            now = asyncio.get_running_loop().time()
            for limit in self._limits:
                self._limits[limit] = (limit.when() or now) - now
                if not limit.expired():
                    limit.reschedule(None)
        self._show(seconds)

    def over(self) -> None:
        """The wait is over, if there was one."""
        if self._since is None:
            return
        self._past, self._since = self.total, None
        now = asyncio.get_running_loop().time()
        for limit, left in self._limits.items():
            if not limit.expired():
                limit.reschedule(now + left)
        self._show(0.0)


class Patience:
    """Tries calls through one door until there is an answer, or an error that waiting will not mend."""

    def __init__(
        self, door: Door | None = None, *, tries: int = 8, base: float = 1.0, cap: float = CAP_SECONDS
    ) -> None:
        """`tries` counts consecutive failures of one call that are no limits; `base` and `cap` are seconds."""
        self.door = door or Door(cap=cap)
        self._tries = tries
        self._base = base
        self._cap = cap

    @property
    def paused_for(self) -> float:
        """Seconds until the pause ends that all share; 0 when there is none."""
        return self.door.paused_for

    async def call(
        self,
        attempt: Callable[[], Awaitable[Answer]],
        *,
        waits: Waits | None = None,
        ready: Callable[[], Awaitable[None]] | None = None,
    ) -> Answer:
        """Return the first whole answer. Raises the ModelError that waiting will not mend.

        `waits` is told of every wait; `ready` is awaited before every try and while waiting, and may raise: a lost
        lease or a stop is not to wait for the model's limits.
        """
        waits = waits or Waits()
        failures, tried = 0, 0
        while True:
            try:
                await self._turn(waits, ready)
            finally:
                waits.over()
            if ready:
                await ready()
            if self.paused_for > 0:  # it began while `ready` waited for something else
                continue
            try:
                return await attempt()
            except ModelError as error:
                failures += not pauses_everybody(error)
                if error.kind not in ("transient", "rate_limit") or failures >= self._tries:
                    raise
                tried += 1
                try:
                    await self._back_off(error, tried, waits, ready)
                finally:
                    waits.over()

    async def _turn(self, waits: Waits, ready: Callable[[], Awaitable[None]] | None) -> None:
        """Wait until the door is open and, while calls are paced, it is one's turn."""
        longest, has_place = 0.0, self.door.gap <= 0
        while True:
            left = self.paused_for
            if left > 0:
                longest = max(longest, left)
                await self._sleep(min(left, _SLICE_SECONDS), left, waits, ready)
            elif longest > 0:
                spread = min(_MOST_SPREAD, max(_LEAST_SPREAD, longest * _SPREAD))
                longest = 0.0
                await self._sleep(random.uniform(0, spread), 0.0, waits, ready)  # noqa: S311
            elif not has_place:
                has_place = True
                seconds = await asyncio.to_thread(self.door.place)
                await self._sleep_on(seconds, waits, ready)
            else:
                return

    async def _sleep_on(self, seconds: float, waits: Waits, ready: Callable[[], Awaitable[None]] | None) -> None:
        until = boottime() + seconds
        while (left := until - boottime()) > 0:
            await self._sleep(min(left, _SLICE_SECONDS), left, waits, ready)

    @staticmethod
    async def _sleep(seconds: float, left: float, waits: Waits, ready: Callable[[], Awaitable[None]] | None) -> None:
        waits.go_on(left)
        if ready:
            await ready()
        await asyncio.sleep(seconds)

    async def _back_off(
        self, error: ModelError, tried: int, waits: Waits, ready: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Wait before the next try; a failure that everybody meets becomes everybody's pause."""
        delay = min(self._cap, self._base * 2 ** min(tried, 16)) * random.uniform(0.5, 1.0)  # noqa: S311
        if error.retry_after is not None:
            delay = min(self._cap, max(self._base / 10, error.retry_after))  # 0 would be a loop without a breath
        if pauses_everybody(error):
            self.door.pause(delay)
        else:
            await self._sleep_on(delay, waits, ready)
