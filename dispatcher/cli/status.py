"""`overnight status`: how the night stands, from the files alone."""

import json
from typing import Any

import click

from dispatcher.context import Context
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
    for bucket in Bucket:
        for entry in here.state.entries(bucket):
            flying = "  (at work)" if entry.id in facts["in_flight"] else ""
            click.echo(f"  {bucket:<8} {entry.id}{flying}  {entry.note}".rstrip())


def _facts(here: Context) -> dict[str, Any]:
    units = here.ledger.units
    return {
        "night": here.state.night,
        "rev": here.state.rev,
        "buckets": {str(bucket): list(here.state.ids(bucket)) for bucket in Bucket},
        "notes": {unit: note for unit in here.state.ids() if (note := here.state.note_of(unit))},
        "in_flight": [unit for unit, facts in units.items() if facts.in_flight],
        "spent": f"{here.ledger.spent:.2f}",
        "cost": {unit: f"{facts.cost:.4f}" for unit, facts in units.items()},
    }
