"""Asking the dispatcher for something: drop a file, wait a moment for the answer, and say what becomes of it."""

import sys
import time
from pathlib import Path

import click

from dispatcher import dropbox, forks, people
from dispatcher.context import Context
from dispatcher.errors import BadInput
from dispatcher.journal import Asked
from dispatcher.unattended.detached import is_held
from workers.log import decode

__all__ = ["is_running", "request", "worded"]

# A run looks every half beat, so a second is the usual; it may be busy with its first verifies for minutes.
_PATIENCE_SECONDS = 2.0
_POLL_SECONDS = 0.05


def request(here: Context, wanted: dropbox.Request) -> None:
    """Drop a request, and say that it is done, or who will do it. Raises BadInput where it cannot be, saying why."""
    if not here.state.night:
        raise BadInput("no night has begun here yet; `overnight run` begins one")
    if not is_running(here):
        _refuse(wanted, people.refusal(wanted, here.state, here.ledger, events=_events(here), is_running=False))
    here.home.make()
    journal = here.home.journal(here.state.night)
    before = _size(journal)
    dropbox.drop(here.home.dropbox, wanted)
    if not is_running(here):
        click.echo("will be done by the next run")
    elif (entry := _wait(here, wanted, journal, before)) is None:
        click.echo("the running dispatcher does it at its next look")
    else:
        _refuse(wanted, None if entry.obeyed else entry.reason)
        click.echo("done")


def is_running(here: Context) -> bool:
    """Tell whether a run holds the writer's lock right now."""
    return is_held(here.home.writer_lock)


def worded(text: str) -> str:
    """Return a person's words, read from standard input for "-". Raises BadInput for none at all."""
    words = sys.stdin.read() if text == "-" else text
    if not words.strip():
        raise BadInput("there are no words to pass on", field="TEXT")
    return words


def _refuse(wanted: dropbox.Request, why_not: str | None) -> None:
    """Raise BadInput for a reason why not; what it says of "it" is said of the unit."""
    if why_not is not None:
        whose = getattr(wanted, "unit", "")
        raise BadInput(f"{whose} {why_not[3:]}" if whose and why_not.startswith("it ") else why_not)


def _events(here: Context) -> people.Events:
    return lambda unit, attempt: forks.stored(here.home.session(here.state.night, unit, attempt))


def _wait(here: Context, wanted: dropbox.Request, journal: Path, before: int) -> Asked | None:
    """Return what the dispatcher journalled of a request; None where it has not looked yet."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if (entry := _answer(journal, before, wanted.id)) is not None:
            return entry
        if why := dropbox.was_refused(here.home.dropbox, wanted):
            raise BadInput(f"the running dispatcher does not know this request (is it an older version?): {why}")
        time.sleep(_POLL_SECONDS)
    return None


def _answer(journal: Path, before: int, request_id: str) -> Asked | None:
    """Look for the entry behind the first `before` bytes: that the journal is long costs nothing."""
    try:
        with journal.open("rb") as file:
            file.seek(before)
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return None
    for line in lines:
        if request_id.encode() in line:
            try:
                record = decode(line)
            except (ValueError, KeyError, TypeError):
                continue  # the end of a line that was being written when we looked
            if record.type == Asked.type:
                return Asked.model_validate(record.data)
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
