"""Claim and lease of a unit: one record in Redis, changed by scripts alone (protocol rules 4, 5, 8, 9, 10).

It saves money and time; safety rests on the journal, the unit's lock and commit ids. No time-to-live anywhere: it is
wall-clock, and a restart after it lapsed would fire the whole fleet.
"""

import json
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import redis

from .orders import Told

__all__ = ["BeatResult", "LeaseRecord", "LeaseTable", "WishListener", "boottime"]

BeatResult = Literal["ok", "lost", "missing"]

# The run_id is read inside the script: what a record says was true of this Redis, or nothing happens.
_RUN_ID = "local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')\n"

_PUBLISH = (
    _RUN_ID
    + """
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'state', ARGV[2], 'holder', '', 'run_id', run, 'beat', 0)
return run
"""
)

_CLAIM = (
    _RUN_ID
    + """
local r = redis.call('HMGET', KEYS[1], 'token', 'state', 'holder', 'run_id')
if r[1] ~= ARGV[1] or r[2] ~= 'open' or r[3] ~= '' or r[4] ~= ARGV[3] or run ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], 'state', 'closed', 'holder', ARGV[2], 'beat', 1)
return 1
"""
)

# A closed record without a holder is what the dispatcher publishes after Redis came back: whoever really holds the
# unit re-asserts itself (rule 10). Until then a record of an earlier start may be old, so that nobody is lost by it.
_BEAT = (
    _RUN_ID
    + """
local r = redis.call('HMGET', KEYS[1], 'token', 'state', 'holder', 'beat', 'wish', 'told', 'run_id')
if not r[1] then return {'missing', '', 0} end
local other = r[7] == run and 'lost' or 'missing'
if r[1] ~= ARGV[1] then return {other, '', 0} end
if r[3] == '' and r[2] == 'closed' then
  redis.call('HSET', KEYS[1], 'holder', ARGV[2])
elseif r[3] ~= ARGV[2] then
  return {other, '', 0}
elseif tonumber(r[4]) < tonumber(ARGV[3]) then
  return {'missing', '', 0}
end
redis.call('HSET', KEYS[1], 'beat', tonumber(ARGV[3]) + 1, 'progress', ARGV[4])
return {'ok', r[5] or '', tonumber(r[6]) or 0}
"""
)

# What a unit was told outlives its records; the count in the record lets the next beat say that there is something.
_TELL = """
for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'told', redis.call('HLEN', KEYS[2]))
return 1
"""

_WISHES = "overnight:wishes"  # a message says that there is a new one; who misses it reads the wish at its next beat
_WISH = """
if redis.call('HGET', KEYS[1], 'wish') == ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'wish', ARGV[1])
redis.call('PUBLISH', ARGV[2], KEYS[1])
return 1
"""
_SLICE_SECONDS = 0.5  # how long a listener listens before it looks whether it should stop


def boottime() -> float:
    """Seconds of CLOCK_BOOTTIME: it goes on while the machine sleeps, and nobody can set it (rule 9)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One poll of a record. `beat` 0: nobody has claimed it; `told` is how many messages its holder is pointed to."""

    token: str
    holder: str
    beat: int
    progress: Mapping[str, Any]
    told: int = 0


class LeaseTable:
    """The records of one night. Every method raises redis.RedisError when Redis is not there."""

    def __init__(self, client: redis.Redis, night: str) -> None:
        self._redis = client
        self._prefix = f"overnight:{night}:lease:"
        self._told = f"overnight:{night}:told:"
        self._publish = client.register_script(_PUBLISH)
        self._claim = client.register_script(_CLAIM)
        self._beat = client.register_script(_BEAT)
        self._tell = client.register_script(_TELL)
        self._wish = client.register_script(_WISH)

    def run_id(self) -> str:
        """Return the identity of this start of Redis."""
        return str(self._redis.info("server")["run_id"])

    def publish(self, unit: str, token: str, state: Literal["open", "closed"]) -> str:
        """Set the record, without a holder, and return the run_id it stands under (rule 4; closed: rule 10)."""
        return _text(self._publish(keys=[self._prefix + unit], args=[token, state]))

    def claim(self, unit: str, token: str, holder: str, run_id: str) -> bool:
        """Set me as holder and close the record, if it is mine, open and of this Redis (rule 5). Otherwise go home."""
        return bool(self._claim(keys=[self._prefix + unit], args=[token, holder, run_id]))

    def beat(self, unit: str, token: str, holder: str, counter: int, progress: str) -> tuple[BeatResult, str, int]:
        """Raise the counter by compare-and-set (rule 8).

        Returns the result, what the dispatcher wishes, and how many messages of people there are for the unit.
        """
        result, wish, told = self._beat(keys=[self._prefix + unit], args=[token, holder, counter, progress])
        return _text(result), _text(wish), int(told)  # type: ignore[return-value]  # the script's own words

    def tell(self, unit: str, token: str, told: Sequence[Told]) -> bool:
        """Lay down what people said to a unit and point its holder to it; twice changes nothing.

        False where the record is missing or another: nobody heard of it yet, so tell again.
        """
        words = [part for one in told for part in (one.id, one.model_dump_json())]
        return bool(self._tell(keys=[self._prefix + unit, self._told + unit], args=[token, *words]))

    def told(self, unit: str) -> list[Told]:
        """Return what people said to a unit, oldest first. Empty after Redis lost its data: the order has it too."""
        found = self._redis.hgetall(self._told + unit)
        return [Told.model_validate_json(told) for _, told in sorted(found.items())]

    def forget_told(self, unit: str) -> None:
        """Delete what a unit was told: it is settled, and its next order carries all of it."""
        self._redis.delete(self._told + unit)

    def wish(self, unit: str, text: str) -> None:
        """Ask the holder for something: every worker beats at once when it is new, else at its next time."""
        self._wish(keys=[self._prefix + unit], args=[text, _WISHES])

    def poll(self, units: Sequence[str]) -> dict[str, LeaseRecord]:
        """Return the records that are there, by unit."""
        pipeline = self._redis.pipeline(transaction=False)
        for unit in units:
            pipeline.hmget(self._prefix + unit, ["token", "holder", "beat", "progress", "told"])
        return {unit: _record(row) for unit, row in zip(units, pipeline.execute(), strict=True) if row[0]}


