"""Whatever happened in a session and wherever its log was cut off: it loads, it can be repaired, and it goes on."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from histories import SECRET, START, gone_on, is_suspended, refusal
from hypothesis import HealthCheck, given, settings
from tales import SUMMARY, tales

from workers.log import Log, Record, encode, parse, read
from workers.resume import Suspended, standing
from workers.session import events as ev
from workers.session.repair import interrupted_turn_closers
from workers.session.session import Session, load_events, read_session
from workers.session.surface import IMAGES_GONE, surface
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


def without_thinking(messages: list[Any]) -> list[Any]:
    kept = [{**m, "content": [b for b in m["content"] if "thinking" not in b["type"]]} for m in messages]
    return [message for message in kept if message["content"]]


def results_with_images(messages: list[Any]) -> list[Any]:
    return [b for m in messages for b in m["content"] if b["type"] == "tool_result" and "'image'" in str(b["content"])]


def without_images(messages: list[Any], gone: list[Any]) -> list[Any]:
    """Messages with a note in place of each image of the results that are `gone`."""
    made = json.loads(json.dumps(messages))
    for block in (block for message in made for block in message["content"] if block in gone):
        block["content"] = [
            {"type": "text", "text": IMAGES_GONE} if p["type"] == "image" else p for p in block["content"]
        ]
    return made


def trimmed(messages: list[Any], event: ev.ToolResult) -> list[Any]:
    """Messages whose last one, an answer that was not sent yet, has the call's arguments shortened."""
    *sent, last = messages
    content = [{**b, "input": event.trimmed} if b.get("id") == event.call_id else b for b in last["content"]]
    return [*sent, {**last, "content": content}]


@SOME
@given(tales())
def test_what_rewrites_what_was_sent(told: list[Any]) -> None:
    """Every event leaves the messages before it as they are, except four.

    A compaction begins them anew, and short: what the model has not answered yet stays behind its summary. Dropped
    images and another head take the thinking away, and nothing else that they do not say. Trimmed arguments change the
    answer that is yet to be sent.
    """
    before, head = surface([]), (START.system, START.tools, START.model)
    for cut in range(1, len(told) + 1):
        now, was = surface(told[:cut]), before.messages
        match told[cut - 1]:
            case ev.Compaction(refused=""):
                is_compacted(told[:cut], now.messages)
            case ev.ImagesDropped():
                assert now.messages == without_images(without_thinking(was), results_with_images(was)[:-1])
            case ev.AgentLoaded() as loaded if (loaded.system, loaded.tools, loaded.model) != head:
                head = (loaded.system, loaded.tools, loaded.model)
                assert now.messages == without_thinking(was)
            case ev.ToolResult(trimmed=dict()) as result:
                shorter = trimmed(was, result)
                assert now.messages[: len(was)] == shorter != was
            case _:
                assert now.messages[: len(was)] == was
        assert (now.system, now.tools) == head[:2]
        before = now


def is_compacted(told: list[Any], now: list[Any]) -> None:
    answers = [at for at, event in enumerate(told) if isinstance(event, ev.AssistantMessage)]
    unheard = [event.content for event in told[max([0, *answers]) :] if isinstance(event, ev.UserMessage)]
    assert [message["content"] for message in now[1:]] == unheard[len(answers) == 0 :]
    assert now[0]["content"][:-1] == next(e.content for e in told if isinstance(e, ev.UserMessage))
    assert SUMMARY in now[0]["content"][-1]["text"]


@SOME
@given(tales())
def test_a_request_extends_the_last_one(told: list[Any]) -> None:
    """Of the requests themselves: each has the last one's messages in front, until one of three events stands between.

    A compaction, dropped images, another head: trimmed arguments are none of them, they were not sent before.
    """
    view, sent = surface([]), []
    for event in told:
        view.add(event)
        match event:
            case ev.Compaction() | ev.ImagesDropped() | ev.AgentLoaded():
                sent = []
            case ev.StepStart():
                assert view.messages[: len(sent)] == sent
                sent = list(view.messages)


@SOME
@given(tales())
def test_what_was_approved_ran_once(told: list[Any]) -> None:
    """Wherever it is cut off, no call starts twice, none that waits has started, and none that was denied ever does."""
    started = [event.call_id for event in told if isinstance(event, ev.ToolCall)]
    assert len(started) == len(set(started))
    denied = {event.call_id for event in told if isinstance(event, ev.Resume) and event.approved is False}
    assert not denied & set(started)
    for cut in range(1, len(told) + 1):
        where = standing([*told[:cut], *interrupted_turn_closers(told[:cut])], ())
        if isinstance(where, Suspended):
            assert where.pause.call_id not in {event.call_id for event in told[:cut] if isinstance(event, ev.ToolCall)}


def test_a_tale_has_everything() -> None:
    """No event type is left out of what is tried above: one that is added must be told too."""
    found: set[type] = set()

    @settings(SOME, max_examples=100, derandomize=True, database=None)
    @given(tales())
    def look(told: list[Any]) -> None:
        found.update(map(type, told))

    look()
    assert found == {*get_args(get_args(ev.Event)[0]), ev.Unknown}


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
            case ev.Compaction(refused=""):
                later = [event for event in told[seq + 1 :] if isinstance(event, ev.Compaction) and not event.refused]
                assert (seq in gone) == bool(later)
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
