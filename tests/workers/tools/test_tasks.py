"""The task list: the whole of it each time, held in the session."""

from typing import Any

import pytest

from workers.errors import ToolError
from workers.session.events import TasksWritten
from workers.tools import UpdateTasks, Workspace


async def test_the_list_is_an_event(workspace: Workspace) -> None:
    """What goes into the log is the list, titles in one line; the model is told how it stands."""
    tasks = [
        {"title": "Look\n around", "status": "done"},
        {"title": "Make it", "status": "in_progress"},
        {"title": "Check it", "status": "pending"},
    ]
    done = await UpdateTasks().run({"tasks": tasks}, workspace)
    assert done.events == (TasksWritten(tasks=[{"title": "Look around", "status": "done"}, *tasks[1:]]),)
    assert (done.content, done.is_error) == ("Task list: 1 done, 1 in progress, 1 to do.", False)
    assert not UpdateTasks().mutates({"tasks": tasks})


async def test_an_empty_list_is_one(workspace: Workspace) -> None:
    """An agent may throw its list away."""
    done = await UpdateTasks().run({"tasks": []}, workspace)
    assert done.events == (TasksWritten(tasks=[]),)
    assert done.content == "The task list is empty."


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "must be a list"),
        ({"tasks": {"title": "x", "status": "done"}}, "must be a list"),
        ({"tasks": [{"title": "x", "status": "done"}, "y"]}, "task 2 must be an object"),
        ({"tasks": [{"title": " ", "status": "done"}]}, "task 1: `title`"),
        ({"tasks": [{"status": "done"}]}, "task 1: `title`"),
        ({"tasks": [{"title": "x", "status": "finished"}]}, "one of pending, in_progress, done"),
        ({"tasks": [{"title": "x", "status": ["done"]}]}, "one of pending"),
        ({"tasks": [{"title": "x" * 501, "status": "done"}]}, "501 characters"),
        ({"tasks": [{"title": "x", "status": "done"}] * 101}, "101 tasks"),
    ],
)
async def test_a_list_that_is_none(workspace: Workspace, arguments: dict[str, Any], words: str) -> None:
    """The task that is wrong is named, and nothing is taken down."""
    with pytest.raises(ToolError, match=words):
        await UpdateTasks().run(arguments, workspace)
