"""A worker that is killed and taken up again never does by itself what it may have done already."""

# ruff: noqa: ASYNC240 - small files of the test itself

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import one_turn
import pytest

from workers.session import events as ev
from workers.session.repair import UNKNOWN_OUTCOME
from workers.session.session import read_session
from worktrees.process import sweep

DONE = {"blocks": [{"text": "Done."}]}


def start(session: Path, tree: Path, server: Any) -> subprocess.Popen[str]:
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, one_turn.__file__, str(session), str(tree), server.url],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{root}:{Path(__file__).parent}"},
    )


def is_in_order(history: list[Any]) -> None:
    """Every call has exactly one result."""
    asked = [
        block["id"]
        for event in history
        if isinstance(event, ev.AssistantMessage)
        for block in event.content
        if block["type"] == "tool_use"
    ]
    results = [event.call_id for event in history if isinstance(event, ev.ToolResult)]
    assert sorted(results) == sorted(asked)
    assert len(set(results)) == len(results)


async def test_a_command_that_was_cut_off_is_not_run_again(rehearse: Any, tmp_path: Path) -> None:
    """Killed in the middle of a command that appends to a file: the line stands there once, and the model is told."""
    command = {"tool": "bash", "input": {"command": "echo ran >> effects; sleep 60"}}
    server = rehearse({"units": {"a": {"steps": [{"blocks": [command]}, DONE]}}})
    session, tree = tmp_path / "session.jsonl", tmp_path / "tree"
    tree.mkdir()
    killed = start(session, tree, server)
    deadline = time.monotonic() + 30
    while not (tree / "effects").exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    killed.kill()
    killed.communicate()
    await sweep(f"test-{tree}")
    again = start(session, tree, server)
    assert again.communicate(timeout=60)[0].startswith("completed")
    assert (tree / "effects").read_text() == "ran\n"
    history = read_session(session)
    is_in_order(history)
    assert [event.content for event in history if isinstance(event, ev.ToolResult)] == [UNKNOWN_OUTCOME]
    assert all(request.status == 200 for request in server.requests)


async def is_further(session: Path, worker: subprocess.Popen[str]) -> None:
    """Return once the worker has written something, or ended."""
    before = session.stat().st_size if session.exists() else 0
    deadline = time.monotonic() + 30
    while worker.poll() is None and not (session.exists() and session.stat().st_size > before):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def kill_until_done(rehearse: Any, folder: Path, chance: random.Random) -> None:
    numbers = range(8)
    steps = [
        {"blocks": [{"tool": "bash", "input": {"command": f"echo {n}.{m} >> effects; sleep 0.02"}} for m in range(2)]}
        for n in numbers
    ]
    server = rehearse({"units": {"a": {"steps": [*steps, DONE]}}})
    session, tree = folder / "session.jsonl", folder / "tree"
    tree.mkdir(parents=True)
    for _ in range(40):
        worker = start(session, tree, server)
        await is_further(session, worker)
        await asyncio.sleep(chance.uniform(0, 0.2))
        worker.kill()
        out, _ = worker.communicate()
        await sweep(f"test-{tree}")
        if out:
            assert out.startswith("completed"), out
            break
    else:
        pytest.fail("never done")
    done = (tree / "effects").read_text().split() if (tree / "effects").exists() else []
    assert len(set(done)) == len(done)
    is_in_order(read_session(session))
    assert all(request.status == 200 for request in server.requests if request.status is not None)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
async def test_killed_at_any_time(rehearse: Any, tmp_path: Path, seed: int) -> None:
    """Killed again and again until it is done: no line twice, every call one result, no request refused."""
    await kill_until_done(rehearse, tmp_path, random.Random(seed))
