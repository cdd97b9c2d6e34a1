"""Files beneath a root: never outside it, never through a symbolic link, never half written."""

# ruff: noqa: PTH208 - names are what is compared

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.errors import ToolError
from workers.tools import beneath

Act = Callable[[Path, str], Any]


def reads(root: Path, name: str) -> Any:
    return beneath.read_bytes(root, beneath.relative(root, name))


def writes(root: Path, name: str) -> Any:
    beneath.write_bytes(root, beneath.relative(root, name), b"written", new=False)


def creates(root: Path, name: str) -> Any:
    beneath.write_bytes(root, beneath.relative(root, name), b"written", new=True)


def lists(root: Path, name: str) -> Any:
    return beneath.list_directory(root, beneath.relative(root, name))


ACTS = pytest.mark.parametrize("act", [reads, writes, creates, lists], ids=lambda act: act.__name__)


def is_untouched(outside: Path) -> None:
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "secret"}


@ACTS
@pytest.mark.parametrize("name", ["link", "link/file", "a/link", "a/link/file", "a/b/link/new", "a/b/link/c/new"])
def test_no_symbolic_link_at_any_level(root: Path, outside: Path, act: Act, name: str) -> None:
    """A link as the last part, the first or any between is refused, and nothing outside is read or changed."""
    (root / "a" / "b").mkdir(parents=True)
    for folder in (root, root / "a", root / "a" / "b"):
        (folder / "link").symlink_to(outside)
    with pytest.raises(ToolError):
        act(root, name)
    is_untouched(outside)


@ACTS
def test_no_link_to_a_file(root: Path, outside: Path, act: Act) -> None:
    """A link to a file, even to one inside the tree or to nothing, is refused and stays a link."""
    (root / "inside").write_text("inside")
    for name, target in (("out", outside / "file"), ("in", root / "inside"), ("gone", outside / "new")):
        (root / name).symlink_to(target)
        with pytest.raises(ToolError):
            act(root, name)
        assert (root / name).is_symlink()
    assert (root / "inside").read_text() == "inside"
    is_untouched(outside)


@ACTS
@pytest.mark.parametrize("name", ["../outside/file", "a/../../outside/file", "..", "/etc/passwd", "//etc/passwd", "/"])
def test_nothing_outside(root: Path, outside: Path, act: Act, name: str) -> None:
    """`..` and absolute paths outside of the root are refused before anything is opened."""
    (root / "a").mkdir()
    with pytest.raises(ToolError):
        act(root, name)
    is_untouched(outside)


@ACTS
@pytest.mark.parametrize("name", [".git", ".git/config", "./.git/hooks/pre-commit", "{root}/.git/HEAD"])
def test_git_is_the_harnesses(root: Path, act: Act, name: str) -> None:
    """Git's own files are refused, file or folder, however the path is written."""
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("[core]")
    with pytest.raises(ToolError, match="owns git"):
        act(root, name.format(root=root))
    assert os.listdir(root / ".git") == ["config"]


@ACTS
@pytest.mark.parametrize("name", ["a\0b", "a\ud83d", "x" * 300, "/".join(["x" * 200] * 30), "", "."])
def test_impossible_names(root: Path, act: Act, name: str) -> None:
    """A name that no file can have is an error for the model, never one of the harness."""
    if act is lists and name in ("", "."):
        assert act(root, name) == []
        return
    with pytest.raises(ToolError):
        act(root, name)
    assert os.listdir(root) == []


