"""`overnight inbox`: everything that waits for a person, with the exact command for each. It only looks."""

import json
from collections.abc import Iterator
from dataclasses import asdict

import click

from dispatcher import dropbox
from dispatcher.context import Context
from dispatcher.people import Waiting, waiting
from workers.session.transcript import harmless

__all__ = ["command"]


@click.command("inbox")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def command(*, as_json: bool) -> None:
    """Show the questions and approvals that wait for you, and what is blocked otherwise."""
    here = Context.here()
    found = waiting(here.state, here.ledger, dropbox.peek(here.home.dropbox))
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found]))
    elif not found:
        click.echo("nothing waits for you")
    else:
        click.echo("\n".join(line for one in found for line in _lines(one)))


def _lines(one: Waiting) -> Iterator[str]:
    """Yield what is asked, whole, and below it what can be typed."""
    first, *more = harmless(one.words).split("\n")
    yield f"{one.unit}  {one.what}: {first}".rstrip()
    yield from (f"    {line}" for line in more)
    if one.said:
        yield f"  you said: {one.said}; the next run takes it up"
    else:
        yield from (f"  → {command}" for command in one.commands)
