from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from dispatcher.config import parse
from dispatcher.options import Options, cap_reached, deadline, limits_of

NOW = datetime(2026, 11, 30, 22, 30).astimezone()


@pytest.mark.parametrize(
    ("limits", "ends"),
    [
        ("", None),
        ("hours = 2", NOW + timedelta(hours=2)),
        ('until = "07:00"', NOW + timedelta(hours=8, minutes=30)),
        ('until = "22:30"', NOW + timedelta(days=1)),
        ('until = "07:00"\nhours = 2', NOW + timedelta(hours=2)),
        ('until = "23:00"\nhours = 2', NOW + timedelta(minutes=30)),
    ],
)
def test_a_run_ends_at_whatever_comes_first(limits: str, ends: datetime | None) -> None:
    """The next time of day, or so many hours; a time of day that is now means tomorrow."""
    assert deadline(parse(f"[limits]\n{limits}\n"), NOW) == ends


def test_the_command_line_wins_over_the_config() -> None:
    """Dollars of the run: --budget, else [limits] run."""
    config = parse('[limits]\nrun = "$3"\nattempts = 2\n')
    assert limits_of(config, Options(4)).run == Decimal(3)
    found = limits_of(config, Options(4, limit=5, budget=Decimal(1), rounds=6))
    assert (found.slots, found.distinct, found.run, found.hand_outs, found.attempts) == (4, 5, Decimal(1), 6, 2)


def test_the_cap_that_was_reached_is_named() -> None:
    """With what was handed out by then."""
    assert cap_reached(Options(1, limit=2), 2, 3) == "--limit 2: 2 units handed out"
    assert cap_reached(Options(1, limit=9, rounds=3), 2, 3) == "--rounds 3: 3 attempts begun"
