"""What a hand-out has to say at its end: a verdict or a release, derived from its session. Pure (rules 13, 14)."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from .orders import Release, ReleaseReason, UnitOrder, UnitReport, Verdict
from .sendable import sendable
from .session import events as ev
from .session.costs import spent
from .session.fork import own
from .turn.stops import text_of

__all__ = ["instead", "release", "verdict"]

_OUTPUT_TAIL = 4_000  # characters: what the next attempt and the morning report need of a verify


def verdict(
    order: UnitOrder,
    history: Sequence[Any],
    said: Verdict,
    seconds: float,
    *,
    note: str = "",
    result: ev.VerifyResult | None = None,
    pause: ev.Pause | None = None,
    pause_seq: int | None = None,
    unsupported: Sequence[str] = (),
) -> UnitReport:
    """Return a verdict on the order's unit. `result` is the verify behind it, `pause` what waits for a person."""
    answers = (event for event in reversed(history) if isinstance(event, ev.AssistantMessage))
    last = next(answers, None)
    passed = result if result is not None and result.passed else None
    return UnitReport(
        night=order.night,
        unit=order.unit,
        attempt=order.attempt,
        epoch=order.epoch,
        verdict=said,
        note=pause.question if pause is not None else _with_problem(note, history),
        commit=passed.commit if passed else None,
        tree=passed.tree if passed else None,
        digest=order.digest,
        summary=text_of(last.content) if last is not None else "",
        output="" if result is None else result.output[-_OUTPUT_TAIL:],
        question=None if pause is None else pause.question,
        pause_seq=pause_seq,
        pause_call="" if pause is None else pause.call_id,
        approval=pause.question if pause is not None and pause.what == "approval" else None,
        unsupported=tuple(unsupported),
        **_counts(history, seconds),
    )


def _with_problem(note: str, history: Sequence[Any]) -> str:
    """Put what is wrong with the agent's file first: nothing else of the attempt says as much. Errors quote names."""
    last = next((event for event in reversed(own(history)) if isinstance(event, ev.AgentLoaded)), None)
    problem = "" if last is None else last.problem
    return sendable("; ".join(part for part in (problem, note) if part))


def release(
    order: UnitOrder, reason: ReleaseReason, detail: str, history: Sequence[Any] = (), seconds: float = 0.0
) -> Release:
    """Return the unit as it was (protocol rule 13): no verdict, no attempt spent."""
    return Release(
        night=order.night,
        unit=order.unit,
        attempt=order.attempt,
        epoch=order.epoch,
        reason=reason,
        detail=sendable(detail),
        **(_counts(history, seconds) if history else {}),
    )


def instead(report: UnitReport, reason: ReleaseReason, detail: str) -> Release:
    """Return a release in the place of a verdict that cannot be delivered: what was spent stays told."""
    kept = report.model_dump(include=set(Release.model_fields) - {"kind", "commit"})
    return Release(**kept, reason=reason, detail=sendable(detail))


def _counts(history: Sequence[Any], seconds: float) -> dict[str, Any]:
    mine = own(history)
    cost: Decimal | None = spent(history)
    return {
        "cost": cost,
        "turns": sum(isinstance(event, ev.TurnStart) for event in mine),
        "steps": sum(isinstance(event, ev.StepStart) for event in mine),
        "seconds": seconds,
    }
