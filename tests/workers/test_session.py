"""A session: typed events on the log, one owner, readers that see it whole, and old logs that always load."""

# ruff: noqa: ASYNC240 - small files of the test itself

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from workers.errors import LeaseLost, LogCorrupt, LogWriteFailed, SessionAlreadyOwnedError
from workers.log import Log, read
from workers.session import events as ev
from workers.session.session import Session, read_session
from workers.session.surface import surface

V1 = Path(__file__).parent / "data" / "session-v1.jsonl"
# What version 1 sent to the model after this log. Another value here breaks every session that is resumed.
V1_DIGEST = "e8b689787a4f40e2f4712cef318106cf3716f528ef29866c410a32c889133dfe"
V1_DIGEST_OF_47 = "b4df5f8c2415b8479585000df8f6e48f607ee58d87311ff2884ed13c77a6a0a8"
V1_TYPES = {
    *("session/start", "claim", "setup/result", "turn/start", "turn/end", "step/start", "step/end", "user/message"),
    *("assistant/message", "tool/call", "tool/result", "pause", "resume", "checkpoint", "verify/result", "report"),
    *("compaction", "session/fork", "log/torn", "agent", "images/drop", "tasks/write", "thinking/summary"),
    "call/broken",
}

START = ev.SessionStart(
    night="n",
    unit="u",
    attempt=1,
    base="b",
    digest="d",
    model="m",
    system=[{"type": "text", "text": "s"}],
    tools=[{"name": "bash"}],
)
GOAL = ev.UserMessage(source="goal", content=[{"type": "text", "text": "go"}])
STEP = ev.StepStart(step=1, model="m", max_tokens=9, request="r")
CALL = {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}}
ANSWER = ev.AssistantMessage(content=[CALL], stop_reason="tool_use", cost=Decimal("0.0123"))
CUT_OFF = (START, ev.TurnStart(turn=1), GOAL, STEP, ANSWER, ev.ToolCall(call_id="a", name="bash"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "1" / "session.jsonl"


async def write(path: Path, *batch: Any) -> None:
    session = Session.open(path)
    await session.record(*batch)
    session.close()


async def test_events_come_back_as_they_were(path: Path) -> None:
    """What was recorded loads as the same events, money exact, and with the same surface."""
    session = Session.open(path)
    assert session.append(*CUT_OFF[:3]) == 0
    assert session.append(*CUT_OFF[3:]) == 3
    assert len(session.events) == 6
    await session.flush()
    digest = session.surface.digest
    session.close()
    again = Session.open(path)
    assert tuple(again.events) == CUT_OFF
    assert again.surface.digest == digest == surface(CUT_OFF).digest
    assert again.last(ev.AssistantMessage) == ANSWER
    assert again.last(ev.Report) is None
    assert again.count(ev.TurnStart) == 1
    again.close()


async def test_one_owner_many_readers(path: Path) -> None:
    """A second owner gets SessionAlreadyOwnedError; a cold reader sees the closers in memory and writes nothing."""
    session = Session.open(path, "worker 7")
    await session.record(*CUT_OFF)
    with pytest.raises(SessionAlreadyOwnedError, match="worker 7"):
        Session.open(path)
    before = path.read_bytes()
    seen = read_session(path)
    assert tuple(seen[:6]) == CUT_OFF
    assert [type(event) for event in seen[6:]] == [ev.ToolResult, ev.StepEnd, ev.TurnEnd]
    assert path.read_bytes() == before
    session.close()


async def test_repair_is_written_by_the_owner_once(path: Path) -> None:
    """The owner appends what is missing; done again, or after another start, there is nothing to add."""
    await write(path, *CUT_OFF)
    session = Session.open(path)
    assert len(session.repair()) == 3
    assert session.repair() == []
    assert session.surface.unanswered == []
    await session.flush()
    session.close()
    again = Session.open(path)
    assert again.repair() == []
    assert len(again.events) == 9
    again.close()


async def test_a_fenced_session_takes_nothing(path: Path) -> None:
    """Once the lease is lost nothing is accepted, shown, written or promised, whatever was still pending."""
    lost = [False]
    session = Session.open(path, fenced=lambda: lost[0])
    await session.record(START)
    session.append(ev.TurnStart(turn=1))
    lost[0] = True
    before = path.read_bytes()
    messages = list(session.surface.messages)
    session.append(GOAL)
    with pytest.raises(LeaseLost):
        await session.record(STEP)
    with pytest.raises(LeaseLost):
        await session.flush()
    session.repair()
    session.close()
    assert path.read_bytes() == before
    assert session.surface.messages == messages
    assert session.events == [START, ev.TurnStart(turn=1)]


async def test_a_torn_tail_is_an_event(path: Path) -> None:
    """The index of an event is its seq, also behind a torn tail, which is an event of its own."""
    await write(path, START)
    with path.open("ab") as file:
        file.write(b'{"seq":1,"ti')
    session = Session.open(path)
    assert session.events[1] == ev.Torn(offset=len(path.read_bytes()) - 12, bytes=12, file=session.events[1].file)
    assert session.append(GOAL) == 2
    await session.flush()
    session.close()
    assert [record.seq for record in read(path).records] == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("turn/start", {"turn": "first"}, "event turn/start: .*turn"),
        ("turn/start", {"turn": 1, "mood": "good"}, "mood"),
        ("moon/phase", {"required": True}, "is required to understand"),
    ],
)
async def test_what_cannot_be_understood(path: Path, kind: str, data: dict[str, Any], reason: str) -> None:
    """A sealed line that no version wrote, or that must be understood, refuses to load and names line and offset."""
    with Log.open(path) as log:
        log.append([("session/start", START.data()), (kind, data), ("claim", {"epoch": 1, "holder": "h"})])
        log.flush()
    first = path.read_bytes().index(b"\n") + 1
    for load in (Session.open, read_session):
        with pytest.raises(LogCorrupt, match=reason) as caught:
            load(path)
        assert (caught.value.line, caught.value.offset) == (2, first)
    Log.open(path).close()  # the refused owner gave the right back


