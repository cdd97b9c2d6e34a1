"""Whole tool results in the unit's scratch folder: numbered files, the oldest of which give way to new ones.

The folder is the agent's too, so no symbolic link in it is ever followed.
"""

import os
import re
import stat
from pathlib import Path, PurePosixPath

from workers.errors import ToolError, WorkersError
from workers.notes import VARIABLE
from workers.tools import beneath

__all__ = ["MOST_BYTES", "Kept", "NotKept"]

MOST_BYTES = 50 * 1024 * 1024
"""Of one unit, all its attempts together: a night of units that test and test again must not fill the disk."""

_FOLDER = PurePosixPath("results")
_NAME = re.compile(r"([1-9][0-9]{0,8})\.txt")


class NotKept(WorkersError):
    """The whole could not be written; the text says why."""


class Kept:
    """The files `results/1.txt`, `results/2.txt` … below a scratch folder. Blocking; one owner at a time."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def put(self, text: str) -> str:
        """Write a text whole or not at all, and return the path as the agent's commands can use it. Raises NotKept.

        It is not flushed to the disk: after a power cut the command can be run again.
        """
        data = text.encode("utf-8", errors="replace")
        if len(data) > MOST_BYTES:
            raise NotKept(f"the whole is too large to keep, {len(data):,} bytes")
        try:
            number = self._make_room(len(data))
            beneath.write_bytes(self._scratch, _FOLDER / f"{number}.txt", data, new=True)
        except OSError as error:
            raise NotKept(f"the whole could not be kept: {error.strerror}") from error
        except ToolError as error:
            raise NotKept(f"the whole could not be kept: {error}") from error
        return f"${VARIABLE}/{_FOLDER}/{number}.txt"

    def _make_room(self, needed: int) -> int:
        """Delete the oldest results until `needed` bytes more are within bounds; return the next number."""
        with beneath.directory(self._scratch, _FOLDER, create=True) as folder:
            sizes = _sizes(folder)
            room = MOST_BYTES - needed - sum(sizes.values())
            for number in sorted(sizes):
                if room >= 0:
                    break
                os.unlink(f"{number}.txt", dir_fd=folder)
                room += sizes[number]
        return max(sizes, default=0) + 1


def _sizes(folder: int) -> dict[int, int]:
    """Return the results' sizes in bytes by number; whatever else lies there is not ours."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            name = _NAME.fullmatch(entry.name)
            if name is None:
                continue
            info = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(info.st_mode):
                found[int(name[1])] = info.st_size
    return found
