"""Project memory: AGENTS.md and CLAUDE.md as they are in the commit that a unit starts from (spec S15).

Never the branch's own version: a unit must not rewrite what it is told. The same for all units of one base, so that
they share its place in the provider's cache.
"""

import re
import threading
from functools import lru_cache

from worktrees.repository import Repository

__all__ = ["MEMORY_FILES", "MOST_BYTES", "project_memory"]

MEMORY_FILES = ("AGENTS.md", "CLAUDE.md")
"""At the repository's top, in the order in which an agent reads them."""

MOST_BYTES = 32 * 1024
"""Of both together: they go out with every call of every unit."""

_LARGEST = 1024 * 1024  # bytes of a file that is read at all
_LINK = "120000"
_IMPORT = re.compile(r"^\s*(?:[-*]\s+)?@(~?[\w./-]+)\s*$", re.MULTILINE)
_reading = threading.Lock()


def project_memory(repository: Repository, base: str) -> str:
    """Return what the commit `base` has to say to an agent; "" where it says nothing. Blocks. Raises WorktreesError.

    Read once a process: units that start together ask for the same commit.
    """
    with _reading:
        return _read(repository, base)


@lru_cache(maxsize=64)
def _read(repository: Repository, base: str) -> str:
    found = repository.blobs(base, *MEMORY_FILES)
    texts: dict[str, str] = {}
    notes: list[str] = []
    for name in (name for name in MEMORY_FILES if name in found):
        mode, size = found[name]
        if mode == _LINK:
            notes += _of_link(repository, base, name)
        elif size > _LARGEST:
            notes.append(f"({name} has {size:,} bytes and is left out.)")
        else:
            text = (repository.read_text(base, name) or "").replace("\0", "").strip()
            if text and text not in texts.values():
                texts[name] = text
    return joined(texts, notes)


def _of_link(repository: Repository, base: str, name: str) -> list[str]:
    """Return what to say of a link: nothing where it leads to the other file, which is read anyway."""
    target = (repository.read_text(base, name) or "").removeprefix("./")
    return [] if target in MEMORY_FILES else [f"({name} is a symbolic link, which is not followed.)"]


def joined(texts: dict[str, str], notes: list[str]) -> str:
    """Return the texts under their names, cut at a line to MOST_BYTES in all, and what is left out. Pure."""
    parts = []
    room = MOST_BYTES
    for name, text in texts.items():
        kept = _cut(text, room)
        room -= len(kept.encode())
        if left := len(text) - len(kept):
            kept += f"\n[… {left:,} more characters of {name} are left out; the file in your worktree has them]"
        parts.append(f"# {name}\n\n{kept}{_imports(text, texts)}")
    return "\n\n".join([*parts, *notes])


def _cut(text: str, room: int) -> str:
    """Return the first lines of a text that fit into `room` bytes."""
    data = text.encode()
    if len(data) <= room:
        return text
    head = data[: max(room, 0)].decode(errors="ignore")
    return head.rpartition("\n")[0] or head


def _imports(text: str, texts: dict[str, str]) -> str:
    """Return a note on the lines that would include other files elsewhere: they do not here."""
    names = [name for name in dict.fromkeys(_IMPORT.findall(text)) if name.removeprefix("./") not in texts]
    if not names:
        return ""
    return f"\n\n(Lines of the form @path include nothing here. Read these files where they matter: {', '.join(names)})"
