"""The state file: four buckets in Markdown, read strictly and written whole (spec S1-S6).

Everything but `read` and `write` is pure. This module never decides where a unit belongs: it only makes sure
that a unit is in exactly one bucket, and that no text of a model can look like a heading or an entry.
"""

import random
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Self

from dispatcher.errors import StateFileError, UnknownUnitError

__all__ = [
    "ID_PATTERN",
    "NOTED",
    "Bucket",
    "Entry",
    "State",
    "is_unit_id",
    "lines_of",
    "mint_night",
    "one_line",
    "parse",
    "read",
    "read_text",
    "render",
    "shown_line",
]

ID_PATTERN = r"[a-z0-9][a-z0-9-]{0,59}"
"""What a unit's id looks like: safe as a file name, in a git ref and in a shell."""

NOTE_LIMIT = 120
"""Characters. With the id a line stays within two rows of an ordinary terminal."""

MAX_BYTES = 4 * 1024 * 1024
"""Far above any state file (tens of thousands of units); whatever is larger is not one."""

_TITLE = "# Loop State:"
_COMMENT = "# A unit lives in exactly one bucket. Read fresh each run; written each iteration."
_TAIL = re.compile(rf"\bNight ({ID_PATTERN}), rev ([0-9]{{1,18}})\.?$")
_TAIL_ATTEMPT = re.compile(r"\brev\b|\bNight [0-9]")
_ENTRY = re.compile(r"- (?P<id>[^\s:]+)(?:: +(?P<goal>\S.*)|  +(?P<note>\S.*))?")
_CONFLICT = ("<<<<<<<", "|||||||", "=======", ">>>>>>>")
_JOINERS = "\u200c\u200d"  # Persian and emoji need them, and they hide nothing
_NIGHT_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"  # nothing that reads like something else


class Bucket(StrEnum):
    """A section of the state file, in the order of the file."""

    tried = "tried"
    passed = "passed"
    open = "open"
    blocked = "blocked"


NOTED = frozenset({Bucket.tried, Bucket.blocked})
"""The buckets whose entries may carry a note."""


def is_unit_id(text: str) -> bool:
    """Say whether `text` can be the id of a unit."""
    return re.fullmatch(ID_PATTERN, text) is not None


def one_line(text: str, limit: int | None = NOTE_LIMIT) -> str:
    """Make any text safe as a note or title: one line of visible characters that forges no heading or entry.

    Control, bidi and other invisible characters become spaces, runs of white space one space, runs of `#`
    one `#` (`grep '## open'` is not anchored). Longer than `limit` characters: cut, with "…". Doing it twice
    changes nothing.
    """
    return _cut(re.sub(r"#{2,}", "#", _visible(text)), limit)


def shown_line(text: str, limit: int) -> str:
    """Return the same for what is only shown to people, where a heading may be named."""
    return _cut(_visible(text), limit)


def _cut(line: str, limit: int | None) -> str:
    if limit is None or len(line) <= limit:
        return line
    return line[: max(limit - 1, 0)].rstrip() + "…"


def _visible(text: str) -> str:
    hidden = _hidden_in(text)
    return " ".join((text.translate({ord(char): " " for char in hidden}) if hidden else text).split())


def _hidden_in(text: str) -> set[str]:
    """Return the hidden characters of a text: each distinct one is looked up once, however long the text."""
    return {char for char in set(text) if _is_hidden(char)}


def _is_hidden(char: str) -> bool:
    """Control, format (bidi, zero-width, tags), surrogate, line and paragraph separators."""
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and char not in _JOINERS


@dataclass(frozen=True)
class Entry:
    """One unit in a bucket. The dispatcher relies on the id alone; the note is for people.

    Raises ValueError for an id that is none.
    """

    id: str
    note: str = ""

    def __post_init__(self) -> None:
        if not is_unit_id(self.id):
            raise ValueError(f"{self.id!r} is not a unit id: {ID_PATTERN}")
        # Not cut here: what a person typed stays whole. Notes of ours are cut where units move.
        if self.note:
            object.__setattr__(self, "note", one_line(self.note, limit=None))


