"""`overnight demo`: a whole night in under a minute, against a model whose part is played from a script."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dispatcher.demo.checks import Check, check
from dispatcher.demo.performance import SLOTS, Performance, perform
from dispatcher.opening import STATE_PATH, read_state
from dispatcher.shown.display import safe, style_of
from dispatcher.state import Bucket
from dispatcher.train import merged_ref

__all__ = ["command"]

_WIDTH = 118
_INTRODUCTION = f"""\
Eight units on a small project, {SLOTS} slots. The run, its workers, Redis, git, the commands and the tests are real; \
the model's part is played from a script by a server on this machine, so no key is needed and the dollars are play \
money. On the way a worker process is killed, two units touch the same lines, and a question is answered."""


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the folder and say where it is.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of pictures.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Save what is shown as a picture, too.")
@click.pass_context
def command(ctx: click.Context, *, keep: bool, as_json: bool, svg: Path | None) -> None:
    """Play a whole night in under a minute. Exit 0 when it went as told, else 1 with what differed."""
    if svg is not None and not svg.parent.is_dir():
        raise click.BadParameter(f"there is no folder {svg.parent}", param_hint="--svg")
    console = Console(record=svg is not None, quiet=as_json, width=_WIDTH if svg else None, highlight=False)
    with _folder(keep=keep) as root:
        night = perform(root, _Spectator(console))
        checks = _after(console, night)
        if keep:
            console.print(f"kept in {root}", soft_wrap=True)
        if as_json:
            click.echo(json.dumps(_facts(night, checks, root if keep else None)))
    if svg is not None:
        console.save_svg(str(svg), title="overnight demo")
    ctx.exit(0 if all(one.ok for one in checks) else 1)


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="overnight-demo-"))
    try:
        yield root
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


class _Spectator:
    """Shows a performance on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_over = False
        console.print(Panel(_INTRODUCTION, title="overnight demo", border_style="blue"))

    def evening(self, state: str) -> None:
        self._console.print(_framed(f"{STATE_PATH} in the evening", state))
        self._console.print(f"$ overnight run -j {SLOTS}", style="bold")

    def said(self, line: str) -> None:
        """Print what happened; not what a terminal would show for a moment only, nor the report, which comes later."""
        time_of_day, _, rest = line.partition("  ")
        is_event = time_of_day.count(":") == 2
        if self._is_over or (is_event and rest.startswith("verify ")):
            return
        self._is_over = line.startswith("done:")
        self._console.print(_event(time_of_day, rest) if is_event else Text(line), soft_wrap=True)

    def did(self, line: str) -> None:
        """Print what the demo does to the run, so that it stands out."""
        text = Text(f"{time.strftime('%H:%M:%S')}  {safe(line)}", style="bold magenta")
        self._console.print(text, soft_wrap=True)


def _event(time_of_day: str, rest: str) -> Text:
    """Return a line of the run, its first word in the colour that it has on a terminal."""
    head, gap, words = rest.partition("  ")
    return Text.assemble((f"{time_of_day}  ", "dim"), (head, style_of(head)), gap, words)


def _after(console: Console, night: Performance) -> list[Check]:
    stage = night.stage
    branch = merged_ref(night.night).removeprefix("refs/heads/")
    graph = stage.git("log", "--graph", "--oneline", "--no-decorate", branch)
    state = _framed(f"{STATE_PATH} in the morning", stage.state_text)
    history = _framed(f"git log --graph --oneline {branch}", graph)
    _side_by_side(console, state, history)
    console.print(_framed("overnight report", stage.overnight("report")))
    console.print("Did it go as told?", style="bold")
    checks = []
    for one in check(night):
        checks.append(one)
        console.print(_line(one), soft_wrap=True)
    console.print(_verdict(night, checks), style="bold", soft_wrap=True)
    return checks


def _framed(title: str, text: str) -> Panel:
    return Panel(Text(text.strip()), title=title, title_align="left", border_style="dim")


def _side_by_side(console: Console, left: Panel, right: Panel) -> None:
    """Print two panels beside each other, or one below the other where there is no room."""
    if console.width < _WIDTH:
        console.print(left, right, sep="\n")
        return
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(left, right)
    console.print(grid)


def _line(one: Check) -> Text:
    mark = Text("  ✔ ", style="bold green") if one.ok else Text("  ✘ ", style="bold red")
    return mark.append(one.what, style="default").append("" if one.ok else f"  — found: {one.differs}", style="red")


def _verdict(night: Performance, checks: list[Check]) -> str:
    wrong = sum(not one.ok for one in checks)
    went = "The night went as told" if not wrong else f"{wrong} of {len(checks)} things went otherwise than told"
    return f"{went}: {night.seconds:.0f} s. The model's part was played from a script."


def _facts(night: Performance, checks: list[Check], root: Path | None) -> dict[str, Any]:
    state = read_state(night.stage.repository)
    return {
        "ok": all(one.ok for one in checks),
        "night": night.night,
        "seconds": round(night.seconds, 1),
        "exit_code": night.exit_code,
        "buckets": {str(bucket): list(state.ids(bucket)) if state else [] for bucket in Bucket},
        "requests": len(night.requests),
        "checks": [{"what": one.what, "ok": one.ok, "differs": one.differs} for one in checks],
        "model": "played from a script",
        "folder": str(root) if root is not None else None,
    }
