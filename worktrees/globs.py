"""Patterns for paths, as in a .gitignore, without negation. Pure.

Without a slash a pattern matches a name at any depth (`conftest.py`, `*.ini`); with one it starts at the root
(`tests/data/*.json`, `/pytest.ini`). `*` and `?` stop at a slash, `**` between slashes does not. What names a
directory covers everything below it (`tests`, `tests/`, `tests/**`); with a slash at its end, only that.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence


def is_match(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path relative to the root (with slashes) matches one of the patterns."""
    return any(to_regex(pattern).fullmatch(path) for pattern in patterns)


@functools.lru_cache(maxsize=1_000)
def to_regex(pattern: str) -> re.Pattern[str]:
    """Return the regular expression for a whole path. An empty pattern matches nothing."""
    body = pattern.rstrip("/")
    if not body.strip("/"):
        return re.compile(r"(?!)")
    is_directory = pattern.endswith("/")
    is_anchored = "/" in body
    parts = body.strip("/").split("/")
    below = "/.+" if is_directory else "(?:/.+)?"
    regex = ("" if is_anchored else "(?:.+/)?") + _parts(parts) + below
    return re.compile(regex, re.DOTALL)


def _parts(parts: list[str]) -> str:
    words = []
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            words.append(".+" if is_last else "(?:.+/)?")
        else:
            words.append(_segment(part) + ("" if is_last else "/"))
    return "".join(words)


def _segment(part: str) -> str:
    """Translate one name between slashes."""
    words, index = [], 0
    while index < len(part):
        char = part[index]
        if char == "*":
            words.append("[^/]*")
        elif char == "?":
            words.append("[^/]")
        elif char == "\\" and index + 1 < len(part):
            index += 1
            words.append(re.escape(part[index]))
        elif char == "[" and (end := _class_end(part, index)) > 0:
            words.append(_class(part[index + 1 : end]))
            index = end
        else:
            words.append(re.escape(char))
        index += 1
    return "".join(words)


def _class_end(part: str, start: int) -> int:
    """Return where the character class that opens at `start` closes, -1 if it never does."""
    first = start + 1 + (part[start + 1 : start + 2] in ("!", "^"))
    return part.find("]", first + 1)


def _class(content: str) -> str:
    negated = content[:1] in ("!", "^")
    inner = content[1:] if negated else content
    escaped = "".join(char if char == "-" else re.escape(char) for char in inner)
    try:
        re.compile(f"[{escaped}]")
    except re.error:  # such as z-a: matches nothing, as in git
        return "(?!)"
    return f"(?!/)[{'^' if negated else ''}{escaped}]"
