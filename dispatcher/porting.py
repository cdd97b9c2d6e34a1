"""In and out: units from other loops' files, and the night as one JSON document. Pure; nothing is dropped silently.

`prd.json` has `userStories` with `passes`, `priority` and `acceptanceCriteria`; `feature_list.json` is a list of
features with `passes` and `steps` (spec S14).
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from pydantic import ValidationError

from dispatcher.errors import BadInput, UnitFileError
from dispatcher.ledger import Ledger
from dispatcher.state import Bucket, State, one_line
from dispatcher.units import UnitFile, check_graph, slug

__all__ = ["Imported", "document", "read_list"]

_TITLES = ("title", "name", "description", "story", "feature")
_PROSE = {
    "name": "Name: ",
    "feature": "Feature: ",
    "description": "",
    "story": "",
    "category": "Category: ",
    "notes": "Notes: ",
}
_LISTS = {
    "acceptanceCriteria": "Accepted when:",
    "acceptance_criteria": "Accepted when:",
    "steps": "Steps to check it:",
}
_AFTER = ("dependsOn", "depends_on", "dependencies", "after")


@dataclass(frozen=True, slots=True)
class Imported:
    """What comes of a file: units in the order to do them in; who has passed, who is there, what is left out.

    `was` has the id that an item had in its file, by that of its unit.
    """

    units: tuple[UnitFile, ...]
    passed: tuple[str, ...]
    there: tuple[str, ...]
    left_out: tuple[str, ...]
    was: Mapping[str, str] = field(default_factory=dict)


def read_list(
    text: str, taken: Collection[str], verify: str | None = None, known: Mapping[str, str] | None = None
) -> Imported:
    """Read either file; `taken` are ids that are in use, `verify` is for items that name none. Raises BadInput.

    `known` are the units that there are, by goal: what was imported before is not imported twice.
    """
    items, left_out = _items(text)
    read: list[_Item] = []
    passed: list[_Item] = []
    used, there = set(taken), []
    for found in _in_order(items):
        item = _Item(found)
        if found.get("passes") is True:
            passed.append(item)
            continue
        unit = item.unit(used, verify)
        if unit.goal in (known or {}):
            item.unit_id = (known or {})[unit.goal]
            there.append(item)
            continue
        used.add(unit.id)
        read.append(item)
    places = _places([*passed, *read, *there])
    units = [item.placed(places) for item in read]
    _refuse_circles(units, used)
    left_out += [words for item in read if (words := item.left_out())]
    was = {item.unit_id: item.own_id for item in read if item.own_id}
    names, there_ids = tuple(item.title for item in passed), tuple(item.unit_id for item in there)
    return Imported(tuple(units), names, there_ids, tuple(left_out), was)


def _refuse_circles(units: Iterable[UnitFile], used: Collection[str]) -> None:
    try:
        check_graph({unit.id: unit for unit in units}, used)
    except UnitFileError as error:
        raise BadInput(error.message) from None


def _places(items: Iterable["_Item"]) -> Mapping[str, set[str]]:
    """Return which unit somebody may mean by an item's own id or its title; "" stands for one that passes already."""
    places: dict[str, set[str]] = {}
    for item in items:
        for name in {item.own_id, item.title} - {""}:
            places.setdefault(name, set()).add(item.unit_id)
    return places


