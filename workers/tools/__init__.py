"""What an agent can do: bash, the text editor, a task list, skills, asking a person."""

from .ask import Ask
from .bash import Bash
from .editor import Editor
from .skill import NoShelf, Shelf, UseSkill
from .tasks import UpdateTasks
from .tool import Outcome, Tool, Workspace

__all__ = ["Ask", "Bash", "Editor", "Outcome", "Shelf", "Tool", "UpdateTasks", "UseSkill", "Workspace", "built_in"]


def built_in(shelf: Shelf | None = None) -> dict[str, Tool]:
    """Return every tool that there is, by name, in the order in which the model sees them; `shelf` has the skills."""
    tools: list[Tool] = [Bash(), Editor(), UpdateTasks(), UseSkill(shelf or NoShelf()), Ask()]
    return {tool.name: tool for tool in tools}
