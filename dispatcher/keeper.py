"""The keeper: the one writer of the state file (spec S6). It reads fresh, takes a person's edits in, and writes.

The text is journalled before it is written, and an edit is compared with the revision that its file names (protocol
rules 19, 20).
"""

from collections.abc import Callable
from pathlib import Path

from dispatcher import edits
from dispatcher.book import Book
from dispatcher.errors import StateFileError
from dispatcher.journal import Edited, Written
from dispatcher.ledger import Ledger
from dispatcher.state import Bucket, State, parse, read, render
from worktrees.files import exchange_atomic

__all__ = ["Keeper"]


class Keeper:
    """The state as it is, in step with the file and the journal."""

    def __init__(self, path: Path, book: Book, state: State) -> None:
        """`state` is what the journal's last revision says, or the first state of a new night."""
        self.path = path
        self.state = state
        self._book = book
        self._last_seen = ""  # the file's text that has been taken in already
        self.broken: StateFileError | None = None

    def take_in(self) -> bool:
        """Read the file fresh and obey what a person changed in it; False while it cannot be read.

        Nothing is overwritten while it is broken: it goes on when the file is mended.
        """
        try:
            theirs, text = read(self.path)
            if text != self._last_seen:
                self._obey(theirs)
            self._last_seen, self.broken = text, None
        except StateFileError as error:
            self.broken = error
        return self.broken is None

    def update(self, change: Callable[[State], State]) -> None:
        """Apply `change` to the state as it is now, and write what comes out under the next revision.

        Nothing is written where nothing changed, or while the file is broken. Raises EngineError or DiskError when
        the disk is full; the old content then stays.
        """
        if not self.take_in():
            return
        wanted = change(self.state)
        if wanted == self.state and self._last_seen == render(self.state) == self._journalled:
            return
        moves = _moves(self.state, wanted)
        stamped = wanted.stamped(self._book.ledger.night, self._book.ledger.rev + 1)
        seen, text = self._last_seen, render(stamped)
        self._book.note(Written(rev=stamped.rev, text=text, moves=moves))
        self.state = stamped
        self._last_seen = text
        replaced = exchange_atomic(self.path, text.encode())
        if replaced not in (b"", seen.encode()):
            self._take_what_slipped_in(replaced)
            self.update(lambda state: state)  # nobody else may come to write it

    @property
    def _journalled(self) -> str | None:
        """The text that the current revision stands for.

        What a person made of it needs a revision of its own, else the next comparison finds their requests again.
        """
        return self._book.ledger.texts.get(self._book.ledger.rev)

    def _take_what_slipped_in(self, theirs: bytes) -> None:
        """Obey an edit that came between our reading and our writing (rule 19).

        What cannot be read as a state file is put back for its owner to mend.
        """
        try:
            self._obey(parse(theirs.decode(), self.path))
        except (StateFileError, UnicodeDecodeError):
            exchange_atomic(self.path, theirs)
            self.take_in()

    def _obey(self, theirs: State) -> None:
        """Compare a file with the revision that it names, and apply what that asks for to the state as it is."""
        base_text = self._book.ledger.texts.get(theirs.rev) if theirs.night == self._book.ledger.night else None
        if base_text is None:
            raise StateFileError(_unknown_revision(theirs, self._book.ledger), path=self.path, line=2)
        asked = edits.requests(parse(base_text), theirs)
        if not asked:
            return
        waived = {unit for unit, facts in self._book.ledger.units.items() if facts.waived and facts.merged is None}
        outcome = edits.apply(asked, self.state, waived=waived)
        self._book.note(_in_words(outcome))
        self.state = outcome.state


def _unknown_revision(theirs: State, ledger: Ledger) -> str:
    return (
        f"names night {theirs.night or '(none)'}, rev {theirs.rev}, which this night's journal never wrote "
        f"(it is at night {ledger.night}, rev {ledger.rev}); restore the comment line"
    )


def _moves(before: State, after: State) -> list[str]:
    """Return who was moved, also within a bucket: another note is another reason to be there."""
    was = {unit: bucket for bucket in Bucket for unit in before.ids(bucket)}
    now = {unit: bucket for bucket in Bucket for unit in after.ids(bucket)}
    noted = {unit for unit in was if unit in now and before.note_of(unit) != after.note_of(unit)}
    changed = [unit for unit in {**was, **now} if unit in noted or was.get(unit) != now.get(unit)]
    return [f"{unit}: {was.get(unit, 'new')} → {now.get(unit, 'gone')}" for unit in changed]


def _in_words(outcome: edits.Outcome) -> Edited:
    obeyed = outcome.obeyed
    return Edited(
        obeyed=[str(effect) for effect in obeyed],
        refused=[refusal.reason for refusal in outcome.refused],
        retried=[effect.id for effect in obeyed if isinstance(effect, edits.Retried)],
        waived=[effect.id for effect in obeyed if isinstance(effect, edits.Waived)],
        cancelled=[effect.id for effect in obeyed if isinstance(effect, edits.Cancelled)],
        adopted=[effect.id for effect in obeyed if isinstance(effect, edits.Adopted)],
    )
