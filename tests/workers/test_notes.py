"""What an agent leaves for the next attempt: the tail of a plain file, whatever lies there."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from workers.notes import MOST_CHARACTERS, NAME, make_folder, read


def write(folder: Path, data: bytes) -> Path:
    make_folder(folder)
    (folder / NAME).write_bytes(data)
    return folder


def test_short_notes_come_whole(tmp_path: Path) -> None:
    """Without the blank lines around them; and a folder without notes has none."""
    assert read(write(tmp_path / "a", b"\n- dead end\n- \xc3\xa9\n\n")) == "- dead end\n- é"
    make_folder(tmp_path / "b")
    assert read(tmp_path / "b") == ""
    assert read(tmp_path / "nowhere") == ""


def test_long_notes_are_cut_at_the_front(tmp_path: Path) -> None:
    """The end is what was learnt last; in all it is never more than the limit, and it says that it was cut."""
    told = read(write(tmp_path, ("é" * 20_000 + "the last word").encode()))
    assert told.endswith("the last word")
    assert told.startswith("[… the beginning is left out …]\n")
    assert len(told) <= MOST_CHARACTERS


def test_what_is_no_plain_file_is_no_notes(tmp_path: Path) -> None:
    """A link leads nowhere, a FIFO holds nobody up, a folder is not read."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for name, make in (("link", lambda path: path.symlink_to(secret)), ("fifo", os.mkfifo), ("folder", Path.mkdir)):
        folder = tmp_path / name
        make_folder(folder)
        make(folder / NAME)
        assert read(folder) == ""


@given(st.binary(max_size=30_000))
def test_any_bytes_are_text(data: bytes) -> None:
    """Never too long, never an error, and nothing that could not be sent as JSON."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        told = read(write(Path(folder), data))
    assert len(told) <= MOST_CHARACTERS
    assert "\0" not in told
    told.encode("utf-8")
