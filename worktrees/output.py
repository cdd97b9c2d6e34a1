"""The output of a command in bounded memory: its head and its tail."""

from __future__ import annotations


class HeadAndTail:
    """Keeps the first and the last `limit // 2` bytes of what is fed; `total` counts all of them."""

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._tail_limit = max(limit, 0) // 2
        self._head_limit = max(limit, 0) - self._tail_limit
        self._head = bytearray()
        self._tail = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes; older ones in the middle are forgotten."""
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= self._tail_limit:
            self._tail[:] = data[len(data) - self._tail_limit :]
            return
        self._tail += data
        if len(self._tail) > 4 * self._tail_limit:  # now and then, so that small writes stay cheap
            del self._tail[: -self._tail_limit]

    @property
    def is_truncated(self) -> bool:
        """Whether bytes were left out."""
        return self.total > self._head_limit + self._tail_limit

    def text(self) -> str:
        """Return what was kept, with a line that says how much is missing between head and tail."""
        if not self.is_truncated:
            return bytes(self._head + self._tail).decode(errors="replace")
        tail = self._tail[len(self._tail) - self._tail_limit :]
        missing = self.total - len(self._head) - len(tail)
        head = self._head.decode(errors="replace")
        return f"{head}\n[… {missing} bytes left out …]\n{tail.decode(errors='replace')}"
