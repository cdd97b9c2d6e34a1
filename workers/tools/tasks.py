"""The tool `update_tasks`: the agent's task list, held in the session's log and not in a file (spec A21)."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from workers.errors import ToolError
from workers.session.events import TasksWritten

from .tool import Outcome, Workspace

__all__ = ["UpdateTasks"]

_STATUSES = ("pending", "in_progress", "done")
# A list that nobody can take in helps nobody, and the whole of it goes into the log each time.
_MOST_TASKS = 100
_LONGEST_TITLE = 500


class UpdateTasks:
    """Replaces the whole list each time: there is no other copy that it could disagree with."""

    name = "update_tasks"
    schema: dict[str, Any] = {  # noqa: RUF012  # never changed after import
        "name": "update_tasks",
        "description": (
            "Write down your task list, the whole of it each time, in the order in which you will do it. Use it for "
            "work of three or more steps. Have one task in progress at a time, and call a task done only when its "
            "check has passed."
        ),
        "input_schema": {
            "type": "object",
            "properties": {
                "tasks": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "title": {"type": "string", "description": "The task in a few words."},
                            "status": {"type": "string", "enum": list(_STATUSES)},
                        },
                        "required": ["title", "status"],
                    },
                }
            },
            "required": ["tasks"],
        },
    }

    def mutates(self, arguments: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """The list is an event of the log and changes nothing else."""
        return False

    async def run(self, arguments: Mapping[str, Any], workspace: Workspace) -> Outcome:  # noqa: ARG002
        """Take the list down. Raises ToolError that names the task which is wrong."""
        given = arguments.get("tasks")
        if not isinstance(given, list):
            raise ToolError("`tasks` must be a list of tasks, each with `title` and `status`")
        if len(given) > _MOST_TASKS:
            raise ToolError(f"`tasks` has {len(given)} tasks; keep it to {_MOST_TASKS}, with larger ones")
        tasks = [_task(number, one) for number, one in enumerate(given, 1)]
        return Outcome(_counted(tasks), events=(TasksWritten(tasks=tasks),))


def _task(number: int, given: object) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ToolError(f"task {number} must be an object with `title` and `status`")
    title, status = given.get("title"), given.get("status")
    if not isinstance(title, str) or not title.strip():
        raise ToolError(f"task {number}: `title` must be a string that is not empty")
    if len(title) > _LONGEST_TITLE:
        raise ToolError(f"task {number}: `title` has {len(title)} characters; say it in at most {_LONGEST_TITLE}")
    if status not in _STATUSES:
        raise ToolError(f"task {number}: `status` must be one of {', '.join(_STATUSES)}")
    return {"title": " ".join(title.split()), "status": status}


def _counted(tasks: list[dict[str, str]]) -> str:
    if not tasks:
        return "The task list is empty."
    counts = Counter(task["status"] for task in tasks)
    named = {"done": "done", "in_progress": "in progress", "pending": "to do"}
    return "Task list: " + ", ".join(f"{counts[status]} {words}" for status, words in named.items()) + "."
