"""What a run is asked for on the command line, and the caps and the time it gets, with what the config says. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from dispatcher.budget import Limits
from dispatcher.config import Config
from dispatcher.unattended.schedule import next_at

__all__ = ["Options", "cap_reached", "deadline", "limits_of"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for on the command line."""

    slots: int
    limit: int | None = None
    flower: bool = False
    budget: Decimal | None = None  # dollars of this run; else [limits] run
    rounds: int | None = None  # attempts begun


def limits_of(config: Config, options: Options) -> Limits:
    """Return the caps in force: the config's, where the command line does not say otherwise."""
    limits = config.limits
    return Limits(
        night=limits.night,
        unit=limits.unit,
        attempts=limits.attempts,
        slots=options.slots,
        distinct=options.limit,
        run=options.budget or limits.run,
        turns=limits.turns,
        run_turns=limits.run_turns,
        night_turns=limits.night_turns,
        rounds=limits.rounds,
        hand_outs=options.rounds,
        stale_after=limits.stale_after,
    )


def cap_reached(options: Options, units: int, begun: int) -> str:
    """Return which cap of the command line keeps a run from beginning more, in words."""
    if options.limit is not None and units >= options.limit:
        return f"--limit {options.limit}: {units} units handed out"
    return f"--rounds {options.rounds}: {begun} attempts begun"


def deadline(config: Config, now: datetime) -> datetime | None:
    """Return when a run that begins `now` must end: the next `until`, or after so many `hours`, whichever is first."""
    limits = config.limits
    ends = []
    if limits.until is not None:
        ends.append(next_at(limits.until, now))
    if limits.hours is not None:
        ends.append(now + timedelta(hours=limits.hours))
    return min(ends, default=None)