def test_a_fifo_and_other_things(root: Path) -> None:
    """What is no regular file is refused at once: a FIFO without a writer does not hang the read."""
    os.mkfifo(root / "fifo")
    (root / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        folder = os.open(root, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
    for name in ("fifo", "folder", "socket"):
        for act in (reads, writes, creates):
            with pytest.raises(ToolError):
                act(root, name)
    assert stat.S_ISFIFO((root / "fifo").stat().st_mode)


def test_a_huge_file(root: Path) -> None:
    """A file that would not fit into memory or the model's window is refused by its size, unread."""
    with (root / "big").open("wb") as file:
        file.truncate(50 * 1024**3)
    with pytest.raises(ToolError, match="53,687,091,200 bytes"):
        reads(root, "big")


def test_no_descriptor_is_left_open(root: Path, outside: Path) -> None:
    """Refused or done, nothing stays open."""
    (root / "folder").mkdir()
    (root / "file").write_text("x")
    (root / "link").symlink_to(outside)
    before = len(os.listdir("/proc/self/fd"))
    for name in ("folder", "file", "link", "link/x", "none/x", "folder/none/x"):
        for act in (reads, writes, creates, lists):
            try:
                act(root, name)
            except ToolError:
                continue
    assert len(os.listdir("/proc/self/fd")) == before


def test_modes_are_kept(root: Path) -> None:
    """An existing file keeps its mode, a new one is 0644, and its new folders are there."""
    script = root / "run.sh"
    script.write_text("old")
    script.chmod(0o755)
    writes(root, "run.sh")
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("written", 0o755)
    creates(root, "a/b/new")
    assert stat.S_IMODE((root / "a" / "b" / "new").stat().st_mode) == 0o644
    script.chmod(0o400)
    writes(root, "run.sh")
    assert stat.S_IMODE(script.stat().st_mode) == 0o400


def test_only_a_new_file_may_be_missing(root: Path) -> None:
    """An edit of a file that is not there makes neither file nor folder."""
    for name in ("none", "a/none"):
        with pytest.raises(ToolError, match="No such file"):
            writes(root, name)
    assert os.listdir(root) == []


def test_a_long_name_can_be_written(root: Path) -> None:
    """A name of the longest kind, in bytes, can be written: the temporary name is no longer than it."""
    name = "é" * 127
    creates(root, name)
    assert os.listdir(root) == [name]


def test_hard_links_are_not_written_through(root: Path, outside: Path) -> None:
    """A hard link to a file outside is replaced, not written through."""
    os.link(outside / "file", root / "linked")
    writes(root, "linked")
    assert (root / "linked").read_text() == "written"
    is_untouched(outside)


def test_a_full_disk_keeps_the_old_content(tiny_disk: Path) -> None:
    """On a real full disk the old file stays whole, no temporary file is left, and the harness hears of it."""
    root = tiny_disk / "tree"
    root.mkdir()
    (root / "f").write_text("old")
    with pytest.raises(OSError, match="No space left") as caught:
        beneath.write_bytes(root, PurePosixPath("f"), b"x" * 200_000, new=False)
    assert caught.value.errno == errno.ENOSPC
    assert (root / "f").read_text() == "old"
    assert os.listdir(root) == ["f"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_trouble_of_the_disk_is_the_harnesses(root: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken disk is not told to the model as if it could mend it; anything else is."""
    (root / "f").write_text("old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match=os.strerror(number)):
        writes(root, "f")
    number = errno.EPERM
    with pytest.raises(ToolError):
        writes(root, "f")
    assert os.listdir(root) == ["f"]


def test_listing(root: Path, outside: Path) -> None:
    """Two levels, sorted, hidden ones left out, folders with a slash; a link is a name and is not entered."""
    (root / "a" / "b" / "c").mkdir(parents=True)
    (root / "a" / "f").write_text("")
    (root / ".hidden").mkdir()
    (root / "link").symlink_to(outside)
    assert beneath.list_directory(root, PurePosixPath()) == ["a/", "a/b/", "a/f", "link"]
    assert beneath.list_directory(root, PurePosixPath("a")) == ["b/", "b/c/", "f"]
    assert beneath.is_directory(root, PurePosixPath("a/b"))
    assert not beneath.is_directory(root, PurePosixPath("link"))
    assert not beneath.is_directory(root, PurePosixPath("a/f"))


@settings(max_examples=200, deadline=None)
@given(parts=st.lists(st.sampled_from(["..", ".", "/", "a", "link", ".git", "//", "outside", "file"]), max_size=6))
def test_no_path_leads_out(parts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """However a path is put together, what it writes is in the tree, and git's files and the outside stay."""
    place = tmp_path_factory.mktemp("place")
    root, outside = place / "tree", place / "outside"
    (root / ".git").mkdir(parents=True)
    (root / "a").mkdir()
    outside.mkdir()
    (outside / "file").write_text("secret")
    (root / "link").symlink_to(outside)
    (root / "a" / "link").symlink_to("../..")
    try:
        creates(root, "/".join(parts))
    except ToolError:
        pass
    else:
        found = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
        assert any(path.read_bytes() == b"written" for path in found)
    is_untouched(outside)
    assert os.listdir(root / ".git") == []
    assert sorted(os.listdir(place)) == ["outside", "tree"]
