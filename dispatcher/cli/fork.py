"""`overnight fork`: take a unit up again from an earlier point of one of its sessions, through the drop-box."""

import click

from dispatcher import dropbox, forks
from dispatcher.cli.ask import is_running, request
from dispatcher.context import Context
from dispatcher.errors import BadInput

__all__ = ["command"]


@click.command("fork")
@click.argument("unit")
@click.option(
    "--at",
    type=click.IntRange(1),
    required=True,
    metavar="SEQ",
    help="Keep what came before this event (the numbers at the left of `overnight log`).",
)
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Another attempt's session than the newest.")
def command(unit: str, at: int, attempt: int | None) -> None:
    """Go on with UNIT from an earlier point of its session: a new attempt on the same base, with all its attempts."""
    here = Context.here()
    bucket = here.state.bucket_of(here.known(unit))
    wanted = dropbox.Fork(unit=unit, attempt=attempt or max(here.sessions(unit)), keep=at)
    facts = here.ledger.unit(unit)
    events = forks.stored(here.home.session(here.state.night, unit, wanted.attempt))
    # Without a run nobody knows who is at work; the next one does before it obeys.
    why_not = forks.refusal(wanted, bucket, facts, events, in_flight=facts.in_flight and is_running(here))
    if why_not is not None:
        raise BadInput(f"{unit} cannot be forked: {why_not}")
    request(here, wanted)
