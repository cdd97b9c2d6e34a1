"""What people watch while a run goes on: a live table on a terminal, plain lines elsewhere, JSON for scripts."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dispatcher.shown.counted import dollars
from dispatcher.state import Bucket, shown_line

__all__ = ["Display", "JsonDisplay", "LiveDisplay", "PlainDisplay", "Row", "Snapshot", "choose", "safe", "style_of"]

_REFRESH_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Row:
    """One unit at work: what its lease says (turn, step, tool, cost, waiting)."""

    unit: str
    progress: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The run at a moment. Money in dollars."""

    counts: Mapping[Bucket, int]
    spent: Decimal
    limit: Decimal | None
    until: datetime | None
    rows: Sequence[Row]
    is_partly_unknown: bool = False

    def headline(self) -> str:
        """Return the line that says how the night stands."""
        buckets = "   ".join(
            f"{bucket} {self.counts[bucket]}" for bucket in (Bucket.open, Bucket.tried, Bucket.passed, Bucket.blocked)
        )
        money = dollars(f"{self.spent:.2f}", is_partly_unknown=self.is_partly_unknown)
        money += "" if self.limit is None else f" of ${self.limit}"
        until = "" if self.until is None else f"   until {self.until:%H:%M}"
        return f"{buckets}      {money}{until}"


class Display(Protocol):
    """Where a run shows itself."""

    def note(self, line: str) -> None:
        """Say something that happened, once."""
        ...

    def status(self, line: str) -> None:
        """Say what is going on; the next one replaces it."""
        ...

    def update(self, snapshot: Snapshot) -> None:
        """Show how the run stands now."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


def safe(line: str) -> str:
    """Return a line that cannot move a cursor, write a clipboard or forge another line."""
    return shown_line(line, limit=300)


class PlainDisplay:
    """Lines with a time in front, for logs and pipes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = ""

    def note(self, line: str) -> None:
        """Print the line, keeping its columns."""
        head, gap, rest = line.partition("  ")
        print(
            f"{time.strftime('%H:%M:%S')}  {head}{gap}{' ' * (len(rest) - len(rest.lstrip()))}{safe(rest)}",
            file=self._out,
            flush=True,
        )

    def status(self, line: str) -> None:
        """Print it like a note, once."""
        if line != self._last:
            self._last = line
            self.note(line)

    def update(self, snapshot: Snapshot) -> None:
        """Print nothing: every change has its note already."""

    def close(self) -> None:
        """Nothing to leave behind."""


class JsonDisplay:
    """One JSON object a line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def note(self, line: str) -> None:
        """Print an event."""
        what, _, rest = line.partition(" ")
        self._print({"event": what, "text": rest.strip()})

    def status(self, line: str) -> None:
        """Print a status."""
        self._print({"status": line})

    def update(self, snapshot: Snapshot) -> None:
        """Print nothing: `overnight status --json` answers at any moment."""

    def close(self) -> None:
        """Nothing to leave behind."""

    def _print(self, fields: Mapping[str, Any]) -> None:
        print(
            json.dumps({"time": datetime.now().astimezone().isoformat(timespec="seconds"), **fields}),
            file=self._out,
            flush=True,
        )


class LiveDisplay:
    """Notes scroll by; the table of units at work stays at the bottom."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=1 / _REFRESH_SECONDS, transient=True)
        self._live.start()
        self._status = ""

    def note(self, line: str) -> None:
        """Print the line above the table."""
        head, gap, rest = line.partition("  ")
        text = Text(f"{time.strftime('%H:%M')}  ", style="dim")
        text.append(f"{head:<10}", style=style_of(head))
        text.append(gap + safe(rest))
        self._console.print(text)

    def status(self, line: str) -> None:
        """Show the line until something else is to be shown."""
        self._live.update(Text(safe(line), style="dim"))

    def update(self, snapshot: Snapshot) -> None:
        """Draw the table."""
        table = Table.grid(padding=(0, 2))
        for number, row in enumerate(snapshot.rows, 1):
            table.add_row(f"{number:>2}", row.unit, *_cells(row.progress))
        self._live.update(Group(Text(f"{time.strftime('%H:%M')}   {snapshot.headline()}", style="bold"), table))

    def close(self) -> None:
        """Take the table away."""
        self._live.stop()


_STYLES = {
    "passed": "bold green",
    "lost": "bold red",
    "engine": "yellow",
    "stopping": "yellow",
    "state file": "bold red",
}


def style_of(word: str) -> str:
    """Return the colour of a note's first words."""
    return _STYLES.get(word, "bold")


def _cells(progress: Mapping[str, Any]) -> tuple[str, str, str]:
    if not progress:
        return "starting", "", ""
    where = f"turn {progress.get('turn', 0)}  step {progress.get('step', 0)}"
    what = (
        f"waiting {progress['waiting']:g} s for the model" if "waiting" in progress else str(progress.get("tool", ""))
    )
    cost = progress.get("cost")
    return where, safe(what), "price unknown" if cost is None else f"${Decimal(cost):.2f}"


def choose(*, as_json: bool) -> Display:
    """Return the display that fits where the output goes."""
    if as_json:
        return JsonDisplay(sys.stdout)
    console = Console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(sys.stdout)
