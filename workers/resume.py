"""Where a session stands when a worker takes it up: pure, from its repaired events alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .orders import Answered
from .session import events as ev
from .session.fork import own

__all__ = [
    "CutShort",
    "Forked",
    "Fresh",
    "Interrupted",
    "Settled",
    "Standing",
    "Suspended",
    "Unverified",
    "Verified",
    "standing",
]


# What may stand between a turn's start and its end though nobody has said a word in it.
_BESIDE = ev.Torn | ev.SessionFork | ev.AgentLoaded | ev.Unknown


@dataclass(frozen=True, slots=True)
class Fresh:
    """No turn yet: the goal is the first message."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """A stored question or approval waits; `answer` is what a person said to it, None while nobody has."""

    pause: ev.Pause
    pause_seq: int
    answer: Answered | None


@dataclass(frozen=True, slots=True)
class Unverified:
    """The last turn completed; its work has not been verified."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Verify spoke last: a pass is to be reported, a failure is the next turn's message."""

    result: ev.VerifyResult


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The last turn was cut off, aborted or ended in an error: the agent goes on."""


@dataclass(frozen=True, slots=True)
class CutShort:
    """The last turn hit a limit of the model: its output's, which the next turn is told (spec A15), or its window's."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class Forked:
    """Nothing was done yet behind a fork: the agent goes on; `failed` is a verify that it has not been told of."""

    failed: ev.VerifyResult | None


@dataclass(frozen=True, slots=True)
class Settled:
    """A flushed report ends the session: it is sent again without a model call (protocol rule 14)."""

    report: dict[str, Any]


Standing = Fresh | Suspended | Unverified | Verified | Interrupted | CutShort | Forked | Settled


def standing(history: Sequence[Any], answers: Sequence[Answered]) -> Standing:
    """Return where a repaired session stands, given what people have answered so far."""
    forked = _forked(history)
    if forked is not None:
        return forked
    waiting = _waiting(history)
    if waiting is not None:
        pause, seq = waiting
        answer = _answer(answers, pause, seq)
        report = _reported(history)
        if answer is None and report is not None:
            return Settled(report)
        return Suspended(pause, seq, answer)
    report = _reported(history)
    if report is not None:
        return Settled(report)
    return _progress(history)


def _answer(answers: Sequence[Answered], pause: ev.Pause, seq: int) -> Answered | None:
    """Return the last word on this very call: what was said of another one at the same place is none."""
    said = (given for given in reversed(answers) if given.seq == seq and given.call in ("", pause.call_id))
    return next(said, None)


def _forked(history: Sequence[Any]) -> Forked | Fresh | None:
    """Return what a fork begins with, None once it has a turn or a report of its own."""
    mine = own(history)
    if len(mine) == len(history) or any(isinstance(event, ev.TurnStart | ev.Report) for event in mine):
        return None
    before = _progress(history)
    if isinstance(before, Fresh):
        return before
    return Forked(before.result if isinstance(before, Verified) and not before.result.passed else None)


def _waiting(history: Sequence[Any]) -> tuple[ev.Pause, int] | None:
    for seq in range(len(history) - 1, -1, -1):
        event = history[seq]
        if isinstance(event, ev.Pause):
            answered = any(
                isinstance(e, ev.ToolResult | ev.ToolCall) and e.call_id == event.call_id for e in history[seq:]
            )
            return None if answered else (event, seq)
    return None


def _reported(history: Sequence[Any]) -> dict[str, Any] | None:
    """Return the verdict that ends the log; claims of later hand-outs behind it change nothing."""
    for event in reversed(history):
        if isinstance(event, ev.Report):
            return event.report if event.report.get("kind") == "verdict" else None
        if not isinstance(event, ev.Claim | ev.Torn):
            return None
    return None


def _progress(history: Sequence[Any]) -> Standing:
    events = [event for event in history if not isinstance(event, _BESIDE)]
    for index in range(len(events) - 1, -1, -1):
        match events[index]:
            case ev.VerifyResult() as result:
                return Verified(result)
            case ev.TurnEnd() if isinstance(events[index - 1], ev.TurnStart):
                pass  # cut off before its message was stored: that turn never was, and its message is still due
            case ev.TurnEnd(reason="completed"):
                return Unverified()
            case ev.TurnEnd(reason="max-tokens", facts=facts):
                return CutShort(str(facts.get("error", "")))
            case ev.TurnEnd():
                return Interrupted()
            case _:
                pass
    return Fresh()
