"""`overnight schedule`: a systemd timer and a cron line that start a run here every day."""

import os
import shutil
import sys
from datetime import time
from pathlib import Path

import click

from dispatcher.context import Context
from dispatcher.unattended.schedule import ENV_FILE, Timer, cron_line, service, timer
from worktrees.files import write_atomic

__all__ = ["TimeOfDay", "command"]

_BROKER = "OVERNIGHT_BROKER"
_KEPT = ("OVERNIGHT_HOME", "XDG_STATE_HOME", "ANTHROPIC_BASE_URL", _BROKER, "PATH")
"""What a run at night needs to find the same home, model, broker and tools. Nothing secret: units can be read."""

_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_CLOUD = ("AWS_", "ANTHROPIC_VERTEX_", "GOOGLE_", "CLOUD_ML_", "CLOUDSDK_")
"""Secrets, and what the clouds' own tools read: a run at night has them from the file of variables alone."""


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
    env = {name: os.environ[name] for name in _KEPT if os.environ.get(name) and not _is_secret(name)}
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
    click.echo(f"# lines that must be in ~/{ENV_FILE} (chmod 600), for systemd and cron alike: {_must_be_there(here)}")
    if not write:
        click.echo(f"\n# or, for crontab -e:\n{cron_line(one)}")


def _is_secret(name: str) -> bool:
    """Tell whether a variable's value holds a password: an address with one in front of its host."""
    return name == _BROKER and "@" in os.environ.get(name, "")


def _must_be_there(here: Context) -> str:
    """Return which variables only the file can give to a run at night."""
    model = here.config.model
    names = [_BROKER] if _is_secret(_BROKER) else []
    if model.provider == "anthropic" and not model.key_command:
        names += [name for name in _KEYS if os.environ.get(name)] or [_KEYS[0]]
    if model.provider != "anthropic":
        names += sorted(name for name in os.environ if name.startswith(_CLOUD))
    return ", ".join(f"{name}='…'" for name in names) or "none"


def _program() -> list[str]:
    """Return how this very command is started: by its script where there is one, else as a module."""
    script = Path(sys.executable).with_name("overnight")
    found = str(script) if script.exists() else shutil.which("overnight")
    return [found] if found else [sys.executable, "-P", "-m", "dispatcher.cli"]


def _units_folder() -> Path:
    chosen = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".config") / "systemd" / "user"
