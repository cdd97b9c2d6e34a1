"""The machine stays awake while a run goes on, and may sleep once it is gone, however it went."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dispatcher.unattended.awake import awake

FAKE = '#!/bin/sh\necho $$ "$@" >> {log}\nwhile [ "${{1#--}}" != "$1" ]; do shift; done\nexec "$@"\n'


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `systemd-inhibit` that writes down what it was asked, and then does what the real one does."""
    folder, log = tmp_path / "bin", tmp_path / "asked"
    folder.mkdir()
    log.touch()
    fake = folder / "systemd-inhibit"
    fake.write_text(FAKE.format(log=log))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return log


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_sleep_is_inhibited_for_as_long_as_the_run_lasts(asked: Path) -> None:
    """The system is told what for; afterwards the inhibitor is gone."""
    with awake("three units"):
        until(lambda: asked.read_text().endswith("\n"))
        pid, words = asked.read_text().strip().split(" ", 1)
        assert words.startswith("--what=sleep:idle --who=overnight --why=three units --mode=block")
        assert is_alive(int(pid))
    assert not is_alive(int(pid))


def test_the_inhibitor_dies_with_a_killed_run(asked: Path) -> None:
    """Nobody is left to end it: it notices by itself."""
    code = "import time\nfrom dispatcher.unattended.awake import awake\nwith awake('x'):\n    time.sleep(60)\n"
    run = subprocess.Popen([sys.executable, "-c", code])
    until(lambda: asked.read_text().endswith("\n"))
    pid = int(asked.read_text().split()[0])
    assert is_alive(pid)
    run.send_signal(signal.SIGKILL)
    run.wait()
    until(lambda: not is_alive(pid))


def test_without_systemd_a_run_goes_on_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with one that refuses: nothing is said, and nothing is waited for."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with awake("x"):
        pass
    (tmp_path / "systemd-inhibit").symlink_to("/bin/false")
    (tmp_path / "cat").symlink_to("/bin/cat")
    with awake("x"):
        pass
