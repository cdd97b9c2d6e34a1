"""Arguments that are of the wrong type are repaired where the schema leaves no doubt of what was meant (spec A22).

A string that holds a JSON array, object, number or boolean where the schema wants one, and a whole number written as
`5.0`. Never a guess: no other names, no default, nothing that the schema wants as a string (commands, file contents).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workers.session.events import Block
from workers.tools import Outcome, Tool

from .hook import Hook

__all__ = ["Repair", "repaired"]

# Tools whose schema the API has, by their type; only what can be repaired in them.
_OF_THE_API: dict[str, dict[str, Any]] = {
    "text_editor_20250728": {
        "properties": {
            "view_range": {"type": "array", "items": {"type": "integer"}},
            "insert_line": {"type": "integer"},
        }
    },
}
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")
_LONGEST = 100_000  # characters of a string that is looked into


class Repair(Hook):
    """Repairs before the call runs, and tells the model in its result."""

    def __init__(self) -> None:
        self._of: Mapping[str, Any] = {}
        self._notes: Sequence[str] = ()

    def arguments(self, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments, repaired where they can be; the same object where there is nothing to do."""
        after, notes = repaired(_schema(tool), arguments)
        self._of, self._notes = arguments, notes
        return after if notes else arguments

    async def outcome(self, call: Block, outcome: Outcome) -> Outcome:
        """Return the outcome with a line that says what was repaired in this very call."""
        if not self._notes or call["input"] is not self._of:
            return outcome
        notes, self._notes = self._notes, ()
        return replace(outcome, content=f"[arguments repaired: {'; '.join(notes)}]\n{outcome.content}")


def _schema(tool: Tool) -> Mapping[str, Any]:
    known: Mapping[str, Any] = _OF_THE_API.get(str(tool.schema.get("type")), {})
    return tool.schema.get("input_schema", known)  # type: ignore[no-any-return]  # JSON


def repaired(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arguments of a call as its schema wants them, and a note for each one that was changed. Pure."""
    known = schema.get("properties", {})
    after = {name: _repaired(known.get(name), value) for name, value in arguments.items()}
    notes = tuple(
        f"`{name}` was {_kind(value)}, read as {_kind(after[name])}"
        for name, value in arguments.items()
        if after[name] is not value
    )
    return after, notes


def _repaired(schema: Any, value: Any) -> Any:
    """Return the value that the schema wants; the same object when it is that already or nobody can say."""
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(wanted, str):
        return value  # several types, or none: there is a doubt
    if isinstance(value, str):
        value = _read(wanted, value)
    if wanted == "integer" and isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if wanted == "array" and isinstance(value, list):
        return _same_or(value, [_repaired(schema.get("items"), item) for item in value])
    if wanted == "object" and isinstance(value, dict):
        known = schema.get("properties", {})
        return _same_or(value, {name: _repaired(known.get(name), item) for name, item in value.items()})
    return value


def _same_or(before: Any, after: Any) -> Any:
    parts = after.values() if isinstance(after, dict) else after
    olds = before.values() if isinstance(before, dict) else before
    return before if all(new is old for new, old in zip(parts, olds, strict=True)) else after


def _read(wanted: str, text: str) -> Any:
    """Return what a string holds, where it is just what the schema wants; else the string itself."""
    plain = text.strip()
    match wanted:
        case "integer" if _WHOLE.fullmatch(plain):
            return int(plain)
        case "number" if _NUMBER.fullmatch(plain):
            return float(plain) if "." in plain else int(plain)
        case "boolean" if plain in ("true", "false"):
            return plain == "true"
        case "array" | "object" if plain[:1] in ("[", "{") and len(plain) <= _LONGEST:
            found = _json(plain)
            return found if isinstance(found, list if wanted == "array" else dict) else text
        case _:
            return text


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _kind(value: Any) -> str:
    names = {
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        list: "an array",
        dict: "an object",
    }
    kind = names.get(type(value), "another type")
    return kind if kind != "an array" else f"an array of {len(value)}"
