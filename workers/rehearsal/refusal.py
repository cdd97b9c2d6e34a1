"""A refusal: the error that a request is answered with instead of a step, in the API's own terms."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["EXTRA", "MISSING", "Body", "Refusal", "first"]

Body = dict[str, Any]

EXTRA = "Extra inputs are not permitted"
MISSING = "Field required"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error to answer with, in the API's terms."""

    message: str
    status: int = 400
    type: str = "invalid_request_error"
    headers: tuple[tuple[str, str], ...] = ()


def first(found: Iterator[Refusal]) -> Refusal | None:
    """Return the first refusal that rules yield; nothing after it is looked at."""
    return next(found, None)
