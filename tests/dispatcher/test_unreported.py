"""What nobody reported is booked from the sessions' own logs."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from entries import NIGHT, lost, ordered

from dispatcher.home import Home
from dispatcher.journal import NightStarted, Spent
from dispatcher.ledger import Ledger
from dispatcher.unreported import unreported
from workers.session import events as ev
from workers.session.session import Session

STARTED = NightStarted(night=NIGHT, title="Ours", base="b" * 40, base_name="main")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


async def write(home: Home, *costs: str | None) -> None:
    session = Session.open(home.session(NIGHT, "a", 1))
    await session.record(
        ev.SessionStart(night=NIGHT, unit="a", attempt=1, base="b", digest="d", model="m", system=[], tools=[]),
        *(
            ev.AssistantMessage(content=[], stop_reason="end_turn", cost=None if cost is None else Decimal(cost))
            for cost in costs
        ),
    )
    session.close()


def ledger(*entries: Any) -> Ledger:
    return Ledger().extend([STARTED, *entries])


async def test_the_log_knows_more(home: Home) -> None:
    """What the holder told of before it died is less than what its log says: the log's sum is booked, once."""
    await write(home, "0.25", "0.50")
    told = ledger(ordered("a"), lost("a", cost=Decimal("0.25")))
    (spent,) = unreported(home, told, ["a"])
    assert spent == Spent(unit="a", attempt=1, cost=Decimal("0.75"))
    told.add(spent)
    assert told.spent == Decimal("0.75")
    assert unreported(home, told, ["a"]) == []


async def test_what_cannot_be_known(home: Home) -> None:
    """No log here, a damaged one, or an unknown price: nothing is booked, and nothing stops."""
    told = ledger(ordered("a"))
    assert unreported(home, told, ["a"]) == []
    await write(home, "0.25", None)
    assert unreported(home, told, ["a"]) == []
    path = home.session(NIGHT, "a", 1)
    path.write_bytes(b"x" + path.read_bytes())
    assert unreported(home, told, ["a"]) == []
