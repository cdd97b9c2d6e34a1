"""The drop-box: never half visible, in order, and no file can hold up the others."""

import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher import dropbox
from dispatcher.dropbox import (
    Answer,
    Approve,
    Block,
    Cancel,
    Deny,
    Pause,
    Request,
    Resume,
    Retry,
    Stop,
    Tell,
    Unblock,
    done,
    drop,
    peek,
    pending,
    was_refused,
)
from dispatcher.errors import EngineError


def rejected(folder: Path) -> dict[str, str]:
    """Return what was put aside, with the reasons."""
    aside = folder / "rejected"
    return {path.name.removesuffix(".reason"): path.read_text().strip() for path in aside.glob("*.reason")}


def test_what_is_dropped_is_pending_until_done(tmp_path: Path) -> None:
    """Each kind comes back as it was, in the order of dropping, until it is done; done twice is done."""
    folder = tmp_path / "a" / "dropbox"
    assert pending(folder) == []
    asked: list[Request] = [
        Answer(unit="billing-api", text="Yes,\nkeep it ✔"),
        Approve(unit="a"),
        Deny(unit="a", reason="no"),
        Tell(unit="a", text="look at b.py"),
        Retry(unit="b"),
        Cancel(unit="c"),
        Block(unit="c", reason="not tonight"),
        Unblock(unit="c"),
        Pause(),
        Resume(),
        Stop(),
    ]
    paths = [drop(folder, request) for request in asked]
    assert pending(folder) == list(zip(paths, asked, strict=True))
    for path in paths[:-1]:
        done(path)
        done(path)
    assert [request for _, request in pending(folder)] == [asked[-1]]


def test_files_are_private_and_whole(tmp_path: Path) -> None:
    """A dropped file is one line of JSON with version, kind, id and time, for the owner alone."""
    path = drop(tmp_path / "d", Retry(unit="a"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    data = json.loads(path.read_text())
    assert (data["version"], data["kind"], data["unit"]) == (1, "retry", "a")
    assert path.name == f"{data['id']}.json"
    assert data["at"].endswith("Z")
    assert [child.name for child in path.parent.iterdir()] == [path.name]


@given(st.integers(1, 30))
def test_ids_are_unique_and_in_the_order_of_time(count: int) -> None:
    """Requests made one after the other sort in that order."""
    ids = [Stop().id for _ in range(count)]
    assert len(set(ids)) == count
    assert sorted(ids, key=lambda one: one.split("-")[0]) == ids


def _drop_many(folder: Path, count: int) -> None:
    for number in range(count):
        drop(folder, Tell(unit=f"u{number}", text="x" * 5000))


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """While two processes drop, every look finds only whole requests, and in the end all of them."""
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_drop_many, args=(tmp_path, 40)) for _ in range(2)]
    for writer in writers:
        writer.start()
    seen: set[str] = set()
    while any(writer.is_alive() for writer in writers):
        seen |= {request.id for _, request in pending(tmp_path)}
    for writer in writers:
        writer.join()
    seen |= {request.id for _, request in pending(tmp_path)}
    assert len(seen) == 80
    assert rejected(tmp_path) == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "JSON"),
        (b'{"version": 1, "kind": "answ', "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 5000, "JSON"),
        (b'{"kind": "launch"}', "launch"),
        (b"[1]", ""),
        (b'{"kind": "retry", "unit": "../x"}', "unit"),
        (b'{"kind": "retry", "unit": "a", "force": true}', "force"),
        (b'{"kind": "answer", "unit": "a", "text": " "}', "text"),
        (b'{"kind": "stop", "version": 2}', "version"),
        (b'{"kind": "stop", "id": "00000000000000000001-0000000a"}', "is it a copy?"),
        (b'{"kind": "stop"}' + b" " * 1024 * 1024, "larger than"),
    ],
)
def test_what_is_no_request_is_put_aside(tmp_path: Path, content: bytes, reason: str) -> None:
    """A broken file goes to rejected/ with its reason, once, and the requests around it are still found."""
    before = drop(tmp_path, Retry(unit="a"))
    bad = tmp_path / "00000000000000000000-00000000.json"
    bad.write_bytes(content)
    assert [path for path, _ in pending(tmp_path)] == [before]
    assert (tmp_path / "rejected" / bad.name).read_bytes() == content
    assert reason in rejected(tmp_path)[bad.name]
    assert not bad.exists()


def test_strange_files_neither_hang_nor_lead_elsewhere(tmp_path: Path) -> None:
    """A FIFO, a link, a folder and a device's name are put aside without being waited for or followed."""
    secret = drop(tmp_path / "other", Stop())
    folder = tmp_path / "d"
    good = drop(folder, Stop())
    os.mkfifo(folder / "1.json")
    (folder / secret.name).symlink_to(secret)
    (folder / "3.json").mkdir()
    assert [path for path, _ in pending(folder)] == [good]
    assert set(rejected(folder)) == {"1.json", secret.name, "3.json"}
    assert secret.exists()


def test_whoever_only_looks_moves_nothing(tmp_path: Path) -> None:
    """A look finds the requests and leaves what is none for the dispatcher to put aside, which then says why."""
    assert peek(tmp_path / "nowhere") == []
    good = Retry(unit="a")
    drop(tmp_path, good)
    bad = Stop()
    (tmp_path / f"{bad.id}.json").write_text("broken")
    assert peek(tmp_path) == [good]
    assert was_refused(tmp_path, bad) == ""
    assert not (tmp_path / "rejected").exists()
    pending(tmp_path)
    assert "JSON" in was_refused(tmp_path, bad)
    assert was_refused(tmp_path, good) == ""


def test_two_rejects_of_one_name_are_both_kept(tmp_path: Path) -> None:
    """What is put aside never replaces what was put aside before."""
    for content in ("one", "two"):
        (tmp_path / "x.json").write_text(content)
        assert pending(tmp_path) == []
    kept = {path.read_text() for path in (tmp_path / "rejected").glob("*.json")}
    assert kept == {"one", "two"}


def test_files_being_written_are_passed_over(tmp_path: Path) -> None:
    """Hidden, temporary and other files are neither read nor moved."""
    for name in (".x.json", ".x.json.123.tmp", "notes.txt"):
        (tmp_path / name).write_text("half")
    assert pending(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 3


def test_a_reject_that_cannot_be_moved_blocks_nothing(tmp_path: Path) -> None:
    """With a file in the place of rejected/ the broken request stays, and the good one is found."""
    (tmp_path / "rejected").write_text("in the way")
    bad = tmp_path / "0.json"
    bad.write_text("broken")
    good = drop(tmp_path, Stop())
    assert [path for path, _ in pending(tmp_path)] == [good]
    assert bad.exists()


def test_a_good_request_survives_trouble_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No free descriptors is not the file's fault: it stays where it is and is found at the next look."""
    path = drop(tmp_path, Stop())

    def no_descriptors(*_args: object, **_kwargs: object) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(dropbox.os, "open", no_descriptors)
        assert pending(tmp_path) == []
    assert [found for found, _ in pending(tmp_path)] == [path]


def test_a_folder_that_cannot_be_used_is_an_engine_error(tmp_path: Path) -> None:
    """A file in the place of the drop-box is named, for dropping and for looking."""
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot be made"):
        drop(tmp_path / "file", Stop())
    with pytest.raises(EngineError, match="cannot be read"):
        pending(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    with pytest.raises(EngineError, match="cannot be deleted"):
        done(tmp_path / "folder")
