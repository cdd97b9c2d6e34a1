"""`overnight report`: the morning report."""

import json

import click

from dispatcher.context import Context
from dispatcher.shown.morning import as_facts, as_text
from dispatcher.shown.waits import waits_here

__all__ = ["command"]


@click.command("report")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, as_json: bool) -> None:
    """Show what passed and was merged, what needs you, what did not pass, and what was not verified."""
    here = Context.here()
    facts = as_facts(here, waits_here(here))
    click.echo(json.dumps(facts) if as_json else as_text(facts))
