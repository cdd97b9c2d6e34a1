"""A schedule: when a run is to begin, and what makes systemd or cron begin one. Pure, but for the waiting itself."""

import shlex
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from pathlib import Path

__all__ = ["ENV_FILE", "Timer", "cron_line", "left", "next_at", "next_here", "service", "timer", "wait_until"]

ENV_FILE = ".config/overnight/env"
"""Below the home folder, for systemd and cron alike: lines of NAME='value', which both read in the same way."""

_LOOK_SECONDS = 1.0
"""A machine that slept, or a clock that was set, is noticed so soon."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A run every day at a time: where, by which command line, and with which variables beside the system's own."""

    name: str
    at: time
    folder: Path
    argv: Sequence[str]
    env: Mapping[str, str]


def next_at(at: time, now: datetime) -> datetime:
    """Return the next moment after `now` (with its zone) at which the clock shows `at`."""
    today = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)


def next_here(at: time, now: datetime) -> datetime:
    """Return that moment on this machine. `now` has no zone: clocks that are set in between (summer time) count."""
    return next_at(at, now).astimezone()


def left(seconds: float) -> str:
    """Return a time to wait in words: `3 h 12 min`, `4 min 10 s`."""
    whole = max(0, round(seconds))
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


def wait_until(
    moment: datetime,
    show: Callable[[float], None],
    sleep: Callable[[float], None] = clock.sleep,
    *,
    is_called_off: Callable[[], bool] = lambda: False,
) -> bool:
    """Return True when the wall clock has reached `moment`, False as soon as the waiting is called off.

    `show` is given the seconds that are left, again and again.
    """
    while (seconds := (moment - datetime.now().astimezone()).total_seconds()) > 0:
        if is_called_off():
            return False
        show(seconds)
        sleep(min(_LOOK_SECONDS, seconds))
    return True


def service(one: Timer) -> str:
    """Return the systemd unit that runs a night once.

    SIGTERM means Ctrl-C once, so it is sent to the run alone and units get time for their step. Exit 1 and 3 are a
    night with something left over, not a failure of the service.
    """
    env = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in one.env.items())
    return (
        "[Unit]\n"
        f"Description=overnight in {_plain(str(one.folder))}\n\n"
        "[Service]\n"
        "Type=exec\n"
        f"WorkingDirectory={_plain(str(one.folder))}\n"
        f"{env}"
        "# ANTHROPIC_API_KEY='…' belongs in this file, readable by you alone; key_command needs none.\n"
        f"EnvironmentFile=-%h/{ENV_FILE}\n"
        f"ExecStart={' '.join(_quoted(word).replace('$', '$$') for word in one.argv)}\n"
        "KillMode=mixed\n"
        "TimeoutStopSec=15min\n"
        "SuccessExitStatus=1 3\n"
    )


def timer(one: Timer) -> str:
    """Return the systemd timer that starts the service every day; a missed start is made up for."""
    return (
        "[Unit]\n"
        f"Description=overnight in {_plain(str(one.folder))}, every day at {one.at:%H:%M}\n\n"
        "[Timer]\n"
        f"OnCalendar=*-*-* {one.at:%H:%M}:00\n"
        "Persistent=true\n\n"
        "[Install]\n"
        "WantedBy=timers.target\n"
    )


def cron_line(one: Timer) -> str:
    """Return a line for `crontab -e`: cron reads `%` as the end of the command, and has next to no PATH.

    As for systemd, what the file of variables says wins over what was found here.
    """
    given = "".join(f"{name}={shlex.quote(value)}; " for name, value in one.env.items())
    file = '"$HOME/' + ENV_FILE + '"'
    run = " ".join(shlex.quote(word) for word in one.argv)
    env = f"set -a; {given}if [ -r {file} ]; then . {file}; fi; set +a"
    command = f"cd {shlex.quote(str(one.folder))} && {{ {env}; exec {run}; }}"
    return f"{one.at.minute} {one.at.hour} * * * {command}".replace("%", "\\%")


def _plain(text: str) -> str:
    """Return text for the rest of a line of a unit file: `%` begins a specifier there."""
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """Return one word of a unit file's line. In a command line, and only there, `$` begins a variable."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
