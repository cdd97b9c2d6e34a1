"""`overnight log`: what a unit's session says, for people: turns, steps, tools, costs, endings. Never its thinking."""

import time
from pathlib import Path

import click

from dispatcher.context import Context
from dispatcher.errors import BadInput
from dispatcher.journal import load_entry
from dispatcher.ledger import Ledger
from dispatcher.presence import is_at_work
from dispatcher.shown.log_view import LogView
from workers.closed import read_either
from workers.session.repair import interrupted_turn_closers
from workers.session.session import load_events
from workers.session.transcript import unseen
from workers.tail import Tail

__all__ = ["command"]

_POLL_SECONDS = 0.3


@click.command("log")
@click.argument("unit")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Another attempt than the newest.")
@click.option("--night", default="", metavar="NIGHT", help="An earlier night.")
@click.option("--turn", type=click.IntRange(1), metavar="N", help="One turn and what followed it, before the next.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until the unit is handed back, or Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="The events, one JSON object a line, without thinking.")
def command(unit: str, attempt: int | None, night: str, turn: int | None, *, follow: bool, as_json: bool) -> None:
    """Show the session log of UNIT's newest attempt. The numbers at the left are what `overnight fork --at` takes."""
    here = Context.here()
    view = LogView(as_json=as_json, turn=turn)
    flying = here.ledger.unit(here.known(unit)) if not night else None
    is_busy = flying is not None and attempt in (None, flying.attempt) and is_at_work(here, unit, flying.attempt)
    if flying is not None and is_busy and follow:
        _head(unit, flying.attempt, flying.attempt, here.home.session(here.state.night, unit, flying.attempt), as_json)
        _follow(here, unit, flying.attempt, view)
    else:
        number, path, newest = here.session(unit, attempt, night)
        _head(unit, number, newest, path, as_json)
        _show(path, view, is_busy=is_busy)
        if is_busy and not as_json:
            click.echo("       (at work: more is to come; --follow waits for it)")
        if turn is not None and turn not in view.turns:
            there = ", ".join(map(str, view.turns)) or "none"
            raise BadInput(f"attempt {number} of {unit} has no turn {turn}; there are {there}", field="--turn")
    if not as_json:
        click.echo(view.total())


def _head(unit: str, number: int, newest: int, path: Path, as_json: bool) -> None:
    if not as_json:
        click.echo(f"{unit}  attempt {number} of {newest}  {path}")


def _show(path: Path, view: LogView, *, is_busy: bool) -> None:
    """Print what is there, and behind it what a cut-off turn is missing, as every reader sees it.

    A turn that somebody is at work on is not cut off.
    """
    records = read_either(path).records
    history = load_events(path, records)
    gone = unseen(history)
    for record, event in zip(records, history, strict=True):
        for line in view.lines(event, record.seq, record.time, is_unseen=record.seq in gone):
            click.echo(line)
    for event in () if is_busy else interrupted_turn_closers(history):
        for line in view.lines(event, None, None):
            click.echo(line)


def _follow(here: Context, unit: str, attempt: int, view: LogView) -> None:
    """Print events as they are flushed. The journal says when the hand-out is over; by then the session is whole.

    A run that was killed says nothing any more: then nobody is at work, and nothing comes.
    """
    session = here.home.session(here.state.night, unit, attempt)
    journal = here.home.journal(here.state.night)
    written, noted, ledger = Tail(session), Tail(journal), Ledger()
    is_last = False
    try:
        while True:
            ledger.extend(load_entry(journal, record) for record in noted.new())
            records = written.new()
            for record, event in zip(records, load_events(session, records), strict=True):
                for line in view.lines(event, record.seq, record.time):
                    click.echo(line)
            facts = ledger.unit(unit)
            if not facts.in_flight or facts.attempt != attempt:
                return
            if is_last:
                click.echo(f"no run is going: {unit} stands here until the next `overnight run`", err=True)
                return
            is_last = not records and not is_at_work(here, unit, attempt)  # one more look at what came meanwhile
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        return
