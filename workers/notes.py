"""A unit's notes: what an agent writes down in its scratch folder, for the next attempt at the unit.

The folder is the agent's, so whatever lies there is only read as the tail of a plain file, never followed or obeyed.
"""

import os
import stat
from pathlib import Path

from .errors import WorkersError

__all__ = ["MOST_CHARACTERS", "NAME", "VARIABLE", "make_folder", "read"]

NAME = "notes.md"
VARIABLE = "OVERNIGHT_SCRATCH"
"""The folder's path, in the environment of an agent's commands."""

MOST_CHARACTERS = 4_000
_CUT = "[… the beginning is left out …]\n"


def make_folder(scratch: Path) -> None:
    """Make the folder, for its owner alone. Raises OSError."""
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)


def read(scratch: Path) -> str:
    """Return the last characters of the notes; "" where there are none that can be read."""
    try:
        data, is_whole = _tail(scratch / NAME, 4 * MOST_CHARACTERS)  # a character has at most four bytes
    except (OSError, _NoFileError):
        return ""
    text = data.decode("utf-8", errors="replace").replace("\0", "").strip()
    if is_whole and len(text) <= MOST_CHARACTERS:
        return text
    return _CUT + text[len(_CUT) - MOST_CHARACTERS :].lstrip("\ufffd")


class _NoFileError(WorkersError):
    """Something else than a plain file stands in its place."""


def _tail(path: Path, most: int) -> tuple[bytes, bool]:
    """Return the last `most` bytes, and whether that is all; a link or a FIFO must not lead or hold us."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _NoFileError(f"{path} is not a plain file")
        file.seek(max(0, found.st_size - most))
        return file.read(most), found.st_size <= most