class _Item:
    """One item of a list while it is read: what of it is carried over, and why the rest is not."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found
        self._carried = {"passes", "priority", "id", "verify"}
        self._why: dict[str, str] = {}
        self.title = _title(found)
        self.own_id = one_line(_words(found.get("id")) or "")
        self.unit_id = ""
        self._unit: UnitFile | None = None

    def unit(self, taken: Collection[str], verify: str | None) -> UnitFile:
        """Return the unit that it becomes, without what it comes after. Raises BadInput for what no unit can hold."""
        goal = "\n\n".join(self._parts())
        self._look()
        own = self._found.get("verify")
        command = own if isinstance(own, str) and own.strip() else verify
        try:
            self._unit = UnitFile(id=slug(self.title, taken), goal=goal, verify=command)
        except ValidationError as error:
            raise BadInput(f"{self.title}: {error.errors()[0]['msg']}") from None
        self.unit_id = self._unit.id
        return self._unit

    def placed(self, places: Mapping[str, set[str]]) -> UnitFile:
        """Return the unit with what it comes after, as far as that is clear; what passes already is not waited for."""
        assert self._unit is not None
        after: list[str] = []
        for key in _AFTER:
            for name in self._names(key):
                meant = places.get(name, set())
                if len(meant) == 1:
                    after += meant - {""}
                else:
                    what = f"{len(meant)} items are called" if meant else "no item is called"
                    self._why[key] = f"{what} {one_line(name, 60)!r}"
        return self._unit.model_copy(update={"after": tuple(dict.fromkeys(after))})

    def left_out(self) -> str:
        """Return what is not carried over, and why; "" for nothing."""
        why = dict.fromkeys(set(self._found) - self._carried, "unknown here") | self._why
        said = "; ".join(f"{one_line(key, 60)} ({words})" for key, words in sorted(why.items()))
        return f"{self.unit_id}: {said}" if said else ""

    def _parts(self) -> list[str]:
        """Return the paragraphs of the goal: the first title that there is, then whatever else is said."""
        first = next(key for key in _TITLES if _is_text(self._found.get(key)))
        parts = [self._found[first].strip()]
        self._carried.add(first)
        for key in (key for key in ("title", *_PROSE) if key != first and self._has(key)):
            words = _words(self._found[key]) or _listed(self._found[key])
            self._take(key, words, "neither text nor a list")
            if words and words != parts[0]:
                before = _PROSE.get(key, "")
                parts.append(f"{before.strip()}\n\n{words}".strip() if "\n" in words and before else f"{before}{words}")
        for key, heading in _LISTS.items():
            if self._has(key):
                lines, words = _listed(self._found[key]), _words(self._found[key])
                self._take(key, lines or words, "neither a list nor text")
                parts += [f"{heading}\n\n{lines}"] if lines else [f"{heading} {words}"] if words else []
        return parts

    def _has(self, key: str) -> bool:
        """Tell whether a key says anything; where it says nothing, nothing is lost."""
        if key in self._found and self._found[key] in (None, "", [], {}):
            self._carried.add(key)
            return False
        value = self._found.get(key)
        if isinstance(value, str) and not value.strip():
            self._carried.add(key)
            return False
        return key in self._found

    def _take(self, key: str, words: str, why_not: str) -> None:
        self._carried.add(key)
        if not words:
            self._why[key] = why_not

    def _look(self) -> None:
        """Note what the keys that become no text say in a way that is not understood."""
        found = self._found
        if not (found.get("passes") is None or isinstance(found["passes"], bool)):
            self._why["passes"] = f"{_shown(found['passes'])} is neither true nor false: taken as not done"
        if found.get("priority") is not None and not _is_number(found["priority"]):
            self._why["priority"] = f"{_shown(found['priority'])} is no number: it keeps its place"
        if self._has("verify") and not isinstance(found["verify"], str):
            self._why["verify"] = "not a command"
        if self._has("id") and not self.own_id:
            self._why["id"] = "neither text nor a number"

    def _names(self, key: str) -> list[str]:
        """Return what a key says that the item comes after."""
        if not self._has(key):
            return []
        self._carried.add(key)
        value = self._found[key]
        names = [_words(one) for one in (value if isinstance(value, list) else [value])]
        if not all(names):
            self._why[key] = "not a list of ids"
        return [one_line(name) for name in names if name]


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _words(value: object) -> str:
    """Return what is text, or a number as text; "" for anything else."""
    if isinstance(value, str):
        return value.strip()
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _listed(value: object) -> str:
    """Return a list as lines, with what is no text in it as JSON; "" for anything else."""
    if not isinstance(value, list):
        return ""
    return "\n".join(f"- {one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)}" for one in value)


def _shown(value: object) -> str:
    return one_line(json.dumps(value, ensure_ascii=False), 40)


def _items(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the items, and what the file says beside them."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"is not JSON: {error.msg}", line=error.lineno) from None
    except ValueError as error:  # a number of thousands of digits
        raise BadInput(f"cannot be read: {error}") from None
    except RecursionError:
        raise BadInput("is nested too deeply") from None
    beside: list[str] = []
    if isinstance(found, dict):
        key = next((one for one in ("userStories", "features") if isinstance(found.get(one), list)), None)
        if key is None:
            raise BadInput('has neither "userStories" nor "features": is it a prd.json or a feature_list.json?')
        beside = [one_line(f"the file's {name}") for name in sorted(set(found) - {key})]
        found = found[key]
    if not isinstance(found, list):
        raise BadInput("is neither a list of features nor an object that holds one")
    for number, item in enumerate(found, 1):
        if not isinstance(item, dict) or not any(
            isinstance(item.get(one), str) and item[one].strip() for one in _TITLES
        ):
            raise BadInput(f"item {number} has no title, name or description")
    return found, beside


def _in_order(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return them by priority, the smallest number first; those without one keep their place behind."""
    numbers = [item.get("priority") for item in items]
    keys = [(0, n) if _is_number(n) else (1, 0) for n in numbers]
    return [item for _, item in sorted(zip(keys, items, strict=True), key=lambda pair: pair[0])]


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return not math.isnan(value)  # which no order has a place for
    return isinstance(value, int) and not isinstance(value, bool)


def _title(item: Mapping[str, Any]) -> str:
    return one_line(next(item[key].strip() for key in _TITLES if _is_text(item.get(key))))


def document(state: State, units: Mapping[str, UnitFile], ledger: Ledger) -> dict[str, Any]:
    """Return the night as one JSON document: state, units, and what came of them. Money as strings in dollars."""
    return {
        "version": 1,
        "title": state.title,
        "night": state.night,
        "rev": state.rev,
        "spent": f"{ledger.spent:.4f}",
        "units": [_told(unit, state, units, ledger) for unit in state.ids()],
    }


def _told(unit: str, state: State, units: Mapping[str, UnitFile], ledger: Ledger) -> dict[str, Any]:
    facts, file = ledger.units.get(unit), units.get(unit)
    bucket = state.bucket_of(unit)
    told: dict[str, Any] = {
        "id": unit,
        "bucket": str(bucket),
        "passes": bucket is Bucket.passed,
        "note": state.note_of(unit) if bucket in (Bucket.tried, Bucket.blocked) else "",
    }
    if file is not None:
        told["file"] = file.model_dump(mode="json", exclude={"id"}, exclude_defaults=True)
    if facts is not None:
        told |= {
            "attempts": facts.attempt,
            "cost": f"{facts.cost:.4f}",
            "merged": facts.merged,
            "waived": facts.waived,
            "notes": facts.notes,
        }
    return told
