"""The tool bash: one command, a fresh shell, and nothing that outlives it."""

import asyncio
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from workers.errors import ToolError
from workers.tools import Ask, Bash, Workspace, built_in
from worktrees.containment import tagged


async def bash(workspace: Workspace, command: str, **more: Any) -> Any:
    return await Bash().run({"command": command, **more}, workspace)


async def test_runs_in_the_worktree(workspace: Workspace, root: Path) -> None:
    """A command runs in the root; its output, both streams in order, is what the model sees, and no more."""
    done = await bash(workspace, "pwd; echo oops >&2; printf end")
    assert (done.content, done.is_error) == (f"{root}\noops\nend", False)
    assert done.facts["exit_code"] == 0
    assert done.facts["bytes_total"] == len(done.content)


async def test_a_failure_is_told_with_its_output(workspace: Workspace) -> None:
    """A non-zero exit is an error result with output and exit code."""
    done = await bash(workspace, "echo half; exit 3")
    assert (done.content, done.is_error) == ("half\n[exit code 3]", True)
    assert (await bash(workspace, "false")).content == "[exit code 1]"
    assert (await bash(workspace, "true")).content == ""


async def test_every_call_is_a_fresh_shell(workspace: Workspace) -> None:
    """Directory, variables and background processes of a call are gone in the next."""
    await bash(workspace, "mkdir d; cd d; export X=1; sleep 60 & echo $! > pid")
    done = await bash(workspace, "pwd; echo ${X-unset}")
    assert done.content == f"{workspace.root}\nunset"
    assert tagged(workspace.tag) == []


async def test_a_timeout_kills_everything(workspace: Workspace) -> None:
    """A command that takes too long is killed with all that it started, and what it said before is kept."""
    began = time.monotonic()
    done = await bash(workspace, "echo started; setsid sleep 60 & sleep 60", timeout=1)
    assert time.monotonic() - began < 5
    assert (done.content, done.is_error) == ("started\n[killed after 1 s]", True)
    assert done.facts["timed_out"]
    assert tagged(workspace.tag) == []


async def test_a_cancelled_call_is_dead(workspace: Workspace, root: Path) -> None:
    """When the task is cancelled its processes are gone before the cancellation arrives."""
    task = asyncio.create_task(bash(workspace, "touch begun; sleep 60"))
    async with asyncio.timeout(10):
        while not (root / "begun").exists():  # noqa: ASYNC110  # a process tells nobody that it has begun
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tagged(workspace.tag) == []


async def test_a_flood_of_output(workspace: Workspace) -> None:
    """Of a flood head and tail are kept, with a note of how much is missing; a hook shortens it for the model."""
    done = await bash(workspace, "echo first; head -c 10000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert len(done.content) < 4_200_000
    assert done.content.startswith("first\n")
    assert done.content.endswith("last")
    assert "bytes left out" in done.content
    assert done.facts["truncated"]


async def test_no_secret_in_the_environment(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own environment does not reach the command, and it has no input to wait for."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    done = await bash(workspace, "env; cat; echo ${#ANTHROPIC_API_KEY}")
    assert "canary" not in done.content
    assert done.content.endswith("\n0")


async def test_bytes_that_are_no_text(workspace: Workspace) -> None:
    """Output that is no UTF-8 is shown with replacement characters."""
    assert (await bash(workspace, "printf 'a\\377b'")).content == "a\ufffdb"


@pytest.mark.parametrize("seconds", [0, -1, 601, 1.5, "10", None])
async def test_bad_timeouts(workspace: Workspace, seconds: Any) -> None:
    """A timeout outside of 1 to 600 whole seconds is refused, and nothing runs."""
    with pytest.raises(ToolError, match="whole seconds from 1 to 600"):
        await bash(workspace, "touch f", timeout=seconds)
    assert list(workspace.root.iterdir()) == []


@pytest.mark.parametrize(("command", "words"), [(None, "must be a string"), (1, "must be a string"), ("a\0b", "null")])
async def test_bad_commands(workspace: Workspace, command: Any, words: str) -> None:
    """A command that is no string, or that no shell can be given, is an error for the model."""
    with pytest.raises(ToolError, match=words):
        await bash(workspace, command)


async def test_a_missing_command(workspace: Workspace) -> None:
    """A call without a command says which argument is missing."""
    with pytest.raises(ToolError, match="`command` is missing"):
        await Bash().run({}, workspace)


async def test_a_root_that_is_gone(workspace: Workspace, root: Path) -> None:
    """An agent that deleted its own tree is told that nothing can be started there."""
    shutil.rmtree(root)
    with pytest.raises(ToolError, match="could not start"):
        await bash(workspace, "ls")


async def test_the_tools_of_every_agent(workspace: Workspace) -> None:
    """Under the names that the model is given; only asking has no effect of its own."""
    tools = built_in()
    assert list(tools) == ["bash", "str_replace_based_edit_tool", "update_tasks", "skill", "ask"]
    assert [tool.schema["name"] for tool in tools.values()] == list(tools)
    assert Bash().mutates({})
    assert not Ask().mutates({"question": "?"})
    with pytest.raises(ToolError, match="question"):
        await Ask().run({"question": ""}, workspace)
