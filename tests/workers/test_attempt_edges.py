"""What an attempt makes of a turn that ended at an edge: no summary, a refusal, a cancel, a pause of the fleet."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from attempt_stand import AttemptStand, Killed

from workers.attempt import Job, attempt
from workers.log import Log, Record, encode
from workers.model.assembly import Answer
from workers.model.client import ModelClient
from workers.model.patience import Waits
from workers.orders import AgentOrder, Answered
from workers.session import events as ev
from worktrees.containment import tagged

Stand = Callable[..., AttemptStand]
LOOK = {"blocks": [{"tool": "bash", "input": {"command": "seq 3000"}}]}
MAKES = {"blocks": [{"tool": "bash", "input": {"command": "touch done"}}]}
DONE = {"blocks": [{"text": "Done."}]}
WINDOW_FULL = {"blocks": [{"text": "Half"}], "stop": "model_context_window_exceeded"}
SUMMARY = {"last": "Write a summary", "answer": {"blocks": [{"text": "Made a start."}]}}


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


async def test_a_window_that_stays_full(stand: Stand) -> None:
    """No round is burnt, nobody is told of an output limit that nobody hit, and its owner hears what to shorten."""
    at = stand(LOOK, WINDOW_FULL, WINDOW_FULL, MAKES, DONE, cues=[SUMMARY])
    report = await at.run()
    assert (report.verdict, report.turns) == ("block", 1)
    assert report.note.startswith("the model's context window is full, and a summary")
    assert not [words for words in at.told() if "output limit" in words]


async def test_a_full_window_and_killed(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the same, and nothing more is asked, where the process died before it could be reported."""

    async def dies(*_: Any) -> None:
        raise Killed

    at = stand(LOOK, WINDOW_FULL, WINDOW_FULL, MAKES, DONE, cues=[SUMMARY])
    with monkeypatch.context() as patched:
        patched.setattr("workers.attempt._Attempt._judge", dies)
        with pytest.raises(Killed):
            await at.run()
    asked = len(at.server.requests)
    report = await at.run(epoch=2)
    assert report.note.startswith("the model's context window is full, and a summary")
    assert len(at.server.requests) == asked


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


@pytest.mark.parametrize("damage", ["a changed byte", "a required stranger", "a folder"])
async def test_a_session_that_cannot_be_read(stand: Stand, damage: str) -> None:
    """It is no loss of the worker's: a person hears at once where it is damaged, and what to do; nothing is written."""
    at = stand({"blocks": [{"tool": "ask", "input": {"question": "Which?"}}]}, DONE, run="true")
    assert (await at.run()).verdict == "block"
    path = at.places.session(1)
    whole = path.read_bytes()
    wanted = "line 5 (byte "
    if damage == "a changed byte":
        lines = whole.split(b"\n")
        lines[4] = lines[4].replace(b'"', b"'", 1)
        path.write_bytes(b"\n".join(lines))
    elif damage == "a required stranger":
        number = len(at.events())
        path.write_bytes(whole + encode(Record(number, "2026-11-17T20:00:00.000+00:00", "moon", {"required": True})))
        wanted = f"line {number + 1} (byte {len(whole)}) event type 'moon' is required"
    else:
        path.unlink()
        path.mkdir()
        wanted = "cannot be read: Is a directory"
    told = await at.run(epoch=2)
    assert (told.kind, told.reason, told.cost) == ("release", "session", None)
    assert all(words in told.detail for words in (wanted, str(path), "overnight unblock a", "overnight retry a"))
    assert ("backup" in told.detail, "newer" in told.detail) == (
        damage == "a changed byte",
        damage == "a required stranger",
    )
    if path.is_dir():
        path.rmdir()
    path.write_bytes(whole)  # restored
    answer = Answered(text="This.", seq=next(n for n, e in enumerate(at.events()) if isinstance(e, ev.Pause)))
    assert (await at.run(epoch=3, answers=(answer,))).verdict == "pass"


async def test_a_session_that_somebody_else_still_writes(stand: Stand) -> None:
    """It goes back as busy: whoever holds the log will let go of it."""
    at = stand(DONE, run="true")
    with Log.open(at.places.session(1)):
        told = await at.run()
    assert (told.kind, told.reason) == ("release", "busy")


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

    async def call(model: str, request: Any, asked: Any, _ready: Any, _on_broken: Any) -> Answer:
        waits.go_on(3)
        await asyncio.sleep(1.5)
        waits.over()
        return await at.client.call(model, request, asked)

    order = at.order(**at.options)
    report: Any = await attempt(Job(order, at.lease, call, at.watch, at.heard, waits=waits))  # type: ignore[arg-type]
    assert report.verdict == "pass"
    assert waits.total > order.seconds
