"""What every tool is: a schema for the model and a coroutine that runs one call in a unit's worktree."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from workers.errors import ToolError
from workers.sendable import sendable
from workers.session.events import Block, ToolResult

__all__ = ["Outcome", "Tool", "Workspace", "text_argument"]


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a unit's tools work. `tag` marks every process they start, so that none can outlive its holder unseen.

    `scratch` is the unit's folder outside the worktree, shared by all its attempts.
    """

    root: Path
    env: Mapping[str, str]
    tag: str
    scratch: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the model is told, and facts that only people see (exit code, seconds, bytes).

    `images` are image blocks of the API behind the text. `trimmed` stands in for the call's arguments from the next
    model call on, the first that carries them (spec A22). `events` go into the log before the result.
    """

    content: str
    is_error: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    images: tuple[Block, ...] = ()
    trimmed: dict[str, Any] | None = None
    events: tuple[Any, ...] = ()

    def result(self, call_id: str) -> ToolResult:
        """Return the event that tells the model."""
        return ToolResult(
            call_id=call_id,
            content=sendable(self.content),
            is_error=self.is_error,
            facts=self.facts,
            images=list(self.images),
            trimmed=self.trimmed,
        )


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
