"""Long tool results are shortened before they are first sent: head and tail, the whole on disk (spec A22)."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from workers.blocking import blocking
from workers.session.events import Block
from workers.tools import Outcome

from .hook import Hook
from .kept import Kept, NotKept

__all__ = ["MOST_CHARACTERS", "Shorten", "shortened"]

MOST_CHARACTERS = 16_000
"""About 4,000 tokens, and every later call carries them: what a model reads of a log is its beginning and its end."""

_ESCAPE_STARTED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*)?\Z")
_LOOK_BACK = 64  # characters: no escape sequence and no honest cluster of marks is longer


class Shorten(Hook):
    """Keeps what a command said in the unit's scratch folder, and tells the model its two ends."""

    def __init__(self, scratch: Path) -> None:
        self._kept = Kept(scratch)

    async def outcome(self, call: Block, outcome: Outcome) -> Outcome:
        """Return the outcome with no more text than MOST_CHARACTERS; looks at files are the editor's to limit."""
        is_look = call["input"].get("command") == "view"  # the file itself is the whole, and a range shows any of it
        if len(outcome.content) <= MOST_CHARACTERS or is_look:
            return outcome
        return replace(outcome, content=await blocking(self._shorten, outcome.content))

    def _shorten(self, text: str) -> str:
        try:
            told = f"the whole is in {self._kept.put(text)}: read it with bash (grep, sed -n)"
        except NotKept as error:
            told = str(error)
        return shortened(text, lambda left: f"[… {left:,} characters left out; {told} …]")


def shortened(text: str, note: Callable[[int], str], most: int = MOST_CHARACTERS) -> str:
    """Return the text's head and tail with a note of how many characters are missing between them.

    Both end at a line's end where there is one near, and never within a character, an escape sequence or a cluster.
    """
    if len(text) <= most:
        return text
    half = most // 2
    head = _end_of_head(text, half)
    tail = _start_of_tail(text, len(text) - half)
    front = text[:head].removesuffix("\n")
    return f"{front}\n{note(tail - len(front))}\n{text[tail:]}"


def _end_of_head(text: str, at: int) -> int:
    line = text.rfind("\n", at // 2, at) + 1
    return line or _boundary(text, at)


def _start_of_tail(text: str, at: int) -> int:
    line = text.find("\n", at, at + (len(text) - at) // 2) + 1
    return line or _boundary(text, at)


def _boundary(text: str, at: int) -> int:
    """Return the nearest place at or before `at` where the text may be cut."""
    for place in range(at, max(at - _LOOK_BACK, 0), -1):
        if not _joins(text[place - 1], text[place]) and not _ESCAPE_STARTED.search(
            text, max(0, place - _LOOK_BACK), place
        ):
            return place
    return at


def _joins(before: str, after: str) -> bool:
    """Tell whether two characters are one to a reader: combining marks, joined emoji, half of a surrogate pair."""
    return (
        unicodedata.category(after)[0] == "M"
        or "\u200d" in (before, after)
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
        or (before, after) == ("\r", "\n")
    )
