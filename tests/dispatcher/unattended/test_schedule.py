"""When a run begins: by the clock of the wall, by systemd, by cron."""

import shutil
import subprocess
import time as clock
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.unattended.schedule import (
    ENV_FILE,
    Timer,
    cron_line,
    left,
    next_at,
    next_here,
    service,
    timer,
    wait_until,
)

NIGHTLY = Timer(
    "overnight-x",
    time(22, 5),
    Path("/home/ann/my 100% project"),
    ["/opt/o v/overnight", "run"],
    {"OVERNIGHT_HOME": '/data/"ann"', "PATH": "/usr/bin:/home/$ann/bin"},
)


@given(
    st.datetimes(timezones=st.just(UTC), allow_imaginary=False).filter(lambda moment: moment.year < 9999), st.times()
)
def test_the_next_moment_is_the_next(now: datetime, at: time) -> None:
    """Later than now, within a day, and the clock then shows what was asked for."""
    moment = next_at(at, now)
    assert now < moment <= now + timedelta(days=1)
    assert (moment.hour, moment.minute) == (at.hour, at.minute)


@pytest.mark.parametrize(("evening", "offset"), [("2026-03-28", 2), ("2026-10-24", 1)], ids=["spring", "autumn"])
def test_clocks_are_set_while_it_waits(monkeypatch: pytest.MonkeyPatch, evening: str, offset: int) -> None:
    """A run that is to begin at six does so in the night of summer time as well, by the clock on the wall."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        clock.tzset()
        moment = next_here(time(6), datetime.fromisoformat(f"{evening}T22:00"))
        assert (moment.hour, moment.utcoffset()) == (6, timedelta(hours=offset))
    clock.tzset()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (-3, "0 s"), (59.6, "1 min 0 s"), (250, "4 min 10 s"), (3600, "1 h 0 min"), (11_520, "3 h 12 min")],
)
def test_what_is_left_in_words(seconds: float, words: str) -> None:
    """As precise as somebody who waits wants to know it."""
    assert left(seconds) == words


def test_waiting_ends_when_the_wall_clock_says_so() -> None:
    """Not when so many seconds were slept: a machine that slept begins late, never a day later."""
    shown: list[float] = []
    wait_until(datetime.now().astimezone() + timedelta(seconds=0.15), shown.append)
    assert shown
    wait_until(datetime.now().astimezone() - timedelta(hours=1), lambda _: pytest.fail("nothing to wait for"))
    moment = datetime.now().astimezone() + timedelta(hours=9)

    def sleep(seconds: float) -> None:
        raise RuntimeError(str(seconds))

    with pytest.raises(RuntimeError, match=r"^1\.0$"):  # it looks again every second
        wait_until(moment, shown.append, sleep)


def test_the_service_says_where_and_how() -> None:
    """Spaces, quotes, percent and dollar signs of a path mean themselves there."""
    text = service(NIGHTLY)
    assert "WorkingDirectory=/home/ann/my 100%% project\n" in text
    assert 'ExecStart="/opt/o v/overnight" "run"\n' in text
    assert 'Environment="OVERNIGHT_HOME=/data/\\"ann\\""\n' in text
    assert 'Environment="PATH=/usr/bin:/home/$ann/bin"\n' in text
    assert "SuccessExitStatus=1 3" in text
    assert "OnCalendar=*-*-* 22:05:00" in timer(NIGHTLY)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    """Its own checker finds nothing to say about them."""
    program = shutil.which("true")
    assert program is not None
    folder = tmp_path / 'a 100% "project"'
    folder.mkdir()
    one = Timer("overnight-x", time(22), folder, [program, "run"], {"PATH": "/usr/bin", "X": "a b"})
    paths = [tmp_path / "overnight-x.service", tmp_path / "overnight-x.timer"]
    for path, text in zip(paths, (service(one), timer(one)), strict=True):
        path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", *map(str, paths)], capture_output=True, text=True, check=False
    )
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "overnight-x" in line]
    assert ours == []


def test_the_cron_line_survives_the_shell_and_cron(tmp_path: Path) -> None:
    """Percent signs are escaped for cron; what is left is a command that sh runs where and as it should."""
    folder = tmp_path / "my 100% project"
    folder.mkdir()
    one = Timer("x", time(22, 5), folder, ["sh", "-c", 'echo "$PWD $X"'], {"X": "a'b"})
    when, _, command = cron_line(one).partition(" * * * ")
    assert when == "5 22"
    assert "%" not in command.replace("\\%", "")
    done = subprocess.run(["sh", "-c", command.replace("\\%", "%")], capture_output=True, text=True, check=True)
    assert done.stdout == f"{folder} a'b\n"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_cron_line_has_what_the_file_of_variables_says(tmp_path: Path, shell: str) -> None:
    """From next to no environment, as cron has it: the key is there, and the file wins, as it does for systemd."""
    file = tmp_path / ENV_FILE
    one = Timer("x", time(22), tmp_path, ["sh", "-c", 'echo "$KEY|$X|$BROKER"'], {"X": "here", "BROKER": "redis://a/0"})
    command = cron_line(one).partition(" * * * ")[2].replace("\\%", "%")

    def runs() -> str:
        clean = ["env", "-i", f"HOME={tmp_path}", "PATH=/usr/bin:/bin", shell, "-c", command]
        return subprocess.run(clean, capture_output=True, text=True, check=True).stdout

    assert runs() == "|here|redis://a/0\n"
    file.parent.mkdir(parents=True)
    file.write_text("KEY='a&b $c'\nX='there'\n# words\n")
    assert runs() == "a&b $c|there|redis://a/0\n"
