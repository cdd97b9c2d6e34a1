"""The fleet: hand-outs, leases and losses, as the dispatcher sees them (rules 4, 10, 12).

Redis being away is never an error here: everybody waits for it, and an order that got nowhere is a loss that costs
nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal

import redis
from kombu.exceptions import OperationalError

from dispatcher.book import Book
from dispatcher.journal import Lost, Ordered
from dispatcher.shown.display import Display
from dispatcher.watch import Loss, Watch
from workers.app import make_app, send
from workers.lease import LeaseRecord, LeaseTable
from workers.orders import UnitOrder

__all__ = ["Fleet"]

# Beyond the unit's minutes, its setup and one verify, until a hand-out is taken for hung.
_GRACE_SECONDS = 600.0


@dataclass
class Fleet:
    """Everybody who is at work. `beat` is P in seconds: polls are at least so far apart."""

    book: Book
    leases: LeaseTable
    broker: str
    watch: Watch
    beat: float
    display: Display
    records: Mapping[str, LeaseRecord] = field(default_factory=dict)
    _dead: set[str] = field(default_factory=set)
    _deadlines: dict[str, tuple[str, float]] = field(default_factory=dict)
    _polled_at: float = float("-inf")
    _was_told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._celery = make_app(self.broker)
        self._was_told.update(unit for unit, facts in self.book.ledger.units.items() if facts.told)  # by an earlier run

    async def hand_out(self, order: UnitOrder, reserve: Decimal | None) -> None:
        """Journal, publish the record, send (rule 4)."""
        self.book.note(
            Ordered(
                unit=order.unit,
                attempt=order.attempt,
                epoch=order.epoch,
                base=order.base,
                digest=order.digest,
                reserve=reserve,
                fork=order.fork,
            )
        )
        self.display.note(f"order       {order.unit} {order.token}")
        work = order.seconds + order.verify.setup_timeout + order.verify.timeout
        self._deadlines[order.unit] = (order.token, asyncio.get_running_loop().time() + work + _GRACE_SECONDS)
        with suppress(redis.RedisError, OperationalError):
            run_id = await asyncio.to_thread(self.leases.publish, order.unit, order.token, "open")
            await asyncio.to_thread(send, self._celery, order.model_copy(update={"run_id": run_id}))

    def bury(self, holders: Iterable[str]) -> None:
        """Take note of holders whose process is known to be dead: no need to count their silence."""
        self._dead.update(holders)

    async def poll(self, now: float) -> None:
        """Count one poll of every hand-out in flight, unless the last one was less than a beat ago."""
        if now - self._polled_at < self.beat:
            return
        self._polled_at = now
        tokens = self._tokens()
        try:
            run_id, self.records = await asyncio.to_thread(self._read, list(tokens))
            is_new = self.watch.new_redis(run_id)
            lost_records = [unit for unit in tokens if is_new or unit not in self.records]
            await self._tell(tokens)
            for unit in lost_records:  # whoever holds the unit re-asserts itself; nobody can claim it (rule 10)
                await asyncio.to_thread(self.leases.publish, unit, tokens[unit], "closed")
        except redis.RedisError:
            return
        if not is_new:
            overdue = [unit for unit, token in tokens.items() if self._is_overdue(unit, token, now)]
            for loss in [
                *self.watch.observe(tokens, self.records, self._dead),
                *(Loss(unit, True) for unit in overdue),
            ]:
                if loss.recall:
                    await self._recall(loss.unit, tokens[loss.unit])
                elif self.book.ledger.unit(loss.unit).in_flight and await self._give_up(loss.unit, tokens[loss.unit]):
                    self._lose(loss)

    async def _tell(self, tokens: Mapping[str, str]) -> None:
        """Lay down for those at work what people said to them: again where Redis lost it, or a record is new.

        Who is at work no more finds it in the next order.
        """
        for unit, token in tokens.items():
            told, record = self.book.ledger.unit(unit).told, self.records.get(unit)
            if record is not None and record.token == token and record.told < len(told):
                await asyncio.to_thread(self.leases.tell, unit, token, told)
                self._was_told.add(unit)
        for unit in self._was_told - set(tokens):
            await asyncio.to_thread(self.leases.forget_told, unit)
            self._was_told.discard(unit)

    async def _recall(self, unit: str, token: str) -> None:
        """Close an order that nobody has taken, so that nobody does while it is being given up (rule 10).

        Whoever took it in the moment of our looking away re-asserts itself with its next beat.
        """
        with suppress(redis.RedisError):
            await asyncio.to_thread(self.leases.publish, unit, token, "closed")
            self.watch.recall(unit, token)

    async def _give_up(self, unit: str, token: str) -> bool:
        """End the lease before the loss is journalled: else its holder could come back between loss and next order.

        False while Redis is away: the loss is counted again.
        """
        try:
            await asyncio.to_thread(self.leases.publish, unit, f"{token} given up", "closed")
        except redis.RedisError:
            return False
        return True

    def _is_overdue(self, unit: str, token: str, now: float) -> bool:
        """Tell whether a hand-out of this run is past all its own limits: whatever beats there hangs (rule 11)."""
        known, deadline = self._deadlines.get(unit, ("", 0.0))
        record = self.records.get(unit)
        waited = float(record.progress.get("waited", 0)) if record is not None else 0.0  # for the model: nobody's fault
        return known == token and now > deadline + waited

    async def ask_to_stop(
        self, is_wanted: Callable[[str], bool], is_cancelled: Callable[[str], bool] = lambda _: False
    ) -> None:
        """Wish that those at work on units that are not wanted any more stop at their next step, or at once.

        An order that nobody has taken yet is closed, so that nobody does.
        """
        for unit, token in self._tokens().items():
            if is_wanted(unit):
                continue
            record = self.records.get(unit)
            with suppress(redis.RedisError):
                if record is not None and record.token == token and record.beat:
                    await asyncio.to_thread(self.leases.wish, unit, "cancel" if is_cancelled(unit) else "stop")
                elif (unit, token) not in self.watch.recalled:
                    await self._recall(unit, token)
        await self._call_back()

    async def _call_back(self) -> None:
        """Wish that those stop who work on in vain: a pass of an epoch before theirs was accepted (rule 15)."""
        tokens = self._superseded()
        if not tokens:
            return
        with suppress(redis.RedisError):
            for unit, record in (await asyncio.to_thread(self.leases.poll, list(tokens))).items():
                if record.token != tokens[unit]:
                    continue
                if record.beat:
                    await asyncio.to_thread(self.leases.wish, unit, "stop")
                else:
                    await self._give_up(unit, tokens[unit])

    def _superseded(self) -> dict[str, str]:
        """Return the newest hand-outs whose attempt was settled by an older one, and that said nothing themselves."""
        ledger = self.book.ledger
        found = {
            unit: f"{facts.attempt}.{facts.epoch}"
            for unit, facts in ledger.units.items()
            if facts.settled and not facts.in_flight and 0 < facts.closed_epoch < facts.epoch
        }
        return {unit: token for unit, token in found.items() if f"{ledger.night}.{unit}.{token}" not in ledger.reports}

    def _tokens(self) -> dict[str, str]:
        flying = {unit: facts for unit, facts in self.book.ledger.units.items() if facts.in_flight}
        return {unit: f"{facts.attempt}.{facts.epoch}" for unit, facts in flying.items()}

    def _read(self, units: list[str]) -> tuple[str, dict[str, LeaseRecord]]:
        return self.leases.run_id(), self.leases.poll(units)

    def _lose(self, loss: Loss) -> None:
        facts = self.book.ledger.unit(loss.unit)
        record = self.records.get(loss.unit)
        told = record.progress if record is not None else {}
        cost = told.get("cost")
        self.book.note(
            Lost(
                unit=loss.unit,
                attempt=facts.attempt,
                epoch=facts.epoch,
                claimed=loss.claimed,
                step=int(told.get("step", 0)),
                done=int(told.get("done", 0)),
                cost=None if cost is None else Decimal(cost),
            )
        )
        why = "its worker is gone" if loss.claimed else "nobody took it"
        self.display.note(f"lost        {loss.unit} {facts.attempt}.{facts.epoch}: {why}")