@dataclass(frozen=True)
class State:
    """What the state file says: every unit in exactly one bucket, in order.

    `night` is "" and `rev` 0 for a file that no run has written yet. `typed_goals` holds the goals that
    somebody typed behind an id and that no unit file holds yet; such an entry has no note. Raises ValueError
    where the parts contradict each other.
    """

    title: str
    night: str = ""
    rev: int = 0
    tried: tuple[Entry, ...] = ()
    passed: tuple[Entry, ...] = ()
    open: tuple[Entry, ...] = ()
    blocked: tuple[Entry, ...] = ()
    typed_goals: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line(self.title, limit=None))
        goals = {unit: _visible(goal) for unit, goal in self.typed_goals.items()}
        object.__setattr__(self, "typed_goals", goals)
        self._check_header()
        self._check_entries()

    def _check_header(self) -> None:
        if not self.title:
            raise ValueError("a state has a title")
        if self.night and not is_unit_id(self.night):
            raise ValueError(f"{self.night!r} is not a night's id")
        if self.rev < 0 or (self.rev and not self.night):
            raise ValueError(f"revision {self.rev} of night {self.night!r} cannot be")

    def _check_entries(self) -> None:
        ids = [entry.id for bucket in Bucket for entry in self.entries(bucket)]
        if len(ids) != len(set(ids)):
            twice = sorted({unit for unit in ids if ids.count(unit) > 1})
            raise ValueError(f"in more than one place: {', '.join(twice)}")
        if any(entry.note for bucket in set(Bucket) - NOTED for entry in self.entries(bucket)):
            raise ValueError("only tried and blocked units have a note")
        noted = {entry.id for bucket in NOTED for entry in self.entries(bucket) if entry.note}
        if not set(self.typed_goals) <= set(ids) - noted or not all(self.typed_goals.values()):
            raise ValueError("a typed goal needs an entry without a note, and some text")

    def entries(self, bucket: Bucket) -> tuple[Entry, ...]:
        """Return the entries of `bucket`, top first."""
        found: tuple[Entry, ...] = getattr(self, bucket.value)
        return found

    def ids(self, bucket: Bucket | None = None) -> tuple[str, ...]:
        """Return the ids in `bucket`, or in the whole file, in the order of the file."""
        buckets = Bucket if bucket is None else (bucket,)
        return tuple(entry.id for one in buckets for entry in self.entries(one))

    @cached_property
    def _where(self) -> Mapping[str, Bucket]:
        return {entry.id: bucket for bucket in Bucket for entry in self.entries(bucket)}

    def bucket_of(self, unit: str) -> Bucket | None:
        """Return the bucket that holds `unit`; None: no bucket does."""
        return self._where.get(unit)

    def note_of(self, unit: str) -> str:
        """Return the note of `unit`, "" where there is none. Raises UnknownUnitError."""
        return self._entry(unit).note if self._place(unit) in NOTED else ""

    def ready(self) -> tuple[str, ...]:
        """Return what may be handed out, in order: `open` from its top, then `tried` (spec S4)."""
        return self.ids(Bucket.open) + self.ids(Bucket.tried)

    def counts(self) -> dict[Bucket, int]:
        """Return how many units each bucket holds."""
        return {bucket: len(self.entries(bucket)) for bucket in Bucket}

    def all_passed(self) -> bool:
        """Say whether there are units and all passed: the file is ready for the archive (spec S7)."""
        return bool(self.passed) and not (self.tried or self.open or self.blocked)

    def add(self, unit: str, bucket: Bucket = Bucket.open, note: str = "", *, goal: str = "") -> Self:
        """Return a state with a new `unit` at the end of `bucket`. Raises ValueError if one holds it."""
        return self.add_all((unit,), bucket, note, goal=goal)

    def add_all(self, units: Iterable[str], bucket: Bucket = Bucket.open, note: str = "", *, goal: str = "") -> Self:
        """Return a state with new `units` at the end of `bucket`. Raises ValueError if a bucket holds one of them."""
        note, goal = one_line(note), _visible(goal)
        entries = tuple(Entry(unit, "" if goal or bucket not in NOTED else note) for unit in units)
        where, goals = dict(self._where), dict(self.typed_goals)
        for entry in entries:
            if entry.id in where:
                raise ValueError(f"in more than one place: {entry.id}")
            where[entry.id] = bucket
            if goal:
                goals[entry.id] = goal
        return self._with({bucket: (*self.entries(bucket), *entries)}, goals, where)

    def move(self, unit: str, bucket: Bucket, note: str = "", *, first: bool = False) -> Self:
        """Return a state in which `unit` is at the end (`first`: at the top) of `bucket`, with `note`.

        `open` and `passed` carry no notes, so a note for them is dropped. A goal that is still only in this file
        wins over a note. Raises UnknownUnitError.
        """
        was = self._place(unit)
        entry = Entry(unit, "" if bucket not in NOTED or unit in self.typed_goals else one_line(note))
        others = self._without(unit, was)
        there = others if bucket is was else self.entries(bucket)
        changed = {was: others, bucket: (entry, *there) if first else (*there, entry)}
        return self._with(changed, where={**self._where, unit: bucket})

    def renote(self, unit: str, note: str) -> Self:
        """Return a state in which `unit` stays where it is, with another note. Raises UnknownUnitError."""
        bucket = self._place(unit)
        if bucket not in NOTED or unit in self.typed_goals:
            return self
        entry = Entry(unit, one_line(note))
        changed = tuple(entry if e.id == unit else e for e in self.entries(bucket))
        return self._with({bucket: changed}, where=self._where)

    def remove(self, unit: str) -> Self:
        """Return a state without `unit`. Raises UnknownUnitError."""
        was = self._place(unit)
        goals = {one: goal for one, goal in self.typed_goals.items() if one != unit}
        where = {one: bucket for one, bucket in self._where.items() if one != unit}
        return self._with({was: self._without(unit, was)}, goals, where)

    def reorder(self, bucket: Bucket, order: Sequence[str]) -> Self:
        """Return a state in which the units of `bucket` that `order` names follow each other as they do there.

        The others keep their places; names that `bucket` does not hold are passed over.
        """
        place = {unit: number for number, unit in enumerate(order)}
        entries = self.entries(bucket)
        named = iter(sorted((e for e in entries if e.id in place), key=lambda e: place[e.id]))
        return self._with({bucket: tuple(next(named) if e.id in place else e for e in entries)}, where=self._where)

    def adopted(self, *units: str) -> Self:
        """Return a state in which the goals of `units` are no longer here: unit files hold them now."""
        return self._with({}, {k: v for k, v in self.typed_goals.items() if k not in units}, self._where)

    def stamped(self, night: str, rev: int) -> Self:
        """Return a state that carries this night and revision."""
        made = self._with({}, where=self._where)
        made.__dict__.update(night=night, rev=rev)
        made._check_header()  # noqa: SLF001 - a State too
        return made

    def _place(self, unit: str) -> Bucket:
        bucket = self._where.get(unit)
        if bucket is not None:
            return bucket
        near = get_close_matches(unit, self.ids(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`overnight status` lists the units"
        raise UnknownUnitError(f"there is no unit {one_line(unit)!r}; {hint}")

    def _entry(self, unit: str) -> Entry:
        return next(entry for entry in self.entries(self._place(unit)) if entry.id == unit)

    def _without(self, unit: str, bucket: Bucket) -> tuple[Entry, ...]:
        entries = self.entries(bucket)
        at = next(number for number, entry in enumerate(entries) if entry.id == unit)
        return (*entries[:at], *entries[at + 1 :])

    def _with(
        self,
        buckets: Mapping[Bucket, tuple[Entry, ...]],
        goals: Mapping[str, str] | None = None,
        where: Mapping[str, Bucket] | None = None,
    ) -> Self:
        """Return a changed copy without checking it all again: with 10,000 units that would be most of a tick.

        Whoever calls this keeps a unit in one bucket and hands on the index of who is `where`.
        """
        made = object.__new__(type(self))
        made.__dict__.update(
            title=self.title,
            night=self.night,
            rev=self.rev,
            typed_goals=self.typed_goals if goals is None else goals,
            **{bucket.value: buckets.get(bucket, self.entries(bucket)) for bucket in Bucket},
        )
        if where is not None:
            made.__dict__["_where"] = where
        return made


def mint_night(now: datetime, rng: random.Random) -> str:
    """Return a new night's id: month and day of `now`, and three random characters (`1130-k3v`)."""
    return f"{now:%m%d}-{''.join(rng.choice(_NIGHT_LETTERS) for _ in range(3))}"


def render(state: State) -> str:
    """Return the text of the file; `parse` gives the same state back. Made once for a state, which never changes."""
    text: str | None = state.__dict__.get("_text")
    if text is None:
        text = state.__dict__["_text"] = _render(state)
    return text


def _render(state: State) -> str:
    tail = f" Night {state.night}, rev {state.rev}." if state.night else ""
    sections = [_render_section(state, bucket) for bucket in Bucket]
    return "\n".join([f"{_TITLE} {state.title}\n{_COMMENT}{tail}\n", *sections])


def _render_section(state: State, bucket: Bucket) -> str:
    goals = state.typed_goals
    if bucket not in NOTED and not goals:
        return "".join([f"## {bucket}\n", *[f"- {entry.id}\n" for entry in state.entries(bucket)]])
    lines = [f"- {entry.id}{_behind(entry, goals.get(entry.id))}\n" for entry in state.entries(bucket)]
    return "".join([f"## {bucket}\n", *lines])


def _behind(entry: Entry, goal: str | None) -> str:
    return f": {goal}" if goal else f"  {entry.note}" if entry.note else ""


def read(path: Path) -> tuple[State, str]:
    """Read the file fresh; return the state and the very text it was read from. Raises StateFileError."""
    text = read_text(path)
    return parse(text, path), text


def read_text(path: Path) -> str:
    """Read the file fresh, without looking at what it says. Raises StateFileError."""
    return _decode(_read_bytes(path), path)


def _read_bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise StateFileError(f"is larger than {MAX_BYTES} bytes, so it is no state file", path=path)
        return path.read_bytes()
    except FileNotFoundError:
        raise StateFileError("there is no state file; `overnight run` writes one", path=path) from None
    except OSError as error:
        raise StateFileError(f"cannot be read: {error.strerror}", path=path) from error


def _decode(data: bytes, path: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise StateFileError(message, path=path, line=line) from None


def parse(text: str, path: Path | None = None) -> State:
    """Read the four buckets strictly; `path` is only for messages.

    What people do by hand is taken: blank lines, sections in another order, trailing spaces, CRLF, a byte order
    mark, a comment line without night and revision, goals typed as `- id: goal`. Everything else raises
    StateFileError, which names the line and what to do.
    """
    reader = _Reader(path)
    lines = reader.lines(text)
    title = reader.title(lines)
    night, rev = reader.comment(lines)
    for number, line in lines[2:]:
        reader.take(number, line)
    reader.finish(lines[-1][0])
    entries = {bucket.value: tuple(found) for bucket, found in reader.sections.items()}
    return State(title, night, rev, typed_goals=reader.goals, **entries)


def lines_of(text: str) -> dict[str, int]:
    """Return on which line, from 1, each unit of a file that can be read stands."""
    found = ((number, _ENTRY.fullmatch(line.rstrip())) for number, line in enumerate(text.split("\n"), 1))
    return {entry["id"]: number for number, entry in found if entry is not None}


@dataclass
class _Reader:
    """The parser's place in one file: which sections and units were seen, and on which lines."""

    path: Path | None
    sections: dict[Bucket, list[Entry]] = field(default_factory=dict)
    goals: dict[str, str] = field(default_factory=dict)
    heading_lines: dict[Bucket, int] = field(default_factory=dict)
    entry_lines: dict[str, tuple[int, Bucket]] = field(default_factory=dict)
    bucket: Bucket | None = None

    def fail(self, line: int, message: str) -> StateFileError:
        return StateFileError(message, path=self.path, line=line)

    def lines(self, text: str) -> list[tuple[int, str]]:
        """Return the lines that are not blank, with their numbers from 1, without trailing spaces."""
        plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
        found = []
        is_clean = not _hidden_in(plain) - {"\n"}  # tabs are hidden, too; looking at each line finds which
        for number, line in enumerate(plain.split("\n"), 1):
            if line.startswith(_CONFLICT):
                raise self.fail(number, "an unresolved merge conflict; keep one side and delete the marker lines")
            if not is_clean:
                self._check_characters(number, line)
            if line.strip(" "):
                found.append((number, line.rstrip(" ")))
        if not found:
            message = "the file is empty; `overnight fsck --rebuild-state` writes it anew; before any run, delete it"
            raise self.fail(1, message)
        return found

    def _check_characters(self, number: int, line: str) -> None:
        for char in line:
            if char == "\t":
                raise self.fail(number, "has a tab; write spaces instead")
            if _is_hidden(char):
                name = unicodedata.name(char, "a control character")
                raise self.fail(number, f"has an invisible character, U+{ord(char):04X} ({name}); delete it")

    def title(self, lines: Sequence[tuple[int, str]]) -> str:
        number, line = lines[0]
        title = one_line(line.removeprefix(_TITLE), limit=None)
        if not line.startswith(f"{_TITLE} ") or not title:
            raise self.fail(number, f"the first line must be the title, '{_TITLE} <name>'")
        return title

    def comment(self, lines: Sequence[tuple[int, str]]) -> tuple[str, int]:
        number, line = lines[1] if len(lines) > 1 else (lines[0][0], "")
        if not line.startswith("#") or line.startswith("##"):
            raise self.fail(number, f"the comment line is missing; put this below the title: {_COMMENT}")
        if tail := _TAIL.search(line):
            return tail[1], int(tail[2])
        if _TAIL_ATTEMPT.search(line):
            message = "the comment line must end in 'Night <id>, rev <number>.'; restore it, or leave both out"
            raise self.fail(number, message)
        return "", 0

    def take(self, number: int, line: str) -> None:
        if line.startswith("#"):
            self._take_heading(number, line)
        elif self.bucket is None:
            raise self.fail(number, f"stands before the first section; put it below '## {Bucket.open}'")
        else:
            self._take_entry(number, line, self.bucket)

    def _take_heading(self, number: int, line: str) -> None:
        name = line.removeprefix("## ").strip()
        if not line.startswith("## ") or name not in set(Bucket):
            near = get_close_matches(line.strip("# ").lower(), list(Bucket), n=1)
            hint = f"did you mean '## {near[0]}'?" if near else f"there are only {_headings(Bucket)}"
            raise self.fail(number, f"unknown heading {_quoted(line.strip())}; {hint}")
        bucket = Bucket(name)
        if bucket in self.heading_lines:
            first = self.heading_lines[bucket]
            raise self.fail(number, f"'## {bucket}' is already on line {first}; put the two together")
        self.heading_lines[bucket] = number
        self.sections[bucket] = []
        self.bucket = bucket

    def _take_entry(self, number: int, line: str, bucket: Bucket) -> None:
        found = _ENTRY.fullmatch(line)
        if found is None:
            raise self.fail(number, _diagnosis(line))
        unit, goal, note = found["id"], found["goal"], found["note"]
        if not is_unit_id(unit):
            raise self.fail(number, f"{_quoted(unit)} cannot be a unit's id; {_ID_RULE}")
        if note and bucket not in NOTED:
            hint = f"a goal goes behind a colon ('- {unit}: …'); else delete it"
            raise self.fail(number, f"units in '## {bucket}' have no note; {hint}")
        self._note_line(number, unit, bucket)
        self.sections[bucket].append(Entry(unit, note or ""))
        if goal:
            self.goals[unit] = _visible(goal)

    def _note_line(self, number: int, unit: str, bucket: Bucket) -> None:
        if unit in self.entry_lines:
            line, other = self.entry_lines[unit]
            where = f"on line {line} (in '## {other}') and on line {number} (in '## {bucket}')"
            raise self.fail(number, f"the unit {unit!r} is {where}; delete one of the two")
        self.entry_lines[unit] = (number, bucket)

    def finish(self, last: int) -> None:
        missing = [bucket for bucket in Bucket if bucket not in self.heading_lines]
        if missing:
            raise self.fail(last, f"{_headings(missing)} missing; add each on a line of its own, even if empty")


_ID_RULE = "use 1 to 60 of a-z, 0-9 and '-', the first no '-'"

_MISTAKES = (
    (r" +[-*+].*", "an entry starts at the beginning of its line; delete the spaces before it"),
    (r"[*+] .*", "an entry starts with '- '; write '-' for the bullet"),
    (r"- +\[.?\].*", "entries have no checkbox; the section says how far a unit is"),
    (r"-", "an entry without an id; write '- <id>' or delete the line"),
    (r"- [^\s:]+:", "the goal behind the colon is missing; write '- <id>: <goal>'"),
    (
        r"- [^\s:]+ \S.*",
        "one space behind the id; write two before a note, or '- <id>: <goal>' for a new unit",
    ),
    (r"-.*", f"not an entry; write '- <id>', '- <id>  <note>' or '- <id>: <goal>'; for the id {_ID_RULE}"),
)


def _diagnosis(line: str) -> str:
    """Say what is wrong with a line that is no entry, and how to write it."""
    known = (message for pattern, message in _MISTAKES if re.fullmatch(pattern, line))
    other = f"{_quoted(line)} is neither an entry ('- <id>') nor a heading; delete it, or move it to a unit file"
    return next(known, other)


def _headings(buckets: Iterable[Bucket]) -> str:
    return ", ".join(f"'## {bucket}'" for bucket in buckets)


def _quoted(text: str) -> str:
    return repr(one_line(text, limit=60))
