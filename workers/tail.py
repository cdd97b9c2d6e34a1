"""A log that somebody else is writing, followed record by record. It reads, and never holds up the writer."""

from pathlib import Path

from .errors import LogError
from .log import Record, decode

__all__ = ["Tail"]


class Tail:
    """Where a reader is in a growing log. A missing file is a log that has not begun."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._count = 0

    def new(self) -> list[Record]:
        """Return the whole records that came since the last call; what is still being written waits. Raises LogError.

        A line that cannot be read may be torn, and the next owner will set it aside: nothing behind it is shown.
        """
        found: list[Record] = []
        for line in self._lines():
            try:
                record = decode(line)
            except (ValueError, KeyError, TypeError):
                break
            if record.seq != self._count:
                raise LogError(self._path, f"has seq {record.seq} where {self._count} was due")
            found.append(record)
            self._offset += len(line) + 1
            self._count += 1
        return found

    def _lines(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LogError(self._path, f"cannot be read: {error.strerror}") from error
        return data.split(b"\n")[:-1]
