"""The tool `skill`: loads a skill's instructions, or a file that belongs to it, when the agent needs them."""

from collections.abc import Mapping
from typing import Any, Protocol

from workers.blocking import blocking
from workers.errors import ToolError

from .tool import Outcome, Workspace, text_argument

__all__ = ["NoShelf", "Shelf", "UseSkill"]


class Shelf(Protocol):
    """Where skills are read. Both raise ToolError for what is not there; both block."""

    def instructions(self, name: str) -> str:
        """Return a skill's instructions."""
        ...

    def file(self, name: str, path: str) -> str:
        """Return the text of a file that belongs to a skill; `path` is relative to its folder."""
        ...


class NoShelf:
    """A shelf without skills."""

    def instructions(self, name: str) -> str:
        """There is none."""
        raise ToolError(f"there is no skill {name!r}")

    def file(self, name: str, path: str) -> str:  # noqa: ARG002
        """There is none."""
        raise ToolError(f"there is no skill {name!r}")


class UseSkill:
    """Reads from the shelf that the agent was given, and from nowhere else."""

    name = "skill"
    schema: dict[str, Any] = {  # noqa: RUF012  # never changed after import
        "name": "skill",
        "description": (
            "Load a skill: instructions for a kind of work. The system prompt lists the skills there are. With `file`, "
            "read another file of the skill, as its instructions name it."
        ),
        "input_schema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The skill's name, as listed."},
                "file": {"type": "string", "description": "A file's path relative to the skill's folder."},
            },
            "required": ["name"],
        },
    }

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def mutates(self, arguments: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Reading changes nothing."""
        return False

    async def run(self, arguments: Mapping[str, Any], workspace: Workspace) -> Outcome:  # noqa: ARG002
        """Read off the event loop. Raises ToolError for a skill or file that is not there."""
        name = text_argument(arguments, "name").strip()
        path = text_argument(arguments, "file", "")
        if path:
            return Outcome(await blocking(self._shelf.file, name, path))
        return Outcome(await blocking(self._shelf.instructions, name))