async def test_strangers_load(path: Path) -> None:
    """An event of a newer version that is not required is kept in its place and changes no surface."""
    with Log.open(path) as log:
        log.append([("session/start", START.data()), ("moon/phase", {"full": True}), ("user/message", GOAL.data())])
        log.flush()
    session = Session.open(path)
    assert session.events[1] == ev.Unknown(name="moon/phase", payload={"full": True})
    assert session.surface.digest == surface([START, GOAL]).digest
    session.close()


async def test_a_failed_flush_reaches_the_caller(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk error in the flush's thread is raised where the flush was asked for, and ends the writing."""

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    session = Session.open(path)
    monkeypatch.setattr("os.fdatasync", fail)
    with pytest.raises(LogWriteFailed):
        await session.record(START)
    monkeypatch.undo()
    with pytest.raises(LogWriteFailed):
        session.append(GOAL)
    session.close()


def test_version_1_loads(tmp_path: Path) -> None:
    """A log with every event of the first version loads, whole, and gives the model the same bytes at every step."""
    path = tmp_path / V1.name
    shutil.copy(V1, path)
    seen = read_session(path)
    assert {event.type for event in seen} == V1_TYPES
    assert set(ev._TYPES) == V1_TYPES  # until version 1 is released: afterwards a newer log has the newer types
    steps = [at for at, event in enumerate(seen) if isinstance(event, ev.StepStart)]
    assert [seen[at].request for at in steps] == [surface(seen[:at]).digest for at in steps]
    assert surface(seen[:47]).digest == V1_DIGEST_OF_47
    assert surface(seen).digest == V1_DIGEST
    assert surface(seen).unanswered == []
