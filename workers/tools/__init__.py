"""What an agent can do: bash, the text editor, asking a person."""

from .ask import Ask
from .bash import Bash
from .editor import Editor
from .tool import Outcome, Tool, Workspace

__all__ = ["Ask", "Bash", "Editor", "Outcome", "Tool", "Workspace", "built_in"]


def built_in() -> dict[str, Tool]:
    """Return the tools that every agent has, by name, in the order in which the model sees them."""
    tools: list[Tool] = [Bash(), Editor(), Ask()]
    return {tool.name: tool for tool in tools}
