from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from worktrees import files
from worktrees.errors import DiskError, LockBusy
from worktrees.files import (
    FileLock,
    create_atomic,
    exchange_atomic,
    left_over,
    lock_holder,
    sweep,
    sync_directory,
    write_atomic,
)


def test_a_file_is_replaced_whole_with_the_mode_asked_for(tmp_path: Path) -> None:
    """The new content is all there, the mode is as asked, and no temporary file stays."""
    path = tmp_path / "state.md"
    path.write_bytes(b"old and much longer than the new one")
    write_atomic(path, b"new", mode=0o600)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_replaced_stays_until_it_is_taken(tmp_path: Path) -> None:
    """Whoever dies while it takes in what an exchange brought out leaves that beside the file, for the next one."""
    path = tmp_path / "state.md"
    path.write_bytes(b"a person's edit")

    def dies(replaced: bytes) -> None:
        assert replaced == b"a person's edit"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exchange_atomic(path, b"new", taken=dies)
    assert [found.read_bytes() for found in left_over(path)] == [b"a person's edit"]
    assert exchange_atomic(path, b"newer") == b"new"
    assert len(left_over(path)) == 1


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_file_is_made_by_one_of_those_who_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    """It is whole with its name, or not there at all; what is there is never replaced, nothing is left beside it."""
    if not has_links:

        def refuse(*_: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "a.md"
    create_atomic(path, b"first")
    with pytest.raises(FileExistsError):
        create_atomic(path, b"second")
    assert path.read_bytes() == b"first"

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskError):
        create_atomic(tmp_path / "b.md", b"third")
    assert list(tmp_path.iterdir()) == [path]


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that takes three bytes at a time still gets everything."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:3])))
    write_atomic(tmp_path / "f", b"0123456789")
    assert (tmp_path / "f").read_bytes() == b"0123456789"


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_disk_fault_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Whatever fails on the way, the old content stays, nothing is left over, and the error says where."""
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def full(*_args: object, **_more: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    if call == "replace":
        monkeypatch.setattr(Path, call, full)
    else:
        monkeypatch.setattr(os, call, full)
    with pytest.raises(DiskError, match="No space left") as caught:
        write_atomic(path, b"new")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.path == path
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_really_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    """On a 64 KiB file system a larger replacement fails as DiskError and the old content stays."""
    script = (
        "import pathlib, sys; from worktrees.files import write_atomic; from worktrees.errors import DiskError\n"
        "path = pathlib.Path(sys.argv[1]) / 'f'; path.write_bytes(b'old')\n"
        "try: write_atomic(path, b'x' * 100_000)\n"
        "except DiskError: print(path.read_bytes(), len(list(path.parent.iterdir())))\n"
    )
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(disk)]
    done = subprocess.run([*command, sys.executable, script], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("no user namespaces here")
    assert done.stdout.strip() == "b'old' 1", done.stderr


def test_syncing_a_missing_directory_is_a_disk_error(tmp_path: Path) -> None:
    """The error names the directory."""
    with pytest.raises(DiskError, match="missing"):
        sync_directory(tmp_path / "missing")


def test_a_lock_excludes_another_object_of_the_same_process(tmp_path: Path) -> None:
    """Two FileLocks on one path cannot both be held; the refusal shows the holder's note."""
    first, second = FileLock(tmp_path / "sub" / "l"), FileLock(tmp_path / "sub" / "l")
    first.acquire("night 7")
    with pytest.raises(LockBusy, match=rf"night 7: pid {os.getpid()} on"):
        second.acquire()
    with pytest.raises(LockBusy):
        first.acquire()
    first.release()
    first.release()
    with second:
        assert "pid" in lock_holder(second.path)
    with second:
        assert second.fd >= 0


def test_waiting_ends_when_the_time_is_up(tmp_path: Path) -> None:
    """`wait` raises LockBusy after its seconds, and gets a lock that is free."""
    held, waiting = FileLock(tmp_path / "l"), FileLock(tmp_path / "l")
    held.acquire()
    with pytest.raises(LockBusy):
        waiting.wait(0.05)
    held.release()
    waiting.wait(0.05)
    waiting.release()


def test_a_lock_on_an_unlinked_file_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the file was replaced between opening and locking, the new file is locked instead."""
    path = tmp_path / "l"
    opening, opened = os.open, []

    def open_then_replace(*args: object, **more: object) -> int:
        descriptor = opening(*args, **more)  # type: ignore[arg-type]
        opened.append(descriptor)
        if len(opened) == 1:
            path.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_then_replace)
    with FileLock(path) as lock:
        assert os.path.samestat(os.fstat(lock.fd), path.stat())
    assert len(opened) == 2


def test_a_lock_dies_with_its_process_and_is_passed_on_only_on_purpose(tmp_path: Path) -> None:
    """A started program does not keep the lock, unless it was given the descriptor; then until it ends."""
    lock = FileLock(tmp_path / "l")
    lock.acquire()
    assert not os.get_inheritable(lock.fd)
    plain = subprocess.Popen(["sleep", "30"])
    lock.release()
    FileLock(tmp_path / "l").acquire()  # dropped at once: the object is garbage, its descriptor is not
    plain.kill()
    plain.wait()

    other = FileLock(tmp_path / "other")
    other.acquire()
    heir = subprocess.Popen(["sleep", "30"], pass_fds=(other.fd,))
    other.release()
    with pytest.raises(LockBusy):
        FileLock(other.path).acquire()
    heir.kill()
    heir.wait()
    with FileLock(other.path):
        pass
    with pytest.raises(ValueError, match="not locked"):
        _ = other.fd


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks there may exclude nobody: the error says so and asks for a local folder."""
    probe = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(files, "REMOTE", {files._file_system(probe)})
    os.close(probe)
    with pytest.raises(DiskError, match="local folder"):
        FileLock(tmp_path / "l").acquire()


def test_old_temporaries_are_swept_and_nothing_else(tmp_path: Path) -> None:
    """What a killed process left a day ago; a young one may still be written, and other names are not ours."""
    old = time.time() - 2 * 86_400
    names = (
        ".a.json.12.0123abcd.tmp",
        ".a.json.tmp",
        "a.json.12.0123abcd.tmp",
        ".a.json.12.xyz.tmp",
        ".b.1.0123abcd.tmp",
    )
    for name in names:
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (old, old))
    os.utime(tmp_path / names[-1])
    (tmp_path / ".c.1.0123abcd.tmp").mkdir()
    os.utime(tmp_path / ".c.1.0123abcd.tmp", (old, old))
    assert sweep(tmp_path) == 1

    assert not (tmp_path / names[0]).exists()
    assert all((tmp_path / name).exists() for name in names[1:])
    assert sweep(tmp_path / "nowhere") == 0
