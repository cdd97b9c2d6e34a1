"""`overnight status`: how the night stands, from the files alone."""

import json
from typing import Any

import click

from dispatcher.context import Context
from dispatcher.shown.waits import waits_here
from dispatcher.state import Bucket

__all__ = ["command"]


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, as_json: bool) -> None:
    """Show the four buckets, who is in flight, and what was spent."""
    here = Context.here()
    facts = _facts(here)
    if as_json:
        click.echo(json.dumps(facts))
        return
    counts = "   ".join(
        f"{bucket} {len(facts['buckets'][bucket])}" for bucket in ("open", "tried", "passed", "blocked")
    )
    click.echo(f"night {facts['night'] or '(not started)'}   {counts}   ${facts['spent']}")
    if facts["paused"]:
        click.echo("  paused: nothing is handed out until `overnight resume`")
    for bucket in Bucket:
        for entry in here.state.entries(bucket):
            flying = "  (at work)" if entry.id in facts["in_flight"] else ""
            flying = f"  ({facts['limited'][entry.id]})" if entry.id in facts["limited"] else flying
            said = "  ".join(part for part in (entry.note, facts["waiting"].get(entry.id, "")) if part)
            click.echo(f"  {bucket:<8} {entry.id}{flying}  {said}".rstrip())


def _facts(here: Context) -> dict[str, Any]:
    units = here.ledger.units
    in_flight = [unit for unit, facts in units.items() if facts.in_flight]
    return {
        "night": here.state.night,
        "rev": here.state.rev,
        "buckets": {str(bucket): list(here.state.ids(bucket)) for bucket in Bucket},
        "notes": {unit: note for unit in here.state.ids() if (note := here.state.note_of(unit))},
        "waiting": dict(waits_here(here)),
        "in_flight": in_flight,
        "limited": _limited(here, in_flight) if in_flight else {},
        "paused": here.ledger.paused,
        "spent": f"{here.ledger.spent:.2f}",
        "cost": {unit: f"{facts.cost:.4f}" for unit, facts in units.items()},
    }


def _limited(here: Context, in_flight: list[str]) -> dict[str, str]:
    """Return who at work waits for the model's limits."""
    from dispatcher.shown import live  # noqa: PLC0415 - Redis is asked only while somebody is at work

    said = live.progress_here(here, in_flight)
    return {unit: words for unit, found in said.items() if (words := live.waiting_for_the_model(found))}
