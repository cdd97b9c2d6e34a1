"""Nights on disk as runs leave them, made without a run: a journal, sessions, and a state file."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from entries import NIGHT, merged, ordered, reported, verdict

from dispatcher.home import Home
from dispatcher.journal import Journal, NightStarted, Written
from dispatcher.state import Bucket, State, render
from dispatcher.upkeep.remains import Remains, gather
from workers.log import Log
from workers.session import events as ev

BASE = "b" * 40
COST = Decimal("0.25")


def started(night: str = NIGHT) -> NightStarted:
    """The start of a night."""
    return NightStarted(night=night, title="Ours", base=BASE, base_name="main")


def state(rev: int = 1, night: str = NIGHT, **buckets: str) -> State:
    """A state file: `open="a b"`."""
    found = State("Ours")
    for bucket, units in buckets.items():
        for unit in units.split():
            found = found.add(unit, Bucket(bucket))
    return found.stamped(night, rev)


def wrote(rev: int = 1, night: str = NIGHT, **buckets: str) -> Written:
    """That a state file was written."""
    return Written(rev=rev, text=render(state(rev, night, **buckets)))


def session(unit: str, word: str, attempt: int = 1, night: str = NIGHT, **more: Any) -> list[Any]:
    """The events of an attempt that ended in a verdict, in one step for COST."""
    text = [{"type": "text", "text": "Done."}]
    return [
        ev.SessionStart(night=night, unit=unit, attempt=attempt, base=BASE, digest="d", model="m", system=[], tools=[]),
        ev.Claim(epoch=1, holder="h"),
        ev.TurnStart(turn=1),
        ev.UserMessage(source="goal", content=text),
        ev.StepStart(step=1, model="m", max_tokens=9, request="r"),
        ev.AssistantMessage(content=text, stop_reason="end_turn", cost=COST),
        ev.StepEnd(step=1, stop_reason="end_turn"),
        ev.TurnEnd(turn=1, reason="completed"),
        ev.Report(report=closing(unit, word, attempt, night=night, **more).model_dump(mode="json")),
    ]


def closing(unit: str, word: str, attempt: int = 1, **more: Any) -> Any:
    """The report of such an attempt."""
    return verdict(unit, word, attempt, cost=COST, **more)


@dataclass
class OldNight:
    """One night's files."""

    home: Home
    night: str = NIGHT

    def journal(self, *entries: Any) -> Path:
        """Append to the journal."""
        journal = Journal.open(self.home.journal(self.night))
        journal.write(*entries)
        journal.close()
        return self.home.journal(self.night)

    def log(self, unit: str, attempt: int, events: Sequence[Any]) -> Path:
        """Write a session."""
        path = self.home.session(self.night, unit, attempt)
        with Log.open(path) as log:
            log.append([(event.type, event.data()) for event in events])
            log.flush()
        return path

    def passed(self, unit: str = "a") -> "OldNight":
        """Make it a night in which one unit passed."""
        night = {"night": self.night}
        self.journal(
            started(self.night),
            wrote(1, self.night, open=unit),
            ordered(unit),
            reported(closing(unit, "pass", **night)),
            merged(unit),
            wrote(2, self.night, passed=unit),
        )
        self.log(unit, 1, session(unit, "pass", **night))
        return self

    def look(self) -> Remains:
        """Read it."""
        return gather(self.home, self.night)
