"""One limiter for the fleet: what one worker learns of the model's limits holds for all workers of the same Redis.

A door is an endpoint with a key, named by a fingerprint. Whether a door is open is a comparison in this process; only
news goes through Redis: a limit that somebody met, told by a message and read again every beat in case it was missed.
All times in Redis are Redis's own (`TIME` in a script), none outlives the cap, and nothing there expires: neither a
worker's clock nor a jump of Redis's can stop the fleet for longer than the cap. A Redis that is away leaves each
process its own pauses.
"""

import hashlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import redis

from workers.lease import boottime

from .headroom import Headroom

__all__ = ["CAP_SECONDS", "Door", "Limiter", "fingerprint"]

CAP_SECONDS = 300.0
"""No pause is longer, whatever a header or a clock says; a limit that still holds then is met again."""

# While calls are paced, how much longer they must be so to be told again.
_PACE_NEWS_SECONDS = 5.0
# How long the listener listens before it looks whether it should stop.
_SLICE_SECONDS = 0.5
_CHANNEL = "overnight:limits"
_PREFIX = "overnight:limits:"

# KEYS: the door. ARGV: the cap, a pause, a gap and how long it holds (seconds; 0: nothing to tell), channel, the door.
# What is stored beyond the cap is what a clock jump left behind: it is cut and written back, so that it runs out.
_SYNC = """
local t = redis.call('TIME')
local now, cap = t[1] + t[2] / 1000000, tonumber(ARGV[1])
local stored = redis.call('HMGET', KEYS[1], 'until', 'gap', 'gap_until')
local ends, gap, gap_ends = tonumber(stored[1]) or 0, tonumber(stored[2]) or 0, tonumber(stored[3]) or 0
local kept_ends, kept_gap_ends = ends, gap_ends
ends = math.max(math.min(ends, now + cap), now + tonumber(ARGV[2]))
gap_ends = math.min(gap_ends, now + cap)
if tonumber(ARGV[4]) > 0 then gap, gap_ends = tonumber(ARGV[3]), now + tonumber(ARGV[4]) end
if tonumber(ARGV[2]) > 0 or tonumber(ARGV[4]) > 0 or ends < kept_ends or gap_ends < kept_gap_ends then
  redis.call('HSET', KEYS[1], 'until', string.format('%.6f', ends), 'gap', gap,
             'gap_until', string.format('%.6f', gap_ends))
end
if tonumber(ARGV[2]) > 0 or tonumber(ARGV[4]) > 0 then redis.call('PUBLISH', ARGV[5], ARGV[6]) end
return {tostring(math.max(0, ends - now)), tostring(gap), tostring(math.max(0, gap_ends - now))}
"""

# Only while calls are paced: take the next place in the fleet's queue; returns the seconds until it is one's turn.
_PLACE = """
local t = redis.call('TIME')
local now, cap = t[1] + t[2] / 1000000, tonumber(ARGV[1])
local at = math.max(now, math.min(tonumber(redis.call('HGET', KEYS[1], 'next') or '0'), now + cap))
redis.call('HSET', KEYS[1], 'next', string.format('%.6f', at + tonumber(ARGV[2])))
return tostring(at - now)
"""


