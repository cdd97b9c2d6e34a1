"""Strangers: an ending, an event or a block that this version does not know goes through every consumer (spec L8)."""

from typing import Any

import pytest
from histories import START, calls, gone_on, refusal, says, step_start, user

from workers.resume import Interrupted, standing
from workers.session import endings
from workers.session import events as ev
from workers.session.endings import Ending, ending, register
from workers.session.repair import forked_turn_closers, interrupted_turn_closers
from workers.session.session import read_session
from workers.session.surface import surface
from workers.session.transcript import lines_of

STRANGER = ev.TurnEnd(turn=1, reason="eaten-by-a-whale", facts={"cause": "whale\x1b[2J", "depth": 900})
TURN = [
    START,
    ev.TurnStart(turn=1),
    user("go"),
    step_start(1),
    says(calls("a")),
    ev.ToolResult(call_id="a", content=""),
]
TOLD = [*TURN, ev.StepEnd(step=1), STRANGER, ev.Unknown(name="moon/phase", payload={"full": True})]


def test_an_unknown_ending_ends_a_turn() -> None:
    """Repair and fork have nothing to close, the next request is accepted, and the agent is told to go on."""
    assert interrupted_turn_closers(TOLD) == forked_turn_closers(TOLD) == []
    assert surface(TOLD).digest == surface(TURN).digest
    assert refusal(gone_on(TOLD)) is None
    assert standing(TOLD, ()) == Interrupted()


def test_an_unknown_ending_is_shown() -> None:
    """People read its name and its facts, made harmless, and the unknown event's name."""
    lines = list(lines_of(TOLD))
    assert any("eaten-by-a-whale (unknown to this version)" in line and "depth=900" in line for line in lines)
    assert "(moon/phase)" in lines
    assert "\x1b" not in "".join(lines)


def test_a_registered_ending_is_no_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin's ending has words of its own; a second meaning for a name is refused."""
    monkeypatch.setattr(endings, "_KNOWN", dict(endings._KNOWN))
    mine = Ending("eaten-by-a-whale", "loop", "eaten")
    register(mine)
    register(mine)
    assert ending("eaten-by-a-whale") is mine
    assert any(line.startswith("turn end    eaten  ") for line in lines_of(TOLD))
    with pytest.raises(ValueError, match="registered already"):
        register(Ending("completed", "loop", "something else"))


def test_the_seven_endings() -> None:
    """Each of spec L7's reasons has words; no loop writes the last two."""
    names = ("completed", "aborted", "blocked", "error", "max-tokens", "interrupted", "forked")
    assert {name: ending(name).by for name in names[-2:]} == {"interrupted": "repair", "forked": "fork"}
    assert {ending(name).by for name in names[:-2]} == {"loop"}


def test_unknown_blocks_are_named() -> None:
    """A kind of block that this version does not know is named for people, and goes to the model as it came."""
    strange: dict[str, Any] = {"type": "hologram", "data": "x"}
    told = [START, ev.TurnStart(turn=1), user("go"), says(strange, stop="end_turn")]
    told.append(ev.UserMessage(source="person", content=[strange]))
    assert [line for line in lines_of(told) if "(hologram)" in line] == ["    (hologram)", "    person    (hologram)"]
    assert surface(told).messages[1]["content"] == [strange]


class _Tomorrow(ev._Event):
    type = "moon/landing"
    required = True
    where: str


def test_what_a_newer_version_marks_as_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker is written by the version that knows the type, read back by it, and refused by this one."""
    data = _Tomorrow(where="here").data()
    assert data == {"where": "here", "required": True}
    with pytest.raises(ev.WrittenByNewer, match="'moon/landing' is required"):
        ev.load("moon/landing", data)
    monkeypatch.setitem(ev._TYPES, "moon/landing", _Tomorrow)
    monkeypatch.setitem(ev._VALIDATE, "moon/landing", _Tomorrow.model_validate)
    assert ev.load("moon/landing", data) == _Tomorrow(where="here")


def test_a_newer_version_of_the_format() -> None:
    """A session of a later version says so."""
    with pytest.raises(ev.WrittenByNewer, match="was written by version 2 of the format"):
        ev.load("session/start", {**START.data(), "version": 2})


def test_nothing_unknown_in_what_is_known() -> None:
    """A known type with a field that no version wrote does not load, whatever its checksum says."""
    for data in ({"turn": 1, "mood": "good"}, {"turn": 1, "required": True}, {}, {"turn": "one"}):
        with pytest.raises(ValueError, match=r"event turn/start: (mood|required|turn): "):
            ev.load("turn/start", data)


def test_a_cold_reader_of_nothing(tmp_path: Any) -> None:
    """A session that is not there yet is empty for readers, and they make nothing."""
    assert read_session(tmp_path / "1" / "session.jsonl") == []
    assert list(tmp_path.iterdir()) == []
