"""What every tool is: a schema for the model and a coroutine that runs one call in a unit's worktree."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from workers.errors import ToolError

__all__ = ["Outcome", "Tool", "Workspace", "text_argument"]


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a unit's tools work. `tag` marks every process they start, so that none can outlive its holder unseen."""

    root: Path
    env: Mapping[str, str]
    tag: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the model is told, and facts that only people see (exit code, seconds, bytes)."""

    content: str
    is_error: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


class Tool(Protocol):
    """One thing that an agent can do."""

    name: str
    schema: dict[str, Any]

    def mutates(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether this call can change something: its `tool/call` is flushed and fenced first."""
        ...

    async def run(self, arguments: Mapping[str, Any], workspace: Workspace) -> Outcome:
        """Run one call. Raises ToolError for what the model should correct."""
        ...


def text_argument(arguments: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a string argument. Raises ToolError naming it when it is missing or of another type."""
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise ToolError(f"`{name}` must be a string" if name in arguments else f"`{name}` is missing")
    return value
