"""`overnight run`: one run over the night, until nothing can be handed out and nothing is in flight."""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime, time
from decimal import Decimal
from pathlib import Path

import click

from dispatcher import dropbox
from dispatcher.cli.schedule import TimeOfDay
from dispatcher.config import Config, Prices, money, rates
from dispatcher.context import Context
from dispatcher.errors import DispatcherError, WriterLocked
from dispatcher.home import Home
from dispatcher.inbox import take_stop
from dispatcher.night import Setting, run_night
from dispatcher.options import Options
from dispatcher.outcome import STOPPED, Outcome
from dispatcher.preflight import check_before_waiting
from dispatcher.shown.counted import counted
from dispatcher.shown.display import choose
from dispatcher.shown.morning import summary
from dispatcher.shown.waits import waits_here
from dispatcher.steering import PAUSED, is_paused
from dispatcher.unattended import detached
from dispatcher.unattended.awake import awake
from dispatcher.unattended.detached import waits_words
from dispatcher.unattended.runlog import LoggedDisplay
from dispatcher.unattended.schedule import left, next_here, wait_until
from worktrees.errors import LockBusy, WorktreesError
from worktrees.files import FileLock

__all__ = ["command"]

_LOOK_SECONDS = 0.2
"""Other commands hold the run's lock for a moment to see whether a run does."""


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
    told = None if price is None else _rates(price)
    moment = None if at is None else next_here(at, datetime.now())  # noqa: DTZ005  # its wall clock is what `at` is about
    with _surviving(here.home, moment, as_json=as_json) as display:
        if moment is None or _wait(here, _with_price(here.config, told), moment, display):
            here = Context.here()  # what was written meanwhile counts
            options = Options(slots or here.config.limits.slots, limit, flower, budget=cap, rounds=rounds)
            config = _with_price(here.config, told)
            outcome = asyncio.run(run_night(Setting(here.repository, here.home, config, options, display)))
            words = _last_words(replace(here), outcome)
        else:
            outcome = Outcome(STOPPED, "stopped", "asked to stop, before its time had come")
            words = f"{outcome.reason}: {outcome.detail}"
        if as_json:
            display.say(json.dumps({"event": "ended", **asdict(outcome)}), logged=words)
        else:
            display.say(words)
    ctx.exit(outcome.code)


def _last_words(there: Context, outcome: Outcome) -> str:
    """Return how it ended, and the night as it is now, or as it was written last where a file cannot be read."""
    there, wrong = there.readable()
    words = summary(there, outcome, waits_here(there))
    if wrong is not None:
        words += f"\n{wrong}\nthis is the night as it was written last"
    elif not there.state.ids():
        words += '\nno unit is written down yet: `overnight add "…" --verify "…"` writes one'
    return words


@contextmanager
def _surviving(home: Home, moment: datetime | None, *, as_json: bool) -> Iterator[LoggedDisplay]:
    """Give a run its display, and see to it that neither a closed terminal nor a sleepy machine ends it.

    Children inherit that the hang-up is ignored: git must not die in mid-run because a window was closed. `moment` is
    when it is to begin, None for at once. Raises WriterLocked for one that would wait beside another run: when its time
    had come it might be refused, and nobody there to read why.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    home.make()
    lock = FileLock(home.run_lock)
    try:
        lock.wait(_LOOK_SECONDS, "overnight run" if moment is None else waits_words(moment))
    except LockBusy as busy:
        if moment is not None:
            raise WriterLocked(busy.path, busy.holder) from busy
        # else the writer's lock decides: who holds this one may only wait for their time
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


def _wait(here: Context, config: Config, moment: datetime, display: LoggedDisplay) -> bool:
    """Wait for the moment; False when somebody has asked to stop meanwhile.

    What could not be used then is said now, while somebody is there.
    """
    asyncio.run(check_before_waiting(here.repository, here.home, config))
    is_live = sys.stdout.isatty()
    units = counted(len(here.units), "unit file")
    display.note(f"waiting     until {moment:%H:%M}, {units}; `overnight stop`, or Ctrl-C here, leaves")
    if _is_paused(here):
        display.note(f"paused      {PAUSED}")

    def show(seconds: float) -> None:
        if is_live:
            display.status(f"begins at {moment:%H:%M}, in {left(seconds)}")

    return wait_until(moment, show, is_called_off=lambda: take_stop(here.home.dropbox))


def _is_paused(here: Context) -> bool:
    """Tell whether a run that begins now would hand out nothing."""
    return is_paused(here.ledger, dropbox.peek(here.home.dropbox))


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
    if _is_paused(here):
        click.echo(f"paused: {PAUSED}")
    return 0


def _dollars(text: str) -> Decimal:
    try:
        return money(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--budget") from error


def _rates(text: str) -> Prices:
    try:
        return rates(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--price") from error


def _with_price(config: Config, price: Prices | None) -> Config:
    if price is None:
        return config
    return config.model_copy(update={"model": config.model.model_copy(update={"price": price})})
