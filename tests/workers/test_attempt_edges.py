"""What an attempt makes of a turn that ended at an edge: no summary, a refusal, a cancel, a pause of the fleet."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from attempt_stand import AttemptStand

from workers.attempt import Job, attempt
from workers.model.assembly import Answer
from workers.model.client import ModelClient
from workers.model.patience import Waits
from workers.orders import AgentOrder
from workers.session import events as ev
from worktrees.containment import tagged

Stand = Callable[..., AttemptStand]
LOOK = {"blocks": [{"tool": "bash", "input": {"command": "seq 3000"}}]}
MAKES = {"blocks": [{"tool": "bash", "input": {"command": "touch done"}}]}
DONE = {"blocks": [{"text": "Done."}]}


@pytest.fixture
async def stand(make_repository: Any, rehearse: Any, tmp_path: Path) -> AsyncIterator[Stand]:
    """Make the stand of one unit that plays these steps: `stand(step, …, cues=[…])`."""
    async with AsyncExitStack() as opened:

        def make(*steps: dict[str, Any], cues: list[Any] | None = None, **options: Any) -> AttemptStand:
            repository = make_repository({"README.md": "# A\n"})
            server = rehearse({"units": {"a": {"steps": list(steps), "cues": cues or []}}})
            agent = AgentOrder(model="claude-sonnet-5-5", base_url=server.url, context_cap=15_000)
            client = ModelClient(agent)
            opened.push_async_callback(client.close)
            base = repository.git("rev-parse", "HEAD")
            return AttemptStand(repository, tmp_path / "home", server, client, base, {"agent": agent, **options})

        yield make


async def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_a_session_that_cannot_be_summarized(stand: Stand) -> None:
    """Its owner is told why, and that it is the context; no attempt goes round in circles."""
    refuses = {"last": "Write a summary", "answer": {"blocks": [{"text": "x"}], "stop": "max_tokens"}}
    at = stand(*[LOOK] * 6, DONE, cues=[refuses])
    report = await at.run()
    assert report.verdict == "block"
    assert report.note.startswith("the session could not be summarized: the summary was not finished")
    assert report.cost > 0
    assert len(at.of(ev.Compaction)) == 1


async def test_names_that_are_no_utf_8(stand: Stand) -> None:
    """A file's name may hold any bytes: listed, nested or taken back, it never makes a request that the API refuses."""
    at = stand(
        {
            "blocks": [
                {"tool": "bash", "input": {"command": r"touch $'a\xff.ini'; git init -q $'b\xff'; touch $'b\xff'/c"}}
            ]
        },
        {"blocks": [{"tool": "str_replace_based_edit_tool", "input": {"command": "view", "path": "."}}]},
        DONE,
        {"blocks": [{"tool": "bash", "input": {"command": r"rm -r $'b\xff'"}}]},
        DONE,
        MAKES,
        DONE,
    )
    report = await at.run(protect=("*.ini",))
    assert (report.verdict, report.model_dump_json() != "") == ("pass", True)
    assert "a?.ini" in at.of(ev.ToolResult)[1].content
    assert [words in at.told()[at_] for at_, words in ((1, "b? is a git repository"), (2, "protected: a?.ini"))] == [
        True,
        True,
    ]


async def test_a_refusal(stand: Stand) -> None:
    """It is not tried again: a person decides."""
    at = stand({"blocks": [{"text": "No."}], "stop": "refusal"}, DONE)
    report = await at.run()
    assert (report.verdict, report.note) == ("block", "the model refused to go on")
    assert len(at.server.requests) == 1


async def test_a_person_cancels_in_a_silent_think(stand: Stand) -> None:
    """Heard at the next beat: the call's connection closes within a second, nothing runs, the unit is `blocked`."""
    at = stand(MAKES, {**DONE, "think_time": 60})
    task = asyncio.create_task(at.run())
    await until(lambda: len(at.server.requests) == 2 and at.server.requests[1].status)
    at.lease.wish = at.lease.asked_to_stop = "cancel"
    asked_at = time.time()
    at.hear()
    report = await asyncio.wait_for(task, 5)
    await until(lambda: at.server.requests[1].disconnected, 1)
    assert (at.server.requests[1].disconnected or 0) - asked_at < 1
    assert (report.verdict, report.note) == ("block", "cancelled by a person")
    assert tagged(at.places.tag) == []
    assert [event.facts for event in at.of(ev.TurnEnd)] == [{"cause": "cancelled by a person"}]
    assert len(at.of(ev.Checkpoint)) == 1  # the work is kept


async def test_waiting_for_the_model_costs_no_minutes(stand: Stand) -> None:
    """A pause of the fleet that is longer than the attempt's minutes ends nothing."""
    at = stand(MAKES, DONE, seconds=2.0)
    waits = Waits()

    async def call(model: str, request: Any, asked: Any, _ready: Any) -> Answer:
        waits.go_on(3)
        await asyncio.sleep(1.5)
        waits.over()
        return await at.client.call(model, request, asked)

    order = at.order(**at.options)
    report: Any = await attempt(Job(order, at.lease, call, at.watch, at.heard, waits=waits))  # type: ignore[arg-type]
    assert report.verdict == "pass"
    assert waits.total > order.seconds
