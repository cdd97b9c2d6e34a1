"""`overnight replay`: whether the log is the source: every request rebuilt from it and compared with what was sent."""

import json

import click

from dispatcher.context import Context
from dispatcher.errors import BadInput
from workers.closed import read_either
from workers.session.replay import Replayed, replay, request_of
from workers.session.session import load_events

__all__ = ["command"]


@click.command("replay")
@click.argument("unit")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Another attempt than the newest.")
@click.option("--night", default="", metavar="NIGHT", help="An earlier night.")
@click.option(
    "--step", type=click.IntRange(1), metavar="K", help="Print the request of step K, without thinking texts."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def command(ctx: click.Context, unit: str, attempt: int | None, night: str, step: int | None, *, as_json: bool) -> None:
    """Rebuild each request of UNIT's session and compare it with the hash of what was sent. Exit 1 when one differs."""
    here = Context.here()
    number, path, _ = here.session(unit, attempt, night)
    history = load_events(path, read_either(path).records)
    if step is not None:
        found = request_of(history, step)
        if found is None:
            raise BadInput(f"attempt {number} of {unit} has no step {step}", field="--step")
        click.echo(json.dumps(found, indent=None if as_json else 2))
        return
    rows = replay(history)
    for row in rows:
        click.echo(_as_json(row) if as_json else _as_line(row))
    differing = sum(not row.ok for row in rows)
    if not as_json:
        click.echo(f"{unit}  attempt {number}: {len(rows)} requests, {differing or 'none'} differ")
    ctx.exit(1 if differing else 0)


def _as_line(row: Replayed) -> str:
    said = "ok" if row.ok else f"differs: sent {row.recorded[:12]}, the log gives {row.rebuilt[:12]}"
    return f"{row.seq:>5}  turn {row.turn}  step {row.step}  {said}"


def _as_json(row: Replayed) -> str:
    facts = {"seq": row.seq, "turn": row.turn, "step": row.step, "ok": row.ok}
    return json.dumps({**facts, "recorded": row.recorded, "rebuilt": row.rebuilt})
