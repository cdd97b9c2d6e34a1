"""`overnight run`: one run over the night, until nothing can be handed out and nothing is in flight."""

import asyncio
import json
from dataclasses import asdict

import click

from dispatcher.context import Context
from dispatcher.display import choose
from dispatcher.morning import summary
from dispatcher.night import Options, Setting, run_night

__all__ = ["command"]


@click.command("run")
@click.option(
    "-j", "--slots", type=click.IntRange(1, 512), metavar="SLOTS", help="Units at work at once (else [limits] slots)."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Hand out at most N distinct units in this run.")
@click.option("--flower", is_flag=True, help="Show the night in Flower, on this machine, with a password.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def command(ctx: click.Context, slots: int | None, limit: int | None, *, flower: bool, as_json: bool) -> None:
    """Work through the units: Ctrl-C once stops after the current steps, twice at once."""
    here = Context.here()
    options = Options(slots or here.config.limits.slots, limit, flower)
    setting = Setting(here.repository, here.home, here.config, options, choose(as_json=as_json))
    outcome = asyncio.run(run_night(setting))
    if as_json:
        click.echo(json.dumps({"event": "ended", **asdict(outcome)}))
    else:
        click.echo(summary(Context.here(), outcome))
    ctx.exit(outcome.code)