def _record(row: list[bytes | None]) -> LeaseRecord:
    token, holder, beat, progress, told = (_text(value or b"") for value in row)
    return LeaseRecord(token, holder, int(beat or 0), json.loads(progress or "{}"), int(told or 0))


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


class HeldLease:
    """One claimed unit, as its holder sees it. The beater's thread changes it, the event loop reads it."""

    def __init__(self, table: LeaseTable, unit: str, token: str, holder: str, on_change: Callable[[], None]) -> None:
        self.table = table
        self.unit = unit
        self.token = token
        self.holder = holder
        self.confirmed_at = boottime()
        self.lost = False
        self.wish = ""
        self.told = 0  # messages of people that wait in the table's `told`
        self.draining = False
        self.progress: Mapping[str, Any] = {}
        self._counter = 1
        self.on_change = on_change

    @property
    def asked_to_stop(self) -> Literal["", "stopped", "shutdown"]:
        """Why the unit should stop at its next step: the dispatcher wishes it, or this worker shuts down."""
        if self.draining:
            return "shutdown"
        return "stopped" if self.wish in ("stop", "cancel") else ""

    def beat(self) -> None:
        """Raise the counter once. A Redis that is away or lost its data changes nothing: everybody waits for it."""
        if self.lost:
            return
        asked_at, progress = boottime(), json.dumps(self.progress, default=str)
        try:
            result, wish, told = self.table.beat(self.unit, self.token, self.holder, self._counter, progress)
        except redis.RedisError:
            return
        if result == "ok":
            self._counter += 1
            self.confirmed_at = asked_at  # when it was asked, not when it was answered: that could be much later
            self.wish, self.told = wish, told
        elif result == "lost":
            self.lost = True
        self.on_change()


class Beater:
    """The thread that beats for every lease of this process, and the watchdog over its event loop (rules 8, 11)."""

    def __init__(self, *, every: float, ticked: Callable[[], float], patience: float, bark: Callable[[], None]) -> None:
        """`every`: seconds between beats; `ticked`: boottime of the loop's last tick; `bark` ends the process."""
        self._every = every
        self._ticked = ticked
        self._patience = patience
        self._bark = bark
        self._held: dict[str, HeldLease] = {}
        self._stop = threading.Event()
        self._due = threading.Event()  # a beat, sooner than its time
        self._thread = threading.Thread(target=self._run, name="beater", daemon=True)

    def start(self) -> None:
        """Start beating."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; the leases simply stand still."""
        self._stop.set()
        self._due.set()
        self._thread.join(timeout=10)

    def hurry(self) -> None:
        """Beat at once: there may be a wish to be heard. Never blocks."""
        self._due.set()

    def hold(self, key: str, lease: HeldLease) -> None:
        """Beat for one more lease."""
        self._held[key] = lease

    def drop(self, key: str) -> None:
        """Stop beating for a lease."""
        self._held.pop(key, None)

    def _run(self) -> None:
        try:
            self._beat_on()
        except Exception:  # noqa: BLE001  # whatever it was, a process that no longer beats must not work on
            traceback.print_exc()
            self._bark()

    def _beat_on(self) -> None:
        while True:
            self._due.wait(self._every)
            self._due.clear()
            if self._stop.is_set():
                return
            if boottime() - self._ticked() > self._patience:
                self._bark()
            for lease in list(self._held.values()):
                lease.beat()


class WishListener:
    """The thread that hears of new wishes as they are made (spec A10). One that is missed is heard at the next beat."""

    def __init__(self, client: redis.Redis, heard: Callable[[], None], *, every: float) -> None:
        """`heard` is called from the thread; `every`: seconds between looks for a Redis that is away."""
        self._redis = client
        self._heard = heard
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wishes", daemon=True)

    def start(self) -> None:
        """Start listening."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._listen()
            except redis.RedisError:  # everybody waits for Redis
                self._stop.wait(self._every)

    def _listen(self) -> None:
        with self._redis.pubsub(ignore_subscribe_messages=True) as ears:  # type: ignore[no-untyped-call]
            ears.subscribe(_WISHES)
            while not self._stop.is_set():
                if ears.get_message(timeout=_SLICE_SECONDS) is not None:
                    while ears.get_message() is not None:
                        pass  # whoever is heard at once with others is answered with them
                    self._heard()
