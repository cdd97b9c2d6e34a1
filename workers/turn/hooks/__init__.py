"""Message hooks: attached in one place, in one order, under one rule: add messages, never rewrite sent bytes (A22)."""

from collections.abc import Sequence

from workers.lease import HeldLease
from workers.orders import UnitOrder
from workers.places import Places

from .hook import Hook
from .images import Images
from .repair import Repair
from .shorten import Shorten
from .steering import LeaseEars, Steering
from .trim import Trim

__all__ = ["Hook", "attached"]


def attached(order: UnitOrder, places: Places, lease: HeldLease) -> Sequence[Hook]:
    """Return a unit's hooks in the order in which they see each step.

    Results are shortened before the line that says what was repaired goes in front of them.
    """
    return (Steering(LeaseEars(order, lease)), Images(), Shorten(places.scratch), Repair(), Trim())
