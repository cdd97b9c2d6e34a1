from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from worktrees import containment, process
from worktrees.containment import Wrapping, tagged, wrapping
from worktrees.errors import StartError
from worktrees.process import Command, Finished, base_environment, run, sweep, syntax_fault

MODES = ["namespace", "group"]


@pytest.fixture(params=MODES)
def tag(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A fresh tag; each test runs with PID namespaces (where there are any) and without."""
    if request.param == "group":
        bare = Wrapping(None, wrapping().programs)
        monkeypatch.setattr(process, "wrapping", lambda: bare)
    elif not wrapping().is_namespace:
        pytest.skip("no PID namespaces here")
    mark = f"test-{secrets.token_hex(6)}"
    yield mark
    left = tagged(mark)
    containment.kill_tagged(mark, 5)
    assert left == []


async def bash(script: str, where: Path, tag: str = "", **more: float) -> Finished:
    limits = {"timeout": 20.0, **more}
    return await run(Command(script, where, base_environment(), tag=tag, **limits))  # type: ignore[arg-type]


async def test_output_comes_interleaved_with_the_exit_code(tmp_path: Path, tag: str) -> None:
    """stdout and stderr are one text in order; 3, 126 and 127 are exit codes like any other."""
    done = await bash("echo one; echo two >&2; echo three; exit 3", tmp_path, tag)
    assert (done.output, done.exit_code, done.signal) == ("one\ntwo\nthree\n", 3, None)
    assert not done.ok
    assert (await bash("nonsense-command", tmp_path, tag)).exit_code == 127
    assert (await bash("./", tmp_path, tag)).exit_code == 126
    assert (await bash("pwd", tmp_path, tag)).output == f"{tmp_path}\n"


async def test_a_shell_killed_by_a_signal_is_an_exit_code(tmp_path: Path) -> None:
    """What the script does to its own shell is 128+n; it is not taken for our kill."""
    done = await bash("kill -TERM $$", tmp_path)
    assert (done.exit_code, done.signal, done.timed_out) == (143, None, False)


async def test_stdin_is_empty(tmp_path: Path, tag: str) -> None:
    """A command that reads gets the end of the file at once instead of waiting for somebody to type."""
    assert (await bash("cat; echo end", tmp_path, tag)).output == "end\n"


async def test_undecodable_output_is_replaced(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 do not fail the command."""
    assert (await bash(r"printf 'a\xffb'", tmp_path)).output == "a�b"


@pytest.mark.parametrize(
    "script",
    ["test -f x", "cat <<E\nhi", "exit 3", "for x in 1; do\n  echo $x\ndone", "é && ü", "shopt -s extglob\nls !(a)"],
)
def test_a_script_that_bash_can_read(script: str) -> None:
    """Whatever it would do: none of it is done."""
    assert syntax_fault(script) is None


@pytest.mark.parametrize(
    ("script", "said"),
    [("if then (", "unexpected token `then'"), ("echo 'a", "unexpected EOF"), ("a=(1", "matching `)'")],
)
def test_a_script_that_bash_cannot_read(script: str, said: str, tmp_path: Path) -> None:
    """What is wrong, with its line; nothing before it is run either."""
    fault = syntax_fault(f"touch {tmp_path}/there\n{script}")
    assert fault is not None
    assert said in fault
    assert fault.startswith("line 2")
    assert not list(tmp_path.iterdir())


async def test_a_background_process_with_the_pipe_open_does_not_hold_the_return(tmp_path: Path, tag: str) -> None:
    """`sleep 30 & echo done` returns at once, and the sleep is dead."""
    done = await bash("sleep 30 & echo done", tmp_path, tag)
    assert done.output == "done\n"
    assert done.seconds < 3
    assert tagged(tag) == []


async def test_a_daemon_is_dead_after_the_return(tmp_path: Path, tag: str) -> None:
    """A process with a session of its own and closed descriptors does not outlive its command."""
    done = await bash("setsid sh -c 'sleep 30' >/dev/null 2>&1 </dev/null & sleep 0.2; echo out", tmp_path, tag)
    assert done.ok
    assert tagged(tag) == []


async def test_a_daemon_that_shed_its_environment_is_dead_in_a_namespace(tmp_path: Path) -> None:
    """Without the tag there is nothing to find it by: the namespace alone takes it along."""
    if not wrapping().is_namespace:
        pytest.skip("no PID namespaces here")
    mark = tmp_path / "alive"
    loop = f"while :; do date +%s%N > {mark}; sleep 0.01; done"
    await bash(f"setsid env -i /bin/sh -c '{loop}' >/dev/null 2>&1 & sleep 0.3", tmp_path)
    last = mark.read_text()
    await asyncio.sleep(0.2)
    assert mark.read_text() == last


async def test_a_timeout_kills_the_whole_tree(tmp_path: Path, tag: str) -> None:
    """What was written before is kept; children and daemons are dead."""
    started = time.monotonic()
    script = "echo before; sleep 50 & setsid sleep 50 & trap '' TERM INT; sleep 50; echo after"
    done = await bash(script, tmp_path, tag, timeout=0.5)
    assert done.timed_out
    assert (done.output, done.exit_code, done.signal, done.ok) == ("before\n", None, signal.SIGKILL, False)
    assert time.monotonic() - started < 5
    assert tagged(tag) == []


async def test_a_cancelled_command_is_dead_before_the_cancellation_arrives(tmp_path: Path, tag: str) -> None:
    """Even when it is cancelled again during the kill."""
    task = asyncio.create_task(bash("touch started; sleep 50 & setsid sleep 50 & sleep 50", tmp_path, tag))
    await asyncio.to_thread(_wait_for, (tmp_path / "started").exists, 10)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tagged(tag) == []


async def test_a_command_cancelled_at_birth_is_dead(tmp_path: Path, tag: str) -> None:
    """A kill that comes before the namespace exists leaves nothing either."""
    for delay in (0, 0.0005, 0.001, 0.002, 0.003):
        task = asyncio.create_task(bash("sleep 50", tmp_path, tag))
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.sleep(0.05)
    assert tagged(tag) == []


async def test_a_flood_is_kept_in_bounds_and_killed(tmp_path: Path, tag: str) -> None:
    """Endless output: head and tail are kept, and the command ends at its total limit."""
    done = await bash("echo first; yes", tmp_path, tag, output_limit=1000, total_limit=30_000_000)
    assert done.truncated
    assert 30_000_000 < done.bytes_total < 60_000_000
    assert done.signal == signal.SIGKILL
    assert done.output.startswith("first\ny\n")
    assert f"{done.bytes_total - 1000} bytes left out" in done.output
    assert len(done.output) < 1100
    assert tagged(tag) == []


async def test_much_output_within_the_limit_is_read_to_the_last_byte(tmp_path: Path) -> None:
    """50 MB, of which the last line is there."""
    done = await bash("head -c 50000000 /dev/zero; echo last", tmp_path, output_limit=100)
    assert (done.bytes_total, done.exit_code) == (50_000_005, 0)
    assert done.output.endswith("last\n")


async def test_a_script_longer_than_an_argument_may_be(tmp_path: Path, tag: str) -> None:
    """300 KB of here-document run like any other script."""
    text = "x" * 300_000
    done = await bash(f"cat > file <<'END'\n{text}\nEND\nwc -c < file", tmp_path, tag)
    assert done.output.strip() == "300001"


async def test_commands_run_side_by_side_and_leave_no_descriptor(tmp_path: Path) -> None:
    """Twenty at once do not wait for each other, and nothing stays open afterwards."""
    await bash("true", tmp_path)
    before = _descriptors()
    done = await asyncio.gather(*(bash(f"sleep 0.3; echo {n}", tmp_path) for n in range(20)))
    assert [one.output for one in done] == [f"{n}\n" for n in range(20)]
    assert max(one.seconds for one in done) < 3
    assert _descriptors() == before


async def test_what_cannot_be_started_says_why(tmp_path: Path, tag: str) -> None:
    """A missing directory and a NUL in the script are StartErrors, and leave no descriptor open."""
    before = _descriptors()
    with pytest.raises(StartError, match="gone"):
        await bash("true", tmp_path / "gone", tag)
    with pytest.raises(StartError, match="null byte"):
        await bash("true\0", tmp_path, tag)
    assert _descriptors() == before


def test_the_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets, git's own variables and whatever nobody thought of stay outside; prompts are answered."""
    for name in ("ANTHROPIC_API_KEY", "GIT_DIR", "GIT_SSH_COMMAND", "AWS_SECRET_ACCESS_KEY", "UV_PUBLISH_TOKEN", "X"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LC_TIME", "C")
    environment = base_environment({"MORE": "1", "TERM": "xterm"})
    assert "secret" not in environment.values()
    assert environment["PATH"] == os.environ["PATH"]
    assert {name: environment[name] for name in ("LC_TIME", "MORE", "TERM", "CI", "GIT_TERMINAL_PROMPT")} == {
        "LC_TIME": "C",
        "MORE": "1",
        "TERM": "xterm",
        "CI": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }


async def test_the_command_sees_its_environment_and_its_tag_only(tmp_path: Path) -> None:
    """Nothing of ours leaks through the wrapper, not even by the parent's /proc entry."""
    os.environ["CANARY"] = "canary-value"
    try:
        done = await run(Command("env; cat /proc/*/environ", tmp_path, {"PATH": "/usr/bin:/bin"}, 10, tag="t-1"))
    finally:
        del os.environ["CANARY"]
    assert "OVERNIGHT_TAG=t-1" in done.output
    if wrapping().is_namespace:
        assert "canary-value" not in done.output


async def test_sweep_kills_what_carries_the_tag_and_nothing_else() -> None:
    """Daemons with the tag die; a process with a longer tag of the same beginning lives."""
    tag = f"sweep-{secrets.token_hex(4)}"
    marked, other = _sleeper(tag), _sleeper(tag + "0")
    try:
        await asyncio.sleep(0.1)
        assert await sweep(tag) is wrapping().is_namespace
        assert marked.wait(1) == -signal.SIGKILL
        assert other.poll() is None
        assert await sweep(tag) is wrapping().is_namespace
    finally:
        other.kill()
        other.wait()


async def test_without_namespaces_a_sweep_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have shed its tag there: the answer is no, although nothing was found."""
    monkeypatch.setattr(process, "is_provable", lambda: False)
    assert not await sweep(f"none-{secrets.token_hex(4)}")


HOST = """
import asyncio, pathlib, sys
from worktrees import containment, process
from worktrees.process import Command, base_environment, run
where, tag, mode = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if mode == "group":
    bare = containment.Wrapping(None, containment.wrapping().programs)
    process.wrapping = lambda: bare
script = "touch started; sleep 60 & (sleep 60 | sleep 60) & bash -c 'sleep 60; true'"
if mode == "namespace":
    script = "setsid setsid sleep 60 & " + script
asyncio.run(run(Command(script, where, base_environment(), 60, tag=tag)))
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_command_dies_with_our_own_killed_process(tmp_path: Path, mode: str) -> None:
    """SIGKILL to the process that runs a command: within a second its whole tree is gone."""
    if mode == "namespace" and not wrapping().is_namespace:
        pytest.skip("no PID namespaces here")
    tag = f"killed-{secrets.token_hex(6)}"
    host = subprocess.Popen([sys.executable, "-c", HOST, str(tmp_path), tag, mode])
    try:
        _wait_for((tmp_path / "started").exists, 10)
        _wait_for(lambda: len(tagged(tag)) >= 6, 10)
        host.kill()
        host.wait()
        _wait_for(lambda: not tagged(tag), 1)
    finally:
        containment.kill_tagged(tag, 5)


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/usr/bin/python3").exists(), reason="becomes another user")
def test_an_ordinary_user_gets_namespaces_too(tmp_path: Path) -> None:
    """By way of a user namespace that keeps the user's id; the kill with our own process holds as well."""
    tmp_path.chmod(0o777)
    for place in tmp_path.parents:
        if place == Path(tempfile.gettempdir()):
            break
        place.chmod(place.stat().st_mode | 0o711)
    shutil.copytree(Path(process.__file__).parent, tmp_path / "code" / "worktrees")
    ask = (
        "import asyncio, pathlib, sys; from worktrees.process import *; from worktrees.containment import wrapping\n"
        "done = asyncio.run(run(Command('id -u; echo $$', pathlib.Path(sys.argv[1]), base_environment(), 9)))\n"
        "print(wrapping().is_namespace, done.output.split())"
    )
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-B", "-c"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "code")}
    done = subprocess.run([*user, ask, tmp_path], capture_output=True, text=True, env=environment, check=False)
    if "cannot import" in done.stderr or done.stdout.startswith("False"):
        pytest.skip("python3 of the system is too old, or ordinary users have no namespaces here")
    assert done.stdout.startswith("True ['65534', '"), done.stderr
    tag = f"user-{secrets.token_hex(6)}"
    host = subprocess.Popen([*user, HOST, tmp_path, tag, "namespace"], env=environment)
    try:
        _wait_for((tmp_path / "started").exists, 10)
        _wait_for(lambda: len(tagged(tag)) >= 6, 10)
        host.kill()
        host.wait()
        _wait_for(lambda: not tagged(tag), 1)
    finally:
        containment.kill_tagged(tag, 5)


def _sleeper(tag: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["setsid", "sleep", "50"], env={**os.environ, "OVERNIGHT_TAG": tag})


def _descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def _wait_for(what: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)
