"""Locks when the process forks, and the atomic replace when it is killed in the middle."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from worktrees.errors import LockBusy
from worktrees.files import FileLock, lock_holder

ROOT = Path(__file__).parents[2]
STRACE = shutil.which("strace")


def run(program: str, path: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the test's own with `path` as its argument."""
    words = [*before, sys.executable, "-c", program, str(path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env=env)


FORKS = """
import os, pathlib, sys
from worktrees.errors import LockBusy
from worktrees.files import FileLock
path = pathlib.Path(sys.argv[1])
lock = FileLock(path)
lock.acquire()
number = lock.fd
FileLock(path.with_name("forgotten")).acquire()
ready, parent = os.pipe()
said, child_says = os.pipe()
if os.fork() == 0:
    os.close(parent)
    reused = os.open("/dev/null", os.O_RDONLY)  # takes the number that the lock had
    lock.release()
    lock.release()
    os.write(child_says, f"{lock.held} {reused == number} {os.fstat(reused).st_rdev > 0} ".encode())
    try:
        FileLock(path).acquire()
    except LockBusy:
        os.write(child_says, b"busy\\n")
    os.read(ready, 1)
    FileLock(path).acquire()
    os.write(child_says, b"free\\n")
    os._exit(0)
first = os.read(said, 100).decode()
while "\\n" not in first:
    first += os.read(said, 100).decode()
print(first, lock.held, end=" ")
lock.release()
os.close(parent)
print(os.read(said, 100).decode())
os.wait()
"""


def test_a_forked_child_has_no_lock(tmp_path: Path) -> None:
    """A child's copy is closed at once: releasing there closes nothing else, and the parent's lock holds and ends."""
    done = run(FORKS, tmp_path / "l")
    assert done.stdout.split() == ["False", "True", "True", "busy", "True", "free"], done.stderr


THREADS = """
import os, pathlib, sys, threading
from worktrees.files import FileLock
stop = threading.Event()
def locks(name):
    while not stop.is_set():
        with FileLock(pathlib.Path(sys.argv[1]) / name):
            pass
threads = [threading.Thread(target=locks, args=(str(n),)) for n in range(3)]
for thread in threads: thread.start()
bad = 0
for _ in range(150):
    child = os.fork()
    if child == 0:
        at = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdigit() and
              os.path.exists(f"/proc/self/fd/{fd}")]
        os._exit(any(name.startswith(sys.argv[1]) for name in at))
    bad += os.waitpid(child, 0)[1] != 0
stop.set()
for thread in threads: thread.join()
print(bad)
"""


def test_forking_while_threads_lock(tmp_path: Path) -> None:
    """There is no moment at which a child of a process with busy threads inherits a lock."""
    done = run(THREADS, tmp_path)
    assert done.stdout.split() == ["0"], done.stderr


def test_the_note_is_the_newest_holders_alone(tmp_path: Path) -> None:
    """A shorter note leaves nothing of a longer one behind, and only the first line is shown."""
    with FileLock(tmp_path / "l") as lock:
        lock.release()
        lock.acquire("a name that is rather long " * 5)
        lock.release()
        lock.acquire("short")
        assert lock_holder(lock.path).startswith("short: pid")
        assert lock.path.read_text().count("\n") == 1
        with pytest.raises(LockBusy, match="short"):
            FileLock(lock.path).acquire()


REPLACES = """
import pathlib, sys
from worktrees.files import write_atomic
write_atomic(pathlib.Path(sys.argv[1]), b"new")
"""


@pytest.mark.skipif(STRACE is None, reason="strace is not installed: no kill can be injected")
@pytest.mark.parametrize("fault", ["rename,renameat,renameat2:signal=KILL", "fsync:signal=KILL"])
def test_killed_while_replacing(tmp_path: Path, fault: str) -> None:
    """A process killed before the rename took effect leaves the old content; one killed after it, the new."""
    path = tmp_path / "state.md"
    path.write_bytes(b"old")
    assert STRACE is not None
    done = run(REPLACES, path, STRACE, "-f", "-qq", "-o", "/dev/null", "-e", f"inject={fault}")
    assert done.returncode in (-9, 137)
    assert path.read_bytes() in ((b"old", b"new") if fault.startswith("rename") else (b"old",))
    done = run(REPLACES, path)
    assert (done.returncode, path.read_bytes()) == (0, b"new")


@pytest.mark.skipif(STRACE is None, reason="strace is not installed: no error can be injected")
@pytest.mark.parametrize("number", [1, 2])
def test_an_fsync_error_while_replacing(tmp_path: Path, number: int) -> None:
    """An I/O error of the file's fsync keeps the old content; one of the directory's is told all the same."""
    path = tmp_path / "state.md"
    path.write_bytes(b"old")
    assert STRACE is not None
    done = run(REPLACES, path, STRACE, "-f", "-qq", "-o", "/dev/null", "-e", f"inject=fsync:error=EIO:when={number}")
    assert "DiskError" in done.stderr
    assert "Input/output error" in done.stderr
    assert path.read_bytes() == (b"old" if number == 1 else b"new")
    assert list(tmp_path.iterdir()) == [path]
