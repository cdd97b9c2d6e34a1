"""What pydantic finds wrong with a file that a person wrote, in words for that person. Pure.

Never the value: a config may hold what nobody else should read.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["worded"]

_WORDS = {
    "missing": "is missing",
    "bool_type": "is true or false, without quotes",
    "string_type": "is text, in quotes",
    "string_too_short": "is empty",
    "int_type": "is a whole number, without quotes",
    "int_from_float": "is a whole number",
    "int_parsing": "is a whole number",
    "float_type": "is a number, without quotes",
    "float_parsing": "is a number, without quotes",
    "finite_number": "is a finite number",
    "decimal_type": "is a number",
    "decimal_parsing": "is a number",
    "tuple_type": 'is a list, such as ["…", "…"]',
    "list_type": 'is a list, such as ["…", "…"]',
    "model_type": "has keys of its own and is no single value",
    "greater_than": "is more than {gt}",
    "greater_than_equal": "is at least {ge}",
    "less_than": "is less than {lt}",
    "less_than_equal": "is at most {le}",
    "literal_error": "is one of {expected}",
}


def worded(fault: Mapping[str, Any]) -> str:
    """Return what one of pydantic's faults says, as the rest of a sentence that begins with the key's name."""
    words = _WORDS.get(str(fault["type"]))
    if words is None:
        return str(fault["msg"]).removeprefix("Value error, ")
    return words.format_map(fault.get("ctx") or {})
