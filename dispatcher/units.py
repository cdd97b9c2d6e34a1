"""Unit files, `.overnight/units/<id>.md`: what a unit is. Front matter in YAML, then the goal in prose.

Every value of the front matter is read as text, so that `verify: true` is the command `true` and `effort: off` is
"off". Where a unit stands is the state file's business, never said here.
"""

import hashlib
import json
import os
import re
import time
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
)

from dispatcher.config import Command, Effort, Glob, Money
from dispatcher.errors import BadInput, UnitFileError
from dispatcher.faults import worded
from dispatcher.state import ID_PATTERN, is_unit_id, one_line
from workers.agents.front_matter import FrontMatter, read_front_matter
from workers.errors import BundleFileError
from workers.sendable import is_sendable

__all__ = [
    "UNITS_PATH",
    "UnitFile",
    "UnitFolder",
    "UnitId",
    "UnitLimits",
    "agent_of_attempt",
    "attempts_of",
    "check_graph",
    "digest",
    "dump",
    "load",
    "load_all",
    "parse",
    "slug",
]

UNITS_PATH = Path(".overnight/units")
"""Relative to the checkout."""

SLUG_LIMIT = 40
"""Characters of an id made from a goal: leaves room in refs, paths and the 60 that an id may have."""

MAX_BYTES = 1024 * 1024
"""A goal is prose. Beyond a megabyte it is a file that got here by mistake, and would not fit a model's window."""

UnitId = Annotated[str, StringConstraints(pattern=rf"^{ID_PATTERN}$")]
"""The id of a unit."""

AgentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]

Group = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""The name of something that only one unit at a time may use."""


_MOST_ATTACHED = 20  # images that no call may drop; beyond it every look at another one would cost the cache


def _attached(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or parts[0] == ".git" or "\0" in path:
        raise ValueError("attach names images by their path from the repository's top, without '..'")
    if path.rpartition(".")[2].lower() not in ("png", "jpg", "jpeg", "gif", "webp"):
        raise ValueError("attach takes images: .png, .jpg, .jpeg, .gif or .webp")
    return path


Attached = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True), AfterValidator(_attached)]
"""The path of an image that is shown with the goal, as it is in the commit that the unit starts from."""


def _empty_is_absent(value: object) -> object:
    return None if value == "" else value  # `verify:` with nothing behind it, as in a copied template


def _one_is_a_list(value: object) -> object:
    if value == "":
        return ()
    return (value,) if isinstance(value, str) else value


class UnitLimits(BaseModel):
    """Limits of one unit, where they differ from the config's: dollars, minutes, verify rounds, attempts, turns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    money: Money | None = None
    minutes: Annotated[float, Field(gt=0, le=10080, allow_inf_nan=False)] | None = None
    rounds: Annotated[int, Field(ge=1, le=1000)] | None = None
    attempts: Annotated[int, Field(ge=1, le=100)] | None = None
    turns: Annotated[int, Field(ge=1, le=100_000)] | None = None


class UnitFile(BaseModel):
    """One unit. `id` is the file's name; `verify` None means the config's; `after` are ids that must pass first.

    Units that share an `exclusive` group never run together. `attempts` names the agent of the first attempt, of the
    second, and so on; the last one goes on from there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: UnitId
    goal: str
    verify: Annotated[Command | None, BeforeValidator(_empty_is_absent)] = None
    after: Annotated[tuple[UnitId, ...], BeforeValidator(_one_is_a_list)] = ()
    exclusive: Annotated[tuple[Group, ...], BeforeValidator(_one_is_a_list)] = ()
    agent: Annotated[AgentName | None, BeforeValidator(_empty_is_absent)] = None
    attempts: Annotated[tuple[AgentName, ...], BeforeValidator(_one_is_a_list)] = ()
    effort: Annotated[Effort | None, BeforeValidator(_empty_is_absent)] = None
    may_edit: Annotated[tuple[Glob, ...], BeforeValidator(_one_is_a_list)] = ()
    attach: Annotated[tuple[Attached, ...], BeforeValidator(_one_is_a_list), Field(max_length=_MOST_ATTACHED)] = ()
    limits: Annotated[UnitLimits, BeforeValidator(lambda value: {} if value == "" else value)] = UnitLimits()

    @field_validator("goal")
    @classmethod
    def _says_something(cls, goal: str) -> str:
        plain = goal.replace("\r\n", "\n").strip()
        if not plain:
            raise ValueError("the goal is missing: write below the second '---' what is to be done")
        if "\0" in plain:
            raise ValueError("the goal contains a NUL character; delete it")
        if not is_sendable(plain):
            raise ValueError("the goal is no UTF-8 text; save it as UTF-8")
        return plain


def load(path: Path) -> UnitFile:
    """Read one unit file. Raises UnitFileError, which lists every fault with its line."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UnitFileError(f"is larger than {MAX_BYTES} bytes; a goal is prose", path=path)
        data = path.read_bytes()
    except OSError as error:
        raise UnitFileError(f"cannot be read: {error.strerror}", path=path) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnitFileError("is not UTF-8; save it as UTF-8", path=path, line=line) from None
    return parse(text, path)


