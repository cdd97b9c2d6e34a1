"""The gate between the turn loop and every effect: money, minutes, wishes and the lease."""

import asyncio
from dataclasses import dataclass
from decimal import Decimal

import pytest

from workers.errors import Cancelled, LeaseLost
from workers.gate import LeaseGate
from workers.lease import boottime
from workers.model.patience import Waits
from workers.turn.loop import Progress


@dataclass
class Lease:
    """A lease as the gate sees it."""

    unit: str = "a"
    token: str = "1.1"
    lost: bool = False
    wish: str = ""
    asked_to_stop: str = ""
    age: float = 0.0

    @property
    def confirmed_at(self) -> float:
        return boottime() - self.age


def gate(
    lease: Lease | None = None, *, budget: str | None = None, seconds: float = 60, waits: Waits | None = None
) -> LeaseGate:
    money = None if budget is None else Decimal(budget)
    return LeaseGate(
        lease=lease or Lease(),  # type: ignore[arg-type]
        budget=money,
        deadline=boottime() + seconds,
        fence=5,
        show=lambda _: None,
        waits=waits or Waits(),
    )


def spent(dollars: str | None) -> Progress:
    return Progress(turn=1, step=1, tool="", cost=None if dollars is None else Decimal(dollars))


@pytest.mark.parametrize(("dollars", "stops"), [("0.99", False), ("1.00", True), ("7", True)])
async def test_money(dollars: str, stops: bool) -> None:
    """The call that exceeded the budget is the last one."""
    at = gate(budget="1")
    await at.before_step()
    at.progress(spent(dollars))
    if stops:
        with pytest.raises(Cancelled, match="budget"):
            await at.before_step()
    else:
        await at.before_step()


async def test_money_that_nobody_can_count() -> None:
    """What was spent is unknown: under a limit no further call is made, without one all go on."""
    at = gate(budget="1")
    at.progress(spent(None))
    with pytest.raises(Cancelled, match="price"):
        await at.before_step()
    free = gate()
    free.progress(spent(None))
    await free.before_step()


async def test_minutes() -> None:
    """At the deadline no call is made any more."""
    await gate(seconds=60).before_step()
    with pytest.raises(Cancelled, match="time"):
        await gate(seconds=-1).before_step()


async def test_waiting_for_the_model_costs_no_minutes() -> None:
    """Neither the gate's deadline nor a block's limit runs while the fleet is paused; both go on afterwards."""
    waits = Waits()
    at = gate(seconds=0.2, waits=waits)
    async with waits.timeout(0.2):
        waits.go_on(60)
        await asyncio.sleep(0.4)
        await at.before_step()
        waits.over()
        await at.before_step()
    with pytest.raises(TimeoutError):
        async with waits.timeout(0.05):
            await asyncio.sleep(1)
    await asyncio.sleep(0.2)
    with pytest.raises(Cancelled, match="time"):
        await at.before_step()


@pytest.mark.parametrize("why", ["stopped", "shutdown"])
async def test_asked_to_stop(why: str) -> None:
    """A wish is heard before the next call."""
    with pytest.raises(Cancelled, match=why):
        await gate(Lease(asked_to_stop=why)).before_step()


async def test_an_unconfirmed_lease_waits_until_it_is_confirmed_or_lost() -> None:
    """Nothing may be done meanwhile; a lease that is lost says so at once."""
    lease = Lease(age=100)
    at = gate(lease)
    waiting = asyncio.create_task(at.before_effect())
    await asyncio.sleep(0.02)
    assert not waiting.done()
    lease.age = 0
    at.look()
    await asyncio.wait_for(waiting, 1)
    lease.lost = True
    with pytest.raises(LeaseLost, match=r"a 1\.1"):
        await at.before_effect()
