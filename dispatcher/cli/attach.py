"""`overnight attach`: what the run that goes on here says, also when it was started in the background."""

import time
from collections.abc import Iterator
from pathlib import Path

import click

from dispatcher.context import Context
from dispatcher.errors import BadInput
from dispatcher.unattended.detached import goes_on
from workers.session.transcript import harmless

__all__ = ["command"]

_POLL_SECONDS = 0.2


@click.command("attach")
def command() -> None:
    """Follow the run from its beginning until it ends. Ctrl-C stops following, never the run."""
    here = Context.here()
    log = here.home.run_log
    if not goes_on(here.home):
        raise BadInput(f"nothing is running here; what the last run said is in {log}")
    try:
        for line in _follow(here, log):
            click.echo(harmless(line))
    except KeyboardInterrupt:
        click.echo("detached; the run goes on", err=True)


def _follow(here: Context, log: Path) -> Iterator[str]:
    """Yield the log's whole lines as they come; what was written before the run ended comes, too."""
    offset = 0
    while True:
        is_last = not goes_on(here.home)
        lines, offset = _more(log, offset)
        yield from lines
        if is_last:
            return
        time.sleep(_POLL_SECONDS)


def _more(log: Path, offset: int) -> tuple[list[str], int]:
    try:
        with log.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", errors="replace").splitlines(), offset + len(whole)
