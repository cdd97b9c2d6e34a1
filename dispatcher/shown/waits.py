"""Why a unit that could be next is not: what it comes after, and whether that is a person's turn."""

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
    return waits(view)


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
    bucket = view.state.bucket_of(unit)
    if bucket is None:
        return f"{unit} of an archived night, which the base does not hold: merge that night's branch"
    if bucket is Bucket.blocked:
        return f"{unit}, which is blocked and needs you"
    behind = next((one for one in waits_for(unit, view) if view.state.bucket_of(one) is Bucket.blocked), None)
    return f"{unit}, which waits for {behind}, which is blocked and needs you" if behind else unit
