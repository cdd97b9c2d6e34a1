"""State files that we replaced and that somebody may still be writing to (protocol rule 19).

Whoever opened the file before our replace, and saves in place after it, writes to a file that no longer has a name.
It is kept open, and looked at again, until it has been quiet for one tick.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Replaced"]


@dataclass
class _Watched:
    descriptor: int
    known: set[bytes]
    waiting: bytes | None = None  # written since, and perhaps not wholly yet


class Replaced:
    """The replaced files that are still looked at."""

    def __init__(self) -> None:
        self._watched: list[_Watched] = []

    def open(self, path: Path) -> int | None:
        """Open what is about to be replaced; None where there is nothing, or no descriptor to be had."""
        with suppress(OSError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        return None

    def watch(self, descriptor: int | None, *known: bytes) -> None:
        """Look at an opened file from now on; `known` are contents that have been taken in."""
        if descriptor is not None:
            self._watched.append(_Watched(descriptor, set(known)))

    def late(self) -> Iterator[bytes]:
        """Return what was written late: once it is the same at two looks, so that no half of it is taken for all."""
        watched, self._watched = self._watched, []
        for file in watched:
            found = _read(file.descriptor)
            if found in file.known:
                os.close(file.descriptor)
                continue
            self._watched.append(file)
            if found == file.waiting:
                file.known.add(found)
                yield found
            file.waiting = found

    def close(self) -> None:
        """Stop looking."""
        for file in self._watched:
            os.close(file.descriptor)
        self._watched = []


def _read(descriptor: int) -> bytes:
    parts, offset = [], 0
    while part := os.pread(descriptor, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
