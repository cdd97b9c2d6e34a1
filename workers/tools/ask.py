"""The tool `ask`: a question to a person. The loop stores it and suspends the turn; it never runs here."""

from collections.abc import Mapping
from typing import Any

from workers.errors import ToolError

from .tool import Outcome, Workspace

__all__ = ["Ask"]


class Ask:
    """A stored pause (spec A3): the unit waits in `blocked` until somebody answers."""

    name = "ask"
    schema: dict[str, Any] = {  # noqa: RUF012  # never changed after import
        "name": "ask",
        "description": (
            "Ask the person who wrote this unit a question and wait, possibly until the morning. Only ask when the "
            "answer changes what is delivered and cannot be found in the repository."
        ),
        "input_schema": {
            "type": "object",
            "properties": {"question": {"type": "string", "description": "One clear question."}},
            "required": ["question"],
        },
    }

    def mutates(self, arguments: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """A question changes nothing by itself."""
        return False

    async def run(self, arguments: Mapping[str, Any], workspace: Workspace) -> Outcome:  # noqa: ARG002
        """Never called for a well-formed question; the loop pauses instead."""
        raise ToolError("`question` must be a string that is not empty")