def fingerprint(*parts: str | None) -> str:
    """Return a name for an endpoint with a key that does not tell the key."""
    return hashlib.sha256("\0".join(part or "" for part in parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _News:
    """What the fleet has not been told yet; moments of this host's boottime."""

    pause_until: float = 0.0
    gap: float = 0.0
    gap_until: float = 0.0


class Door:
    """One endpoint and key, as this process knows it: until when nobody may ask, and how far calls are apart.

    Every method may be called from any thread and none of them blocks, but for `place`.
    """

    def __init__(
        self,
        name: str = "",
        *,
        cap: float = CAP_SECONDS,
        tell: Callable[["Door"], None] = lambda _door: None,
        queue: Callable[["Door", float], float | None] = lambda _door, _gap: None,
    ) -> None:
        """`tell` hears of news for the fleet; `queue` takes a place in the fleet's queue, or returns None."""
        self.name = name
        self.cap = cap
        self._tell = tell
        self._queue = queue
        self._lock = threading.Lock()
        self._pause_until = 0.0
        self._gap, self._gap_until, self._next = 0.0, 0.0, 0.0
        self._told_pace = 0.0, 0.0
        self._news: _News | None = None

    @property
    def paused_for(self) -> float:
        """Seconds until the pause ends; 0 when there is none."""
        return max(0.0, self._pause_until - boottime())

    @property
    def gap(self) -> float:
        """Seconds that calls are kept apart just now; 0: as fast as they come."""
        return self._gap if boottime() < self._gap_until else 0.0

    def pause(self, seconds: float) -> None:
        """Let nobody ask for so long, at most the cap: this process at once, the fleet within moments."""
        until = boottime() + min(seconds, self.cap)
        with self._lock:
            if until <= self._pause_until:
                return
            self._pause_until = until
            news = self._news or _News()
            self._news = _News(until, news.gap, news.gap_until)
        self._tell(self)

    def heed(self, headroom: Headroom) -> None:
        """Pause or slow down as an answer's headers ask for."""
        if headroom.pause > 0:
            self.pause(headroom.pause)
        if headroom.gap > 0:
            self._slow(headroom.gap, headroom.seconds)

    def _slow(self, gap: float, seconds: float) -> None:
        until = boottime() + min(seconds, self.cap)
        gap = min(gap, self.cap)
        with self._lock:
            self._gap, self._gap_until = gap, until
            told_gap, told_until = self._told_pace
            if 0.8 * told_gap <= gap <= 1.25 * told_gap and until <= told_until + _PACE_NEWS_SECONDS:
                return  # every answer says much the same: not worth a message
            self._told_pace = gap, until
            self._news = _News(self._news.pause_until if self._news else 0.0, gap, until)
        self._tell(self)

    def place(self) -> float:
        """Take the next place among paced calls; returns the seconds until it is one's turn. Blocks for a moment."""
        gap = self.gap
        if gap <= 0:
            return 0.0
        wait = self._queue(self, gap)
        if wait is not None:
            return wait
        with self._lock:
            now = boottime()
            at = max(now, min(self._next, now + self.cap))
            self._next = at + gap
            return at - now

    def news(self) -> _News | None:
        """Return what the fleet has not been told yet."""
        return self._news

    def told(self, news: _News | None) -> None:
        """Take note that the fleet knows; what came up meanwhile is still news."""
        with self._lock:
            if self._news == news:
                self._news = None

    def learn(self, pause: float, gap: float, gap_seconds: float) -> None:
        """Take in what the fleet knows, in seconds from now. A pause of one's own is never cut short by it."""
        now = boottime()
        with self._lock:
            self._pause_until = max(self._pause_until, now + min(pause, self.cap))
            if gap_seconds > 0:
                self._gap, self._gap_until = gap, now + min(gap_seconds, self.cap)


class Limiter:
    """The doors of one process. `every`: seconds between looks at Redis; without a client each process is alone."""

    def __init__(self, client: redis.Redis | None = None, *, every: float = 1.0, cap: float = CAP_SECONDS) -> None:
        self._redis = client
        self._every = every
        self._cap = cap
        self._doors: dict[str, Door] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="limits", daemon=True)
        # Its one thread starts with the first limit that is met.
        self._teller = ThreadPoolExecutor(1, thread_name_prefix="limits-tell")
        if client is not None:
            self._sync_script = client.register_script(_SYNC)
            self._place_script = client.register_script(_PLACE)

    def door(self, name: str) -> Door:
        """Return the door with that fingerprint, one a process. The first time it asks Redis: call it off the loop."""
        if name not in self._doors:
            made = Door(name, cap=self._cap, tell=self._tell, queue=self._place)
            self._sync_quietly(made)  # a pause may be going on
            if self._doors.setdefault(name, made) is made:
                self._sync_quietly(made)  # what was said before anybody here listened for it
        return self._doors[name]

    def start(self) -> None:
        """Start listening."""
        if self._redis is not None:
            self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self._stop.set()
        self._teller.shutdown(wait=False, cancel_futures=True)
        if self._thread.ident is not None:
            self._thread.join(timeout=10)

    # -- Redis ------------------------------------------------------------------------------------------------------

    def _tell(self, door: Door) -> None:
        if self._redis is not None:
            with suppress(RuntimeError):  # it has been stopped
                self._teller.submit(self._sync_quietly, door)

    def _sync_quietly(self, door: Door) -> None:
        if self._redis is not None:
            with suppress(redis.RedisError):  # away: the next look tells it
                self._sync(door)

    def _sync(self, door: Door) -> None:
        """Tell what is news and learn what the fleet knows. Raises redis.RedisError."""
        news, now = door.news(), boottime()
        pause, gap, gap_seconds = (
            (max(0.0, news.pause_until - now), news.gap, max(0.0, news.gap_until - now)) if news else (0.0, 0.0, 0.0)
        )
        found = self._sync_script(
            keys=[_PREFIX + door.name],
            args=[self._cap, f"{pause:.6f}", f"{gap:.6f}", f"{gap_seconds:.6f}", _CHANNEL, door.name],
        )
        door.told(news)
        door.learn(*(float(value) for value in found))

    def _place(self, door: Door, gap: float) -> float | None:
        if self._redis is None:
            return None
        try:
            return float(self._place_script(keys=[_PREFIX + door.name], args=[self._cap, f"{gap:.6f}"]))
        except redis.RedisError:
            return None

    def _run(self) -> None:
        assert self._redis is not None
        while not self._stop.is_set():
            try:
                self._listen(self._redis)
            except redis.RedisError:  # everybody waits for Redis
                self._stop.wait(self._every)

    def _listen(self, client: redis.Redis) -> None:
        with client.pubsub(ignore_subscribe_messages=True) as heard:  # type: ignore[no-untyped-call]
            heard.subscribe(_CHANNEL)
            looked_at = 0.0
            while not self._stop.is_set():
                if (left := looked_at + self._every - time.monotonic()) <= 0:
                    looked_at = time.monotonic()
                    for door in list(self._doors.values()):
                        self._sync(door)
                    continue
                message = heard.get_message(timeout=min(left, _SLICE_SECONDS))
                named = None if message is None else self._doors.get(message["data"].decode())
                if named is not None:
                    self._sync(named)
