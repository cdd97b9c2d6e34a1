"""`overnight export`: the night as one JSON document."""

import json

import click

from dispatcher.context import Context
from dispatcher.porting import document

__all__ = ["command"]


@click.command("export")
def command() -> None:
    """Print the state and all units, with what came of them, as JSON."""
    here = Context.here()
    click.echo(json.dumps(document(here.state, here.units, here.ledger), ensure_ascii=False, indent=2))
