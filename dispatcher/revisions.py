"""The texts of the state file, revision by revision, kept small. Pure.

A long state file is journalled as what changed since the revision before, and in full now and then: with 10,000 units
the full text at every write would be gigabytes a night.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pydantic import BaseModel, ConfigDict

from dispatcher.state import Bucket

__all__ = ["FULL_EVERY", "SHORT", "Revisions", "Splice", "apply", "between"]

SHORT = 16_384
"""Characters up to which a text is journalled whole: such a journal can be read without a tool."""

FULL_EVERY = 256
"""Revisions between two full texts: so many changes are put together at the most to read one."""

_HEADINGS = tuple(f"## {bucket}" for bucket in Bucket)


class Splice(BaseModel):
    """From line `at` (from 0) of the old text, `cut` lines are replaced by `put`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: int
    cut: int
    put: tuple[str, ...]


def between(old: str, new: str) -> tuple[Splice, ...]:
    """Return what makes `new` of `old`, section by section: what both begin and end with is left out."""
    before, after = old.split("\n"), new.split("\n")
    found = []
    for (start, end), (begin, stop) in zip(_sections(before), _sections(after), strict=True):
        same = _common(before[start:end], after[begin:stop])
        back = _common(before[start + same : end][::-1], after[begin + same : stop][::-1])
        if start + same < end - back or begin + same < stop - back:
            put = tuple(after[begin + same : stop - back])
            found.append(Splice(at=start + same, cut=end - back - start - same, put=put))
    return tuple(found)


def apply(lines: list[str], splices: Sequence[Splice]) -> None:
    """Change `lines` of the old text in place."""
    for one in reversed(splices):
        lines[one.at : one.at + one.cut] = one.put


def _sections(lines: Sequence[str]) -> list[tuple[int, int]]:
    starts = [0, *(lines.index(heading) for heading in _HEADINGS), len(lines)]
    return list(pairwise(starts))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for mine, yours in zip(one, other, strict=False):
        if mine != yours:
            break
        count += 1
    return count


@dataclass
class Revisions(Mapping[int, str]):
    """Every text by its revision; those journalled as changes are put together when they are asked for."""

    _full: dict[int, str] = field(default_factory=dict)
    _changes: dict[int, tuple[Splice, ...]] = field(default_factory=dict)
    _at: int = 0
    _lines: list[str] = field(default_factory=list)

    def keep(self, rev: int, text: str, change: tuple[Splice, ...]) -> None:
        """Keep a revision: its text, or what changed since `rev - 1`."""
        if text or not change:
            self._full[rev] = text
        else:
            self._changes[rev] = change

    def __getitem__(self, rev: int) -> str:
        if rev in self._full:
            return self._full[rev]
        if rev not in self._changes:
            raise KeyError(rev)
        if not self._from_here(rev):
            self._at = max((full for full in self._full if full < rev), default=0)
            if not self._at:
                raise KeyError(rev)
            self._lines = self._full[self._at].split("\n")
        while self._at < rev:
            self._at += 1
            apply(self._lines, self._changes[self._at])
        return "\n".join(self._lines)

    def is_full_due(self, rev: int) -> bool:
        """Say whether revision `rev` should be kept in full."""
        return not any(one in self._full for one in range(rev - FULL_EVERY, rev))

    def _from_here(self, rev: int) -> bool:
        """Whether what was put together last leads on to `rev` by changes alone."""
        return 0 < self._at <= rev and all(one in self._changes for one in range(self._at + 1, rev + 1))

    def __contains__(self, rev: object) -> bool:
        return rev in self._full or rev in self._changes

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({*self._full, *self._changes}))

    def __len__(self) -> int:
        return len(self._full) + len(self._changes)
