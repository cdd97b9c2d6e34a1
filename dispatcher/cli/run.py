"""`overnight run`: one run over the night, until nothing can be handed out and nothing is in flight."""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime, time
from decimal import Decimal
from pathlib import Path

import click

from dispatcher.cli.schedule import TimeOfDay
from dispatcher.config import Config, money, rates
from dispatcher.context import Context
from dispatcher.errors import DispatcherError
from dispatcher.home import Home
from dispatcher.night import Setting, run_night
from dispatcher.options import Options
from dispatcher.shown.display import choose
from dispatcher.shown.morning import summary
from dispatcher.shown.waits import waits_here
from dispatcher.unattended import detached
from dispatcher.unattended.awake import awake
from dispatcher.unattended.runlog import LoggedDisplay
from dispatcher.unattended.schedule import left, next_here, wait_until
from worktrees.errors import LockBusy, WorktreesError
from worktrees.files import FileLock

__all__ = ["command"]


@click.command("run")
@click.option(
    "-j", "--slots", type=click.IntRange(1, 512), metavar="SLOTS", help="Units at work at once (else [limits] slots)."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Hand out at most N distinct units in this run.")
@click.option("--rounds", type=click.IntRange(1), metavar="N", help="Begin at most N attempts in this run.")
@click.option("--budget", metavar="$", help="Dollars that this run may spend (else [limits] run).")
@click.option("--price", metavar="IN/OUT", help="What the model costs: dollars per million tokens in and out.")
@click.option("--at", type=TimeOfDay(), metavar="HH:MM", help="Begin when the clock shows HH:MM; Ctrl-C leaves.")
@click.option("--detach", is_flag=True, help="Go on in the background; `overnight attach` shows what it says.")
@click.option("--flower", is_flag=True, help="Show the night in Flower, on this machine, with a password.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    slots: int | None,
    limit: int | None,
    rounds: int | None,
    budget: str | None,
    price: str | None,
    at: time | None,
    detach: bool,
    flower: bool,
    as_json: bool,
) -> None:
    """Work through the units: Ctrl-C once stops after the current steps, twice at once."""
    here = Context.here()
    if detach:
        ctx.exit(_detach(here))
    cap = None if budget is None else _dollars(budget)
    with _surviving(here.home, as_json=as_json) as display:
        if at is not None:
            _wait(here, at, display)
            here = Context.here()  # what was written meanwhile counts
        options = Options(slots or here.config.limits.slots, limit, flower, budget=cap, rounds=rounds)
        config = here.config if price is None else _with_price(here.config, price)
        outcome = asyncio.run(run_night(Setting(here.repository, here.home, config, options, display)))
        there = Context.here()
        words = summary(there, outcome, waits_here(there))
        if not there.state.ids():
            words += '\nno unit is written down yet: `overnight add "…" --verify "…"` writes one'
        if as_json:
            display.say(json.dumps({"event": "ended", **asdict(outcome)}), logged=words)
        else:
            display.say(words)
    ctx.exit(outcome.code)


@contextmanager
def _surviving(home: Home, *, as_json: bool) -> Iterator[LoggedDisplay]:
    """Give a run its display, and see to it that neither a closed terminal nor a sleepy machine ends it.

    Children inherit that the hang-up is ignored: git must not die in mid-run because a window was closed.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    home.make()
    lock = FileLock(home.run_lock)
    with suppress(LockBusy):  # somebody runs, or waits for their time: the writer's lock decides, when it comes to it
        lock.acquire("overnight run")
    display = LoggedDisplay(choose(as_json=as_json), home.run_log)
    try:
        with awake("units are being worked on"):
            yield display
    except (DispatcherError, WorktreesError) as error:
        display.fail(str(error))
        raise
    finally:
        display.end()
        lock.release()


def _wait(here: Context, at: time, display: LoggedDisplay) -> None:
    """Wait for the time of day. What could not be used then is said now, while somebody is there."""
    moment = next_here(at, datetime.now())  # noqa: DTZ005  # its wall clock is what `at` is about
    names = len(here.units)
    is_live = sys.stdout.isatty()
    display.note(f"waiting     until {moment:%H:%M}, {names} unit file{'s' if names != 1 else ''}; Ctrl-C leaves")

    def show(seconds: float) -> None:
        if is_live:
            display.status(f"begins at {moment:%H:%M}, in {left(seconds)}")

    wait_until(moment, show)


def _detach(here: Context) -> int:
    """Start the same command in the background and say how to follow it; its exit code where it ended at once."""
    args = [word for word in sys.argv[1:] if word != "--detach"]
    code = detached.start(here.home, args, Path.cwd())
    if code is not None:
        click.echo(here.home.run_log.read_text(encoding="utf-8", errors="replace"), nl=False)
        return code
    click.echo("a run goes on in the background")
    click.echo("  overnight attach   shows what it says; Ctrl-C there only stops looking")
    click.echo("  overnight stop     ends it after the current steps")
    return 0


def _dollars(text: str) -> Decimal:
    try:
        return money(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--budget") from error


def _with_price(config: Config, text: str) -> Config:
    try:
        price = rates(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--price") from error
    return config.model_copy(update={"model": config.model.model_copy(update={"price": price})})
