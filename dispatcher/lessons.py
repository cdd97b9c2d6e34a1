"""What an attempt is told of those before it: a line of each, and all that is known of the last one. Pure."""

from collections.abc import Sequence

from dispatcher.ledger import Lesson, UnitFacts

__all__ = ["told"]

_SAID = 1_000
_SHOWN = 3_000
"""Characters of the agent's last words and of verify's output: what fails is said at its end."""


def told(facts: UnitFacts) -> tuple[str, ...]:
    """Return the notes of an order, oldest first; the last attempt's with its agent's words and verify's output."""
    notes = list(facts.notes)
    if not facts.lessons:
        return tuple(notes)
    last = facts.lessons[-1]
    line = f"attempt {last.attempt}: {last.note}"
    before = notes[:-1] if notes and notes[-1] == line else notes  # a blocked attempt has no line of its own
    return (*before, "\n".join([line, *_details(last)]))


def _details(lesson: Lesson) -> Sequence[str]:
    parts = []
    if lesson.summary.strip():
        parts.append(f"It ended with the words:\n{_indented(lesson.summary.strip()[:_SAID])}")
    if lesson.output.strip():
        parts.append(f"The end of verify's output:\n{_indented(lesson.output.strip()[-_SHOWN:])}")
    return [_indented(part) for part in parts]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
