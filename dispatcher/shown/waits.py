"""Why a unit that could be next is not: what it comes after, and whether that is a person's turn."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from dispatcher.archive import archived_units, landed
from dispatcher.budget import Limits
from dispatcher.context import Context
from dispatcher.decide import View, waits_for
from dispatcher.probe import Probe
from dispatcher.state import Bucket

__all__ = ["waits", "waits_here"]


def waits_here(here: Context) -> Mapping[str, str]:
    """Return the same for a repository as it is now, looked at from outside. Raises BadInput, RepositoryError."""
    limits = Limits(night=None, unit=None, attempts=here.config.limits.attempts, slots=1)
    archived = archived_units(here.repository.root)
    view = View(here.state, here.units, here.ledger, limits)
    if archived:
        base = here.ledger.base or here.repository.resolve(here.config.base or "HEAD")
        needed = {other for unit in here.units.values() for other in unit.after if other not in here.units}
        probe = Probe(here.repository)
        view = replace(view, archived=landed(archived, needed, lambda commit: probe.holds(base, commit)))
    faults = {unit: f"cannot be worked on: {error.message}" for unit, error in here.unworkable().items()}
    return {**waits(view), **faults}


def waits(view: View) -> Mapping[str, str]:
    """Return a line for each unit of `open` or `tried` that waits for another, naming what stands in its way."""
    lines = {}
    for unit in view.state.ready():
        if view.units.get(unit) is None or not view.units[unit].after:
            continue
        reasons = [_reason(other, view) for other in waits_for(unit, view)]
        if reasons:
            lines[unit] = f"waits for {', '.join(reasons)}"
    return lines


def _reason(unit: str, view: View) -> str:
    """Follow the chain to what needs a person, by the shortest way; who merely is not done yet is named alone."""
    ways: deque[tuple[str, ...]] = deque([(unit,)])
    seen = {unit}
    while ways:
        way = ways.popleft()
        if trouble := _trouble(way[-1], view):
            return f"{', which waits for '.join(way)}{trouble}"
        behind = [one for one in waits_for(way[-1], view) if one not in seen]
        ways.extend((*way, one) for one in behind)
        seen.update(behind)
    return unit


def _trouble(unit: str, view: View) -> str:
    """Return what of a unit only a person can put right, "" for nothing."""
    match view.state.bucket_of(unit):
        case Bucket.blocked if view.ledger.unit(unit).is_cancelled:
            return ", which was cancelled"
        case Bucket.blocked:
            return ", which is blocked and needs you"
        case None if unit in view.archived:
            return " of an archived night, which the base does not hold: merge that night's branch"
        case None:
            return ", which does not exist: add it, or take it out of `after`"
    return ""
