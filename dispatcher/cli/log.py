"""`overnight log`: what a unit's session says, for people: turns, steps, tools, costs, endings. Never its thinking."""

import json
from typing import Any

import click

from dispatcher.context import Context
from dispatcher.errors import BadInput
from workers.session import events as ev
from workers.session.session import read_session
from workers.session.transcript import lines_of

__all__ = ["command"]


@click.command("log")
@click.argument("unit")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Another attempt than the newest.")
@click.option("--json", "as_json", is_flag=True, help="The events, one JSON object a line, without thinking.")
def command(unit: str, attempt: int | None, *, as_json: bool) -> None:
    """Show the session log of UNIT's newest attempt."""
    here = Context.here()
    logs = here.sessions(here.known(unit))
    number = attempt or max(logs)
    if number not in logs:
        raise BadInput(f"{unit} has no attempt {number}; there are {', '.join(map(str, logs))}", field="--attempt")
    history = read_session(logs[number])
    if as_json:
        for event in history:
            click.echo(json.dumps({"type": event.type, "data": _without_thinking(event)}))
        return
    click.echo(f"{unit}  attempt {number} of {max(logs)}  {logs[number]}")
    for line in lines_of(history):
        click.echo(line)


def _without_thinking(event: Any) -> dict[str, Any]:
    """Raw reasoning never leaves the runtime (spec A5)."""
    data: dict[str, Any] = event.data()
    if isinstance(event, ev.AssistantMessage):
        data["content"] = [block for block in data["content"] if "thinking" not in block["type"]]
    return data
