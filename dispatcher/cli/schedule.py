"""`overnight schedule`: a systemd timer and a cron line that start a run here every day."""

import os
import shutil
import sys
from datetime import time
from pathlib import Path

import click

from dispatcher.context import Context
from dispatcher.unattended.schedule import Timer, cron_line, service, timer
from worktrees.files import write_atomic

__all__ = ["TimeOfDay", "command"]

_KEPT = ("OVERNIGHT_HOME", "XDG_STATE_HOME", "ANTHROPIC_BASE_URL", "PATH")
"""What a run at night needs to find the same home, model and tools. Never a key: units can be read by others."""


class TimeOfDay(click.ParamType[time]):
    """A time such as 22:00."""

    name = "HH:MM"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> time:
        """Return the time of day. Fails like any other option."""
        if isinstance(value, time):
            return value
        try:
            hours, _, minutes = str(value).strip().partition(":")
            return time(int(hours), int(minutes))
        except ValueError:
            self.fail('a time of day looks like "22:00"', param, ctx)


@click.command("schedule")
@click.option("--at", type=TimeOfDay(), default="22:00", metavar="HH:MM", help="When (default: 22:00).")
@click.option("--write", is_flag=True, help="Install the systemd units for your user; they are not enabled yet.")
def command(at: time, *, write: bool) -> None:
    """Print what starts a run here every day at HH:MM: a systemd service and timer, and a line for cron."""
    here = Context.here()
    env = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    one = Timer(f"overnight-{here.home.root.name}", at, here.repository.root, [*_program(), "run"], env)
    folder = _units_folder()
    files = {folder / f"{one.name}.service": service(one), folder / f"{one.name}.timer": timer(one)}
    for path, text in files.items():
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text.encode(), mode=0o600)
            click.echo(f"written {path}")
        else:
            click.echo(f"# {path}\n{text}")
    click.echo(f"# to enable it: systemctl --user daemon-reload && systemctl --user enable --now {one.name}.timer")
    click.echo("# without being logged in: loginctl enable-linger")
    if not write:
        click.echo(f"\n# or, for crontab -e:\n{cron_line(one)}")


def _program() -> list[str]:
    """Return how this very command is started: by its script where there is one, else as a module."""
    script = Path(sys.executable).with_name("overnight")
    found = str(script) if script.exists() else shutil.which("overnight")
    return [found] if found else [sys.executable, "-P", "-m", "dispatcher.cli"]


def _units_folder() -> Path:
    chosen = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".config") / "systemd" / "user"
