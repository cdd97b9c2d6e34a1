"""The keeper: the one writer of the state file (spec S6). It reads fresh, takes a person's edits in, and writes.

The text is journalled before it is written, and an edit is compared with the revision that its file names (protocol
rules 19, 20).
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dispatcher import edits
from dispatcher.book import Book
from dispatcher.errors import StateFileError
from dispatcher.journal import Edited, Written
from dispatcher.ledger import Ledger
from dispatcher.replaced import Replaced
from dispatcher.revisions import SHORT, between
from dispatcher.state import Bucket, State, parse, read_text, render
from worktrees.files import exchange_atomic, left_over

__all__ = ["Keeper"]


class Keeper:
    """The state as it is, in step with the file and the journal."""

    def __init__(self, path: Path, book: Book, state: State) -> None:
        """`state` is what the journal's last revision says, or the first state of a new night."""
        self.path = path
        self.state = state
        self._written = state  # what the journal's last revision says
        self._journalled = book.ledger.texts.get(book.ledger.rev)  # what the current revision stands for
        self._book = book
        self._last_seen: str | None = None  # the file's text that has been taken in already; None: it is gone
        self.broken: StateFileError | None = None
        self._replaced = Replaced()
        self._put_back: bytes | None = None  # what slipped in and could not be read, as we left it

    def take_in(self) -> bool:
        """Read the file fresh and obey what a person changed in it; False while it cannot be read.

        Nothing is overwritten while it is broken: it goes on when the file is mended. Called once a tick: what somebody
        wrote late into a file that we had replaced is taken in, too (rule 19).
        """
        for late in self._replaced.late():
            if self._put_back is not None and _content(self.path) == self._put_back:
                exchange_atomic(self.path, late)  # the whole of what was put back half
            else:
                self._take_what_slipped_in(late)
        return self._read_fresh()

    def _read_fresh(self) -> bool:
        try:
            text = None if self._is_gone() else read_text(self.path)
            if text is not None and text != self._last_seen:
                self._obey(parse(text, self.path))
            self._last_seen, self.broken, self._put_back = text, None, None
        except StateFileError as error:
            self.broken = error
        return self.broken is None

    def _is_gone(self) -> bool:
        """Tell whether somebody deleted it, which asks for nothing: the next write brings it back."""
        return not os.path.lexists(self.path) and self.path.parent.is_dir()

    def take_left_over(self) -> None:
        """Take in what a run that was killed while it wrote has left beside the file, and delete it (rule 19).

        That is a text of its own, whole or half, which the journal has; or a person's edit that slipped in, and that
        it had no time to obey.
        """
        found = left_over(self.path)
        for path in found:
            with suppress(StateFileError, UnicodeDecodeError, FileNotFoundError):
                text = path.read_text(encoding="utf-8")
                theirs = parse(text, path)
                if not self._book.ledger.texts.get(theirs.rev, "").startswith(text):
                    self._obey(theirs)
        if found:
            self.update(lambda state: state)
        if self.broken is None:  # else nothing was written yet: the next run comes back to it
            for path in found:
                path.unlink(missing_ok=True)

    def update(self, change: Callable[[State], State]) -> None:
        """Apply `change` to the state as it is now, and write what comes out under the next revision.

        Nothing is written where nothing changed, or while the file is broken. What a person made of a revision gets
        one of its own, else the next comparison would find their requests again. Raises EngineError or DiskError when
        the disk is full; the old content then stays.
        """
        if not self._read_fresh():
            return
        wanted = change(self.state)
        if wanted == self.state and self._last_seen == render(self.state) == self._journalled:
            return
        stamped = wanted.stamped(self._book.ledger.night, self._book.ledger.rev + 1)
        seen, text = self._last_seen, render(stamped)
        self._book.note(self._entry(stamped, text))
        self.state = self._written = stamped
        self._journalled = text
        self._last_seen = text
        if self._exchange(text.encode(), (seen or "").encode()) not in (b"", (seen or "").encode()):
            self.update(lambda state: state)  # nobody else may come to write it

    def _exchange(self, text: bytes, seen: bytes) -> bytes:
        """Replace the file, obey what slipped in before, and look at that once more one tick later (rule 19)."""
        opened = self._replaced.open(self.path)
        replaced = seen

        def take(found: bytes) -> None:
            nonlocal replaced
            replaced = found
            if found not in (b"", seen):
                self._take_what_slipped_in(found)

        try:
            exchange_atomic(self.path, text, taken=take)
        finally:
            self._replaced.watch(opened, seen, replaced)
        return replaced

    def _entry(self, state: State, text: str) -> Written:
        """Return what is journalled of a state: its text, or for a long one what changed in it."""
        moves, texts = _moves(self._written, state), self._book.ledger.texts
        if len(text) <= SHORT or texts.is_full_due(state.rev):
            return Written(rev=state.rev, text=text, moves=moves)
        change = between(texts[state.rev - 1], text)
        is_small = sum(len(line) for one in change for line in one.put) < len(text) / 2
        return Written(rev=state.rev, text="" if is_small else text, moves=moves, change=change if is_small else ())

    def _take_what_slipped_in(self, theirs: bytes) -> None:
        """Obey an edit that came between our reading and our writing (rule 19).

        What cannot be read as a state file is put back for its owner to mend.
        """
        try:
            self._obey(parse(theirs.decode(), self.path))
        except (StateFileError, UnicodeDecodeError):
            exchange_atomic(self.path, theirs)
            self._put_back = theirs
            self._read_fresh()

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


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _unknown_revision(theirs: State, ledger: Ledger) -> str:
    return (
        f"names night {theirs.night or '(none)'}, rev {theirs.rev}, which this night's journal never wrote "
        f"(it is at night {ledger.night}, rev {ledger.rev}); restore the comment line"
    )


def _moves(before: State, after: State) -> list[str]:
    """Return who was moved, also within a bucket: another note is another reason to be there."""
    was, now = _placed(before, after), _placed(after, before)
    changed = [unit for unit in {**was, **now} if was.get(unit) != now.get(unit)]
    return [f"{unit}: {was.get(unit, ('new',))[0]} → {now.get(unit, ('gone',))[0]}" for unit in changed]


def _placed(state: State, other: State) -> dict[str, tuple[str, str]]:
    """Return bucket and note of every unit that does not stand in `other` just so."""
    found: dict[str, tuple[str, str]] = {}
    for bucket in Bucket:
        mine, yours = state.entries(bucket), other.entries(bucket)
        same = _common(mine, yours)  # what did not move is the same object, and most of it stands at either end
        back = _common(mine[same:][::-1], yours[same:][::-1])
        there = {id(entry) for entry in yours[same : len(yours) - back]}
        found.update({e.id: (str(bucket), e.note) for e in mine[same : len(mine) - back] if id(e) not in there})
    return found


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many objects both begin with."""
    if one is other:
        return len(one)
    pairs = zip(one, other, strict=False)
    return next((place for place, (mine, yours) in enumerate(pairs) if mine is not yours), min(len(one), len(other)))


def _in_words(outcome: edits.Applied) -> Edited:
    obeyed = outcome.obeyed
    return Edited(
        obeyed=[str(effect) for effect in obeyed],
        refused=[refusal.reason for refusal in outcome.refused],
        retried=[effect.id for effect in obeyed if isinstance(effect, edits.Retried)],
        waived=[effect.id for effect in obeyed if isinstance(effect, edits.Waived)],
        cancelled=[effect.id for effect in obeyed if isinstance(effect, edits.Cancelled)],
        adopted=[effect.id for effect in obeyed if isinstance(effect, edits.Adopted)],
    )
