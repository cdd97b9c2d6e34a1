"""The words that stand for a document which the harness has trimmed out of a call, and how to know them again."""

import re

__all__ = ["is_marked", "trimmed_mark"]

_MARK = re.compile(r"\[… [\d,]+ more characters, .*; the harness trimmed this call after it ran\]")


def trimmed_mark(characters: int, where: str) -> str:
    """Return what stands for that many characters; `where` says what became of them."""
    return f"[… {characters:,} more characters, {where}; the harness trimmed this call after it ran]"


def is_marked(text: str) -> bool:
    """Tell whether a text has such a mark: a model that imitates its own trimmed calls would write it into a file."""
    return _MARK.search(text) is not None
