"""A display that keeps what it was told."""

from dispatcher.shown.display import Snapshot


class Quiet:
    """Notes and statuses, in order."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.statuses: list[str] = []

    def note(self, line: str) -> None:
        """Keep a note."""
        self.notes.append(line)

    def status(self, line: str) -> None:
        """Keep a status."""
        self.statuses.append(line)

    def update(self, snapshot: Snapshot) -> None:
        """Nothing to see."""

    def close(self) -> None:
        """Nothing to leave."""