def load_all(folder: Path) -> dict[str, UnitFile]:
    """Read every `*.md` in `folder`, by id, in the order in which they were last written; no folder means no units.

    Raises one BadInput that lists the faults of all files.
    """
    return UnitFolder(folder).load()


@dataclass
class UnitFolder:
    """The folder of unit files, read again and again: a file that has not changed since is only looked at."""

    path: Path
    _known: dict[str, tuple[tuple[int, ...], UnitFile]] = field(default_factory=dict)
    _units: dict[str, UnitFile] = field(default_factory=dict)
    _rested: float = 0.0  # until then what was seen stands

    def load(self) -> dict[str, UnitFile]:
        """Return all units: the very same mapping as last time where nothing changed. Raises like `load_all`."""
        if time.monotonic() < self._rested:
            return self._units
        now, began = time.time_ns(), time.monotonic()
        known: dict[str, tuple[tuple[int, ...], UnitFile]] = {}
        problems: list[BadInput] = []
        for name, stamp in self._stamps():
            found = self._known.get(name)
            if found is not None and found[0] == stamp:
                known[name] = found
                continue
            try:
                unit = load(self.path / name)
            except UnitFileError as error:
                problems.extend(error.problems or (error,))
            else:  # a file so young may be written again within one tick of the file system's clock
                known[name] = (stamp if now - stamp[0] > _YOUNG else (), unit)
        self._known = known
        if problems:
            raise UnitFileError.all_of(problems)
        units = [unit for _, unit in known.values()]
        if len(units) != len(self._units) or any(self._units.get(unit.id) is not unit for unit in units):
            self._units = {unit.id: unit for unit in units}
        if len(units) >= _MANY:
            self._rested = time.monotonic() + _REST * (time.monotonic() - began)
        return self._units

    def _stamps(self) -> list[tuple[str, tuple[int, ...]]]:
        try:
            with os.scandir(self.path) as entries:
                files = [entry for entry in entries if entry.name.endswith(".md") and entry.name[0] != "."]
                return sorted(((one.name, _stamp(one)) for one in files), key=_by_age)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnitFileError(f"cannot be read: {error.strerror}", path=self.path) from error


_MANY, _REST = 1_000, 10
"""From so many files on, looking at them all takes at most a tenth of the time."""

_YOUNG = 100_000_000
"""Nanoseconds: far more than the clock of any file system ticks."""


def _by_age(named: tuple[str, tuple[int, ...]]) -> tuple[int, str]:
    """What was written first is done first; by id where a checkout wrote all of them at once."""
    name, stamp = named
    return stamp[0], name.removesuffix(".md")


def _stamp(entry: os.DirEntry[str]) -> tuple[int, ...]:
    try:
        found = entry.stat()
    except OSError:  # gone again, or a link to nowhere: reading it says so
        return (0,)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def parse(text: str, path: Path) -> UnitFile:
    """Read the text of the unit file `path` (its name is the id). Raises UnitFileError."""
    if not is_unit_id(path.stem):
        message = f"the file's name is the unit's id, which {one_line(path.stem)!r} cannot be: use a-z, 0-9 and '-'"
        raise UnitFileError(message, path=path)
    try:
        front = read_front_matter(text, path, optional=True)
    except BundleFileError as error:
        field = None if error.field is None else one_line(error.field)
        raise UnitFileError(error.message, path=path, line=error.line, field=field) from None
    if taken := {"id", "goal"} & set(front.values):
        key = min(taken)
        where = "the file's name" if key == "id" else "the text below the front matter"
        raise UnitFileError(f"{where} says it; delete this line", path=path, line=front.line(key), field=key)
    try:
        return UnitFile.model_validate({**front.values, "id": path.stem, "goal": front.body})
    except ValidationError as error:
        faults = [_problem(fault, front) for fault in error.errors()]
        raise UnitFileError.all_of(sorted(faults, key=lambda fault: fault.line or 0)) from None


def _problem(fault: Mapping[str, Any], front: FrontMatter) -> UnitFileError:
    keys = tuple(str(part) for part in fault["loc"])
    message = worded(fault)
    if fault["type"] == "extra_forbidden":
        known = UnitLimits.model_fields if keys[0] == "limits" else set(UnitFile.model_fields) - {"id", "goal"}
        near = get_close_matches(keys[-1], list(known), n=1)
        message = (
            f'unknown key; did you mean "{near[0]}"?' if near else f"unknown key; known: {', '.join(sorted(known))}"
        )
    elif "pattern" in fault["type"]:
        message = f"{one_line(str(fault['input']), 60)!r} is not a name that could exist"
    line = front.body_line if keys == ("goal",) else front.line(*keys)
    return UnitFileError(message, path=front.path, line=line, field=one_line(".".join(keys)))


