"""A run's log: what was said is in it, whatever becomes of the terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

from quiet import Quiet

from dispatcher.unattended.runlog import LoggedDisplay, begin


def test_what_is_said_is_shown_and_kept(tmp_path: Path) -> None:
    """With the time in front, for the owner alone; the log of the run before stays beside it."""
    path, shown = tmp_path / "home" / "run.log", Quiet()
    for number in (1, 2):
        display = LoggedDisplay(shown, path)
        display.note(f"order       unit-{number} \x1b[31m")
        display.status("verify 1 of 2")
        display.status("verify 1 of 2")
        display.end()
    assert shown.notes == ["order       unit-1 \x1b[31m", "order       unit-2 \x1b[31m"]
    lines = path.read_text().splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == ["order       unit-2 [31m", "verify 1 of 2"]
    assert "unit-1" in path.with_name("run.log.old").read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_run_that_says_nothing_leaves_the_log_alone(tmp_path: Path) -> None:
    """One that is refused because another goes on must not take that one's log away."""
    path = tmp_path / "run.log"
    path.write_text("of the running one\n")
    display = LoggedDisplay(Quiet(), path)
    display.fail("another run holds the lock")
    display.close()
    assert path.read_text() == "of the running one\n"


def test_why_a_run_ended_badly_is_in_its_log(tmp_path: Path) -> None:
    """Whoever attached reads it there; the command says it to people itself."""
    shown = Quiet()
    display = LoggedDisplay(shown, tmp_path / "run.log")
    display.note("preflight   fine")
    display.fail("Redis did not start")
    display.end()
    assert "ended       Redis did not start" in (tmp_path / "run.log").read_text()
    assert shown.notes == ["preflight   fine"]


def test_a_full_disk_costs_the_log_and_nothing_else(tmp_path: Path) -> None:
    """The run goes on and is shown as before."""
    (tmp_path / "file").write_text("in the way")
    shown = Quiet()
    display = LoggedDisplay(shown, tmp_path / "file" / "run.log")
    display.note("order       a")
    display.note("report      a")
    assert shown.notes == ["order       a", "report      a"]


SCRIPT = """
import sys, time
from pathlib import Path
from dispatcher.shown.display import choose
from dispatcher.unattended.runlog import LoggedDisplay
display = LoggedDisplay(choose(as_json=False), Path(sys.argv[1]))
display.note("order       a")
sys.stdin.read()
for number in range(3):
    display.note(f"report      {number}")
    display.status("waits")
display.say("last words")
display.end()
print("printed after all")
sys.stderr.write("and this\\n")
"""


def test_a_closed_terminal_is_no_reason_to_end(tmp_path: Path) -> None:
    """Live table and all: from then on the log has what is said, printed or written to standard error; exit 0."""
    ours, theirs = pty.openpty()
    path = tmp_path / "run.log"
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)],
        stdin=subprocess.PIPE,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    seen = b""
    while b"order" not in seen:
        seen += os.read(ours, 4096)
    os.close(ours)
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(20) == 0
    text = path.read_text()
    for words in ("order       a", "terminal    is gone", "report      0", "report      2", "last words"):
        assert text.count(words) == 1, text
    assert text.endswith("printed after all\nand this\n")
    assert "\x1b" not in text


def test_output_that_is_the_log_already_is_not_written_twice(tmp_path: Path) -> None:
    """As a detached run has it."""
    path = tmp_path / "run.log"
    with begin(path) as log:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(path)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True
        )
    assert done.returncode == 0
    assert path.read_text().count("order       a") == 1
    assert path.read_text().count("last words") == 1
