"""What a session has cost, call by call: answers, summaries, compactions and broken calls alike (spec A7). Pure."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from . import events as ev
from .fork import own

__all__ = ["PAID", "is_paid", "spent"]

PAID = (ev.AssistantMessage, ev.Compaction, ev.ThinkingSummary, ev.CallBroken)
"""The events that a call's usage and cost stand in."""


def is_paid(event: Any) -> bool:
    """Tell whether an event stands for a call. A compaction without a model, as version 1 wrote it, does not."""
    return isinstance(event, PAID) and (not isinstance(event, ev.Compaction) or bool(event.model))


def spent(history: Sequence[Any]) -> Decimal | None:
    """Return the dollars that an attempt's own calls cost (not a fork's past); None where a price is unknown."""
    costs = [event.cost for event in own(history) if is_paid(event)]
    return None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0))
