"""Whatever happened in a session and wherever its log was cut off: it loads, it can be repaired, and it goes on."""

from pathlib import Path
from typing import Any

import pytest
from histories import SECRET, gone_on, is_suspended, refusal, tales
from hypothesis import HealthCheck, given, settings

from workers.log import Log, Record, encode, parse, read
from workers.session import events as ev
from workers.session.repair import interrupted_turn_closers
from workers.session.session import Session, load_events, read_session
from workers.session.surface import surface
from workers.session.transcript import lines_of_event, unseen

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
FEW = settings(max_examples=12, deadline=None, suppress_health_check=SLOW)
SOME = settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
MANY = settings(max_examples=150, deadline=None, suppress_health_check=SLOW)


def lines(told: list[Any]) -> list[bytes]:
    return [encode(Record(seq, "2026-11-17T20:00:00.000+00:00", *event.stored())) for seq, event in enumerate(told)]


def loads_at_every_byte(told: list[Any]) -> None:
    written = lines(told)
    whole, at = b"".join(written), 0
    for count, line in enumerate([*written, b""]):
        for cut in range(at, at + max(1, len(line))):
            found = parse(Path("session.jsonl"), whole[:cut])
            assert (len(found.records), found.end, found.tail) == (count, at, whole[at:cut])
        assert load_events(Path("session.jsonl"), found.records) == told[:count]
        at += len(line)


def goes_on_from(history: list[Any]) -> None:
    closers = interrupted_turn_closers(history)
    repaired = [*history, *closers]
    assert interrupted_turn_closers(repaired) == []
    assert bool(surface(repaired).unanswered) == is_suspended(history)
    assert refusal(gone_on(repaired)) is None


@FEW
@given(tales())
def test_loads_when_cut_at_any_byte(told: list[Any]) -> None:
    """A log that ends anywhere gives its whole lines as they were written, and the rest as a torn tail."""
    loads_at_every_byte(told)


@pytest.mark.soak
@settings(MANY, max_examples=60)
@given(tales(turns=3))
def test_loads_when_cut_at_any_byte_of_many(told: list[Any]) -> None:
    """The same, of many more and longer histories."""
    loads_at_every_byte(told)


@SOME
@given(tales())
def test_cut_repaired_and_accepted(told: list[Any]) -> None:
    """Cut behind any event and repaired (twice changes nothing), the next request is one that the API takes."""
    for cut in range(1, len(told) + 1):
        goes_on_from(told[:cut])


@pytest.mark.soak
@MANY
@given(tales(turns=4))
def test_many_cut_repaired_and_accepted(told: list[Any]) -> None:
    """The same, of many more and longer histories."""
    for cut in range(1, len(told) + 1):
        goes_on_from(told[:cut])


@settings(FEW, max_examples=6)
@given(told=tales(turns=1))
def test_the_owner_writes_the_repair(told: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    """On disk: an owner of a log with a torn tail repairs it once; the next owner and a cold reader see it whole."""
    written = lines(told)
    folder = tmp_path_factory.mktemp("sessions")
    for count in range(len(written)):
        path = folder / str(count) / "session.jsonl"
        path.parent.mkdir()
        path.write_bytes(b"".join(written[:count]) + written[count][: len(written[count]) // 2])
        cold = read_session(path)
        session = Session.open(path)
        torn = session.events[count]
        assert isinstance(torn, ev.Torn)
        closers = session.repair()
        assert session.repair() == []
        assert [*told[:count], torn, *closers] == session.events
        assert cold == [*told[:count], *closers]
        session._log.flush()
        session.close()
        again = Session.open(path)
        assert again.repair() == []
        assert again.events == session.events == read_session(path)
        assert again.surface.digest == surface(cold).digest
        again.close()


@SOME
@given(tales())
def test_only_a_compaction_rewrites_what_was_sent(told: list[Any]) -> None:
    """Every event leaves the messages before it as they are, except a compaction: it begins them anew, and short.

    What the model has not answered yet stays behind its summary.
    """
    before: list[Any] = []
    for cut in range(1, len(told) + 1):
        now = surface(told[:cut]).messages
        if isinstance(told[cut - 1], ev.Compaction):
            answers = [at for at, event in enumerate(told[:cut]) if isinstance(event, ev.AssistantMessage)]
            unheard = [event.content for event in told[max([0, *answers]) : cut] if isinstance(event, ev.UserMessage)]
            assert [message["content"] for message in now[1:]] == unheard[len(answers) == 0 :]
            assert now[0]["content"][:-1] == next(e.content for e in told if isinstance(e, ev.UserMessage))
            assert "So far so good." in now[0]["content"][-1]["text"]
        else:
            assert now[: len(before)] == before
        before = now


@SOME
@given(tales())
def test_the_transcript_has_everything_but_thinking(told: list[Any]) -> None:
    """Every event has lines, in order, compacted or not, and none of them has the model's thinking in it."""
    gone = unseen(told)
    for seq, event in enumerate(told):
        shown = list(lines_of_event(event, is_unseen=seq in gone))
        assert shown
        assert SECRET not in "\n".join(shown)
        assert all("\n" not in line for line in shown)


@SOME
@given(tales())
def test_what_is_marked_is_what_the_model_cannot_see(told: list[Any]) -> None:
    """The marks stand on exactly those messages and results that the surface no longer has."""
    gone = unseen(told)
    seen = str(surface(told).messages)
    for seq, event in enumerate(told):
        match event:
            case ev.AssistantMessage():
                ids = [block["id"] for block in event.content if block["type"] == "tool_use"]
                if ids:
                    assert all((f"'id': '{name}'" in seen) == (seq not in gone) for name in ids)
            case ev.Compaction():
                assert (seq in gone) == any(isinstance(later, ev.Compaction) for later in told[seq + 1 :])
            case ev.UserMessage() | ev.ToolResult():
                pass
            case _:
                assert seq not in gone


def test_a_file_never_holds_history_twice(tmp_path: Path) -> None:
    """Ten compactions add ten summaries to the file, and nothing that stood in it before."""
    path = tmp_path / "session.jsonl"
    with Log.open(path) as log:
        for number in range(10):
            before = path.read_bytes() if number else b""
            log.append([("user/message", {"text": f"what was said {number} " * 50})])
            log.append([("compaction", ev.Compaction(summary=f"summary {number}", steps=number).data())])
            log.flush()
            after = path.read_bytes()
            assert after.startswith(before)
            assert len(after) - len(before) < 2_000
    assert all(path.read_bytes().count(b"what was said %d " % number) == 50 for number in range(10))
    assert len(read(path).records) == 20
