"""How a turn ends: seven ways as data (spec L7), extensible by registration, and a default for strangers (spec L8).

The facts stand in the `turn/end` event: `cause` (what stopped it) and, for an error, `message`, `status`, `error_type`,
`request_id` and `retry_after` (seconds), each where there is one.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Ending", "ending", "register"]


@dataclass(frozen=True, slots=True)
class Ending:
    """`by` says who writes it: the loop, the repair of an orphan, a fork, or nobody that this version knows."""

    name: str
    by: Literal["loop", "repair", "fork", "stranger"]
    words: str


_KNOWN: dict[str, Ending] = {}


def register(ending: Ending) -> None:
    """Add a way to end. Raises ValueError for a name that is taken by another meaning."""
    if _KNOWN.setdefault(ending.name, ending) != ending:
        raise ValueError(f"an ending {ending.name!r} is registered already")


def ending(name: str) -> Ending:
    """Return what is known of an ending; an unknown one is a valid stranger."""
    return _KNOWN.get(name, Ending(name, "stranger", f"ended: {name} (unknown to this version)"))


for _ending in (
    Ending("completed", "loop", "completed"),
    Ending("aborted", "loop", "aborted: asked to stop"),
    Ending("blocked", "loop", "blocked: stopped by policy"),
    Ending("error", "loop", "error"),
    Ending("max-tokens", "loop", "cut short by the model's output limit"),
    Ending("interrupted", "repair", "interrupted: closed after a crash"),
    Ending("forked", "fork", "closed at the edge of a fork"),
):
    register(_ending)
