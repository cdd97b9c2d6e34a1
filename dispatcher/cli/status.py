"""`overnight status`: how the night stands, from the files alone."""

import json
from typing import Any

import click

from dispatcher import dropbox
from dispatcher.context import Context
from dispatcher.errors import BadInput, StateFileError
from dispatcher.presence import is_at_work
from dispatcher.shown.counted import dollars
from dispatcher.shown.waits import waits_here
from dispatcher.state import Bucket
from dispatcher.steering import PAUSED, is_paused
from dispatcher.unattended.detached import waits_until

__all__ = ["command"]


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, as_json: bool) -> None:
    """Show the four buckets, who is in flight, and what was spent."""
    here, wrong = Context.here().readable()
    facts = _facts(here) | {"waits_until": waits_until(here.home), "wrong": None if wrong is None else str(wrong)}
    if as_json:
        click.echo(json.dumps(facts))
        return
    if wrong is not None:
        click.echo(_unreadable(wrong))
    if facts["waits_until"]:
        click.echo(f"a run waits until {facts['waits_until']}; `overnight stop` calls it off")
    counts = "   ".join(
        f"{bucket} {len(facts['buckets'][bucket])}" for bucket in ("open", "tried", "passed", "blocked")
    )
    spent = dollars(facts["spent"], is_partly_unknown=bool(facts["unpriced"]))
    click.echo(f"night {facts['night'] or '(not started)'}   {counts}   {spent}")
    if facts["paused"]:
        click.echo(f"  paused: {PAUSED}")
    for bucket in Bucket:
        for entry in here.state.entries(bucket):
            flying = _flying(entry.id, facts)
            flying = f"  ({facts['limited'][entry.id]})" if entry.id in facts["limited"] else flying
            said = "  ".join(part for part in (entry.note, facts["waiting"].get(entry.id, "")) if part)
            click.echo(f"  {bucket:<8} {entry.id}{flying}  {said}".rstrip())


def _unreadable(wrong: BadInput) -> str:
    """Return what is wrong and what to do; what stands below it is no more than what was."""
    hint = "a run goes on with what it read before, and none begins until this is mended"
    if isinstance(wrong, StateFileError):
        hint = "nothing is handed out until this is mended; or `overnight fsck --rebuild-state`"
    return "\n".join([*(f"✘ {line}" for line in str(wrong).splitlines()), f"  {hint}; the night as it was last:"])


def _flying(unit: str, facts: dict[str, Any]) -> str:
    """Return whether somebody is at work, or was when the last run was killed."""
    if unit not in facts["in_flight"]:
        return ""
    return "  (at work)" if unit in facts["at_work"] else "  (was at work; no run is going)"


def _facts(here: Context) -> dict[str, Any]:
    units = here.ledger.units
    in_flight = [unit for unit, facts in units.items() if facts.in_flight]
    at_work = [unit for unit in in_flight if is_at_work(here, unit, units[unit].attempt)]
    return {
        "night": here.state.night,
        "rev": here.state.rev,
        "buckets": {str(bucket): list(here.state.ids(bucket)) for bucket in Bucket},
        "notes": {unit: note for unit in here.state.ids() if (note := here.state.note_of(unit))},
        "waiting": dict(waits_here(here)),
        "in_flight": in_flight,
        "at_work": at_work,
        "limited": _limited(here, at_work) if at_work else {},
        "paused": is_paused(here.ledger, dropbox.peek(here.home.dropbox)),
        "spent": f"{here.ledger.spent:.2f}",
        "unpriced": [unit for unit, one in units.items() if one.unpriced],
        "cost": {unit: f"{facts.cost:.4f}" for unit, facts in units.items()},
    }


def _limited(here: Context, in_flight: list[str]) -> dict[str, str]:
    """Return who at work waits for the model's limits."""
    from dispatcher.shown import live  # noqa: PLC0415 - Redis is asked only while somebody is at work

    said = live.progress_here(here, in_flight)
    return {unit: words for unit, found in said.items() if (words := live.waiting_for_the_model(found))}