def dump(unit: UnitFile) -> str:
    """Return the text of the unit's file; `parse` gives the same unit back. Only what differs from the defaults."""
    matter = unit.model_dump(mode="json", exclude={"id", "goal"}, exclude_defaults=True)
    limits = {key: value for key, value in matter.pop("limits", {}).items() if value is not None}
    if unit.limits.money is not None:
        limits["money"] = f"${unit.limits.money:f}"
    if limits:
        matter["limits"] = limits
    if not matter and not unit.goal.startswith("---"):
        return f"{unit.goal}\n"
    # YAML takes these for ends of lines, so text that has them is escaped.
    is_plain = not any(escaped in json.dumps(matter) for escaped in ("\\u0085", "\\u2028", "\\u2029"))
    text = yaml.safe_dump(matter, sort_keys=False, allow_unicode=is_plain, width=10_000) if matter else ""
    return f"---\n{text}---\n\n{unit.goal}\n"


_PLAIN = str.maketrans(
    {"đ": "d", "ð": "d", "ø": "o", "ł": "l", "ß": "ss", "æ": "ae", "œ": "oe", "þ": "th", "\u0131": "i"}
)


def slug(goal: str, taken: Collection[str] = ()) -> str:
    """Return an id from the words of `goal`: at most 40 characters, and none of `taken` (then `-2`, `-3` …)."""
    lower = goal.casefold().translate(_PLAIN)
    plain = "".join(char for char in unicodedata.normalize("NFKD", lower) if not unicodedata.combining(char))
    words = re.findall(r"[a-z0-9]+", plain.replace("'", ""))
    base = _fit(words, SLUG_LIMIT) or "unit"  # a goal in a script without Latin letters
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{_fit(base.split('-'), SLUG_LIMIT - len(f'-{number}'))}-{number}"
    return name


def _fit(words: Iterable[str], limit: int) -> str:
    """Join whole words with '-' while they fit; a first word that does not is cut."""
    name = ""
    for word in words:
        longer = f"{name}-{word}" if name else word[:limit]
        if len(longer) > limit:
            break
        name = longer
    return name


def check_graph(units: Mapping[str, UnitFile], known: Collection[str] = ()) -> None:
    """Check what `after` says: only units of `units` or `known` (say, archived ones), and never in a circle.

    Raises UnitFileError with every unknown id, or with one circle, named.
    """
    problems = [
        _unknown_after(unit, other, units)
        for unit in units.values()
        for other in unit.after
        if other not in units and other not in known
    ]
    if problems:
        raise UnitFileError.all_of(problems)
    try:
        TopologicalSorter({unit.id: unit.after for unit in units.values()}).prepare()
    except CycleError as error:
        circle = [str(name) for name in reversed(error.args[1])]
        message = f"the units wait for each other: {' → '.join(circle)}; take one out of 'after'"
        raise UnitFileError(message, path=_shown(circle[0]), field="after") from None


def _unknown_after(unit: UnitFile, other: str, units: Collection[str]) -> UnitFileError:
    near = get_close_matches(other, [one for one in units if one != unit.id], n=1)
    hint = f"did you mean {near[0]!r}?" if near else "add it, or take it out"
    return UnitFileError(f"there is no unit {other!r}; {hint}", path=_shown(unit.id), field="after")


def _shown(unit: str) -> Path:
    return UNITS_PATH / f"{unit}.md"


def attempts_of(unit: str, units: Mapping[str, UnitFile], usual: int) -> int:
    """Return how many attempts a unit has: its own limit, else the config's `usual` one."""
    own = units[unit].limits.attempts if unit in units else None
    return own or usual


def agent_of_attempt(unit: UnitFile, begun: int) -> str | None:
    """Return the agent that a unit names for the attempt after `begun` others; None: whatever is usual."""
    if unit.attempts:
        return unit.attempts[min(begun, len(unit.attempts) - 1)]
    return unit.agent


def digest(unit: UnitFile, verify: str, protect: Iterable[str]) -> str:
    """Return the sha256 (hex) of what a verdict depends on: id, goal, verify command, protected and editable paths.

    `verify` is the command in force (the unit's own, else the config's). Limits, agent and effort change how a
    verdict is reached, not what it is worth (protocol, rule 17).
    """
    facts = {
        "version": 1,
        "id": unit.id,
        "goal": unit.goal,
        "verify": verify,
        "protect": sorted(set(protect)),
        "may_edit": sorted(set(unit.may_edit)),
    }
    if unit.attach:  # part of the goal; without any the digest is what it always was
        facts["attach"] = list(unit.attach)
    return hashlib.sha256(json.dumps(facts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
