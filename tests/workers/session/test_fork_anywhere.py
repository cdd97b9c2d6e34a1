"""Fork at every boundary of any history: a session of its own that the API accepts, from a source left as it was."""

from pathlib import Path
from typing import Any

import pytest
from histories import gone_on, refusal
from hypothesis import HealthCheck, given, settings
from tales import tales

from workers.errors import LogError
from workers.log import Log
from workers.resume import Fresh, standing
from workers.session import events as ev
from workers.session.fork import fork
from workers.session.repair import interrupted_turn_closers
from workers.session.session import Session, read_session
from workers.session.surface import surface

FEW = settings(max_examples=8, deadline=None, suppress_health_check=(HealthCheck.too_slow,))


def write(path: Path, told: list[Any]) -> None:
    with Log.open(path) as log:
        log.append([event.stored() for event in told])
        log.flush()


@FEW
@given(told=tales())
def test_at_every_boundary(told: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    """What was said is there, nothing is open, an open turn is `forked`, and the source has not changed by a byte."""
    folder = tmp_path_factory.mktemp("fork")
    source = folder / "1" / "session.jsonl"
    write(source, told)
    before = source.read_bytes(), source.stat().st_mtime_ns
    for at in range(1, len(told) + 1):
        target = Session.open(folder / f"to-{at}" / "session.jsonl")
        fork(source, at, target, source_attempt=1, attempt=2)
        target._log.flush()
        target.close()
        forked = read_session(target.path)
        kept = [event for event in told[:at] if not isinstance(event, ev.Claim | ev.Torn)]
        assert forked[: len(kept)] == kept
        assert forked[len(kept)] == ev.SessionFork(source=1, at=at, attempt=2)
        closers = forked[len(kept) + 1 :]
        assert interrupted_turn_closers(forked) == []
        is_open = sum((isinstance(e, ev.TurnStart) - isinstance(e, ev.TurnEnd)) for e in kept) > 0
        assert [e.reason for e in closers if isinstance(e, ev.TurnEnd)] == ["forked"] * is_open
        view = surface(forked)
        assert view.unanswered == []
        assert view.messages[: len(surface(kept).messages)] == surface(kept).messages
        assert refusal(gone_on(forked)) is None
        if not view.messages:
            assert standing(forked, ()) == Fresh()  # the goal is still due
    assert (source.read_bytes(), source.stat().st_mtime_ns) == before


def test_nothing_is_shared(tmp_path: Path) -> None:
    """What goes on in the fork or in the source is not seen in the other, nor are their blocks the same objects."""
    start = ev.SessionStart(night="n", unit="u", attempt=1, base="b", digest="d", model="m", system=[], tools=[])
    goal = ev.UserMessage(source="goal", content=[{"type": "text", "text": "go"}])
    source = Session.open(tmp_path / "1" / "session.jsonl")
    source.append(start, ev.TurnStart(turn=1), goal)
    source._log.flush()
    target = Session.open(tmp_path / "2" / "session.jsonl")
    fork(source.path, 3, target, source_attempt=1, attempt=2)
    target.surface.messages[0]["content"][0]["text"] = "changed"
    assert source.surface.messages[0]["content"][0]["text"] == "go"
    source.append(ev.TurnEnd(turn=1, reason="completed"))
    assert len(target.events) == 5
    source.close()
    target.close()


@pytest.mark.parametrize("at", [-1, 0, 2])
def test_no_such_boundary(tmp_path: Path, at: int) -> None:
    """A boundary outside of the source is refused, and the target stays empty."""
    write(tmp_path / "1" / "session.jsonl", [ev.TurnStart(turn=1)])
    target = Session.open(tmp_path / "2" / "session.jsonl")
    with pytest.raises(LogError, match=f"a fork at {at} is not possible"):
        fork(tmp_path / "1" / "session.jsonl", at, target, source_attempt=1, attempt=2)
    assert target.events == []
    target.close()
