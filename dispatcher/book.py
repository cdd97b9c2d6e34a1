"""The book: the journal and what it says, always in step. Whoever notes something has it flushed and folded in."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dispatcher.journal import Journal
from dispatcher.ledger import Ledger

__all__ = ["Book"]


@dataclass(frozen=True)
class Book:
    """One night's journal, opened by its one writer, with its ledger."""

    journal: Journal
    ledger: Ledger

    @classmethod
    def open(cls, path: Path) -> Self:
        """Take the right to write. Raises EngineError."""
        journal = Journal.open(path)
        return cls(journal, Ledger().extend(journal.entries))

    def note(self, *entries: Any) -> None:
        """Journal entries: they are durable when this returns (rule 3). Raises EngineError when the disk is full."""
        self.journal.write(*entries)
        self.ledger.extend(entries)

    def close(self) -> None:
        """Give up the right to write."""
        self.journal.close()
