"""Asking the dispatcher for something: drop a file, wait a moment for the answer, and say what becomes of it."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from dispatcher import dropbox, forks, people
from dispatcher.context import Context
from dispatcher.decide import View, used_up
from dispatcher.errors import BadInput
from dispatcher.journal import Asked
from dispatcher.options import Options, limits_of
from dispatcher.steering import NEED_NO_STATE
from dispatcher.unattended.detached import is_held
from workers.log import decode
from workers.sendable import is_sendable

__all__ = ["from_stdin", "is_running", "passable", "request", "worded"]

# A run looks every half beat, so a second is the usual; it may be busy with its first verifies for minutes.
_PATIENCE_SECONDS = 2.0
_POLL_SECONDS = 0.05


def request(here: Context, wanted: dropbox.Request) -> None:
    """Drop a request, and say that it is done, or who will do it. Raises BadInput where it cannot be, saying why."""
    if isinstance(wanted, NEED_NO_STATE):
        here, _ = here.readable()
    wanted = people.shown(wanted, here.ledger)
    earlier = dropbox.peek(here.home.dropbox)
    if not is_running(here) and (words := _needs_no_run(here, wanted, earlier)):
        click.echo(words)
        return
    here.home.make()
    journal = here.home.journal(here.state.night) if here.state.night else None
    before = _size(journal)
    dropbox.drop(here.home.dropbox, wanted)
    entry = _wait(here, wanted, journal, before) if journal is not None and is_running(here) else None
    if entry is not None:
        _refuse(wanted, None if entry.obeyed or entry.unneeded else entry.reason)
        click.echo(_whose(wanted, entry.reason) or "done")
    elif is_running(here):
        click.echo("the running dispatcher does it at its next look")
    else:
        click.echo(f"will be done by the next run{_instead(earlier, wanted)}")


def _needs_no_run(here: Context, wanted: dropbox.Request, earlier: Sequence[dropbox.Request]) -> str:
    """Return what to say of a request that need not be dropped, because all is so, or was asked for, already.

    Without a run it is judged as the next one will: after what waits already. Raises BadInput for what cannot be done.
    """
    if people.is_repeated(wanted, earlier):
        return "will be done by the next run, as you asked before"
    events, caps = _events(here), _used_up(here)
    then = people.foreseen(earlier, wanted, here.state, here.ledger, events=events, used_up=caps)
    why_not = people.refusal(wanted, here.state, then, events=events, used_up=caps, is_running=False)
    if why_not is not None and then is not here.ledger:
        kinds = ", ".join(f"`{one.kind}`" for one in earlier if getattr(one, "unit", "") == getattr(wanted, "unit", ""))
        why_not = f"{why_not} (counting what the next run does first: {kinds})" if kinds else why_not
    _refuse(wanted, why_not)
    return _whose(wanted, people.unneeded(wanted, here.state, then))


def _instead(earlier: Sequence[dropbox.Request], wanted: dropbox.Request) -> str:
    """Say what a person said before and will not be done now."""
    replaced = people.superseded([*earlier, wanted])
    kinds = [f"`{one.kind}`" for one in earlier if one.id in replaced]
    return f", instead of {kinds[-1]}" if kinds else ""


def is_running(here: Context) -> bool:
    """Tell whether a run holds the writer's lock right now."""
    return is_held(here.home.writer_lock)


def worded(text: str) -> str:
    """Return a person's words, read from standard input for "-". Raises BadInput for none at all."""
    words = from_stdin() if text == "-" else text
    if not words.strip():
        raise BadInput("there are no words to pass on", field="TEXT")
    return passable(words)


def from_stdin() -> str:
    """Return what standard input holds; bytes that are no text stay in it, to be refused by whoever looks."""
    return sys.stdin.buffer.read().decode("utf-8", errors="surrogateescape")


def passable(words: str) -> str:
    """Return words that can be passed on. Raises BadInput for bytes that are no text, and for far too many words."""
    if len(words) > dropbox.MOST_CHARACTERS:
        raise BadInput(f"these are {len(words):,} characters; say it in {dropbox.MOST_CHARACTERS:,}", field="TEXT")
    if not is_sendable(words):
        raise BadInput("these words are no UTF-8 text", field="TEXT")
    return words


def _refuse(wanted: dropbox.Request, why_not: str | None) -> None:
    """Raise BadInput for a reason why not; what it says of "it" is said of the unit."""
    if why_not is not None:
        raise BadInput(_whose(wanted, why_not))


def _whose(wanted: dropbox.Request, words: str) -> str:
    whose = getattr(wanted, "unit", "")
    return f"{whose} {words[3:]}" if whose and words.startswith("it ") else words


def _events(here: Context) -> people.Events:
    night = here.state.night
    return lambda unit, attempt: forks.stored(here.home.session(night, unit, attempt)) if night else 0


def _used_up(here: Context) -> people.UsedUp:
    limits = limits_of(here.config, Options(slots=1))
    return lambda unit, ledger: used_up(unit, View(here.state, here.units, ledger, limits))


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


def _size(path: Path | None) -> int:
    try:
        return 0 if path is None else path.stat().st_size
    except OSError:
        return 0
