"""In and out: units from other loops' files, and the night as one JSON document. Pure; nothing is dropped silently.

`prd.json` has `userStories` with `passes`, `priority` and `acceptanceCriteria`; `feature_list.json` is a list of
features with `passes` and `steps` (spec S14).
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from pydantic import ValidationError

from dispatcher.errors import BadInput
from dispatcher.ledger import Ledger
from dispatcher.state import Bucket, State, one_line
from dispatcher.units import UnitFile, slug

__all__ = ["Imported", "document", "read_list"]

_TITLES = ("title", "name", "description", "story", "feature")
_PROSE = {
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
_USED = {"passes", "priority", "id", "verify", *_TITLES, *_PROSE, *_LISTS}


@dataclass(frozen=True, slots=True)
class Imported:
    """What comes of a file: units in the order to do them in; who has passed, who is there, what is left out."""

    units: tuple[UnitFile, ...]
    passed: tuple[str, ...]
    there: tuple[str, ...]
    left_out: tuple[str, ...]


def read_list(
    text: str, taken: Collection[str], verify: str | None = None, known: Mapping[str, str] | None = None
) -> Imported:
    """Read either file; `taken` are ids that are in use, `verify` is for items that name none. Raises BadInput.

    `known` are the units that there are, by goal: what was imported before is not imported twice.
    """
    items, left_out = _items(text)
    units: list[UnitFile] = []
    passed: list[str] = []
    there: list[str] = []
    used = set(taken)
    for item in _in_order(items):
        name = _title(item)
        if item.get("passes") is True:
            passed.append(name)
            continue
        unit = _unit(item, used, verify)
        if unit.goal in (known or {}):
            there.append((known or {})[unit.goal])
            continue
        used.add(unit.id)
        units.append(unit)
        extra = sorted(set(item) - _USED)
        if extra:
            left_out.append(one_line(f"{unit.id}: {', '.join(extra)}"))
    return Imported(tuple(units), tuple(passed), tuple(there), tuple(left_out))


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
    return one_line(_titles(item)[0])


def _titles(item: Mapping[str, Any]) -> list[str]:
    words = (item.get(one) for one in _TITLES)
    return [text.strip() for text in words if isinstance(text, str) and text.strip()]


def _unit(item: Mapping[str, Any], taken: Collection[str], verify: str | None) -> UnitFile:
    title = _title(item)
    parts = _titles(item)[:1]
    for key, before in _PROSE.items():
        words = item.get(key)
        if isinstance(words, str) and words.strip() and words.strip() != parts[0]:
            parts.append(f"{before}{words.strip()}")
    for key, heading in _LISTS.items():
        lines = item.get(key)
        if isinstance(lines, list) and lines:
            parts.append("\n".join([heading, "", *(f"- {line}" for line in lines)]))
        elif isinstance(lines, str) and lines.strip():
            parts.append(f"{heading} {lines.strip()}")
    own = item.get("verify")
    command = own if isinstance(own, str) and own.strip() else verify
    try:
        return UnitFile(id=slug(title, taken), goal="\n\n".join(parts), verify=command)
    except ValidationError as error:
        raise BadInput(f"{title}: {error.errors()[0]['msg']}") from None


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
