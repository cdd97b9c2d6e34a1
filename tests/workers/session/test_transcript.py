"""The transcript: for people, whole, in order, harmless, with what the model no longer sees marked."""

import json
from decimal import Decimal
from typing import Any

from histories import SECRET, START, calls, says, step_start, user

from workers.session import events as ev
from workers.session.transcript import harmless, lines_of, unseen

SUMMARY = ev.Compaction(summary="Half of it is done.", steps=1)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_compacted_is_marked_and_stays() -> None:
    """What the last compaction took from the model has a mark; the first message, what had no answer, and all that is
    newer have none.
    """
    told = [
        *(START, ev.TurnStart(turn=1), user("the goal"), step_start(1), says(text("looking"), calls("a"))),
        *(ev.ToolCall(call_id="a", name="bash"), ev.ToolResult(call_id="a", content="found"), ev.StepEnd(step=1)),
        *(ev.Compaction(summary="An older one.", steps=1), user("steered", "person"), SUMMARY, step_start(2)),
        says(text("going on"), stop="end_turn"),
    ]
    shown = [line for line in lines_of(told) if line.startswith((" ", "~"))]
    marked = [line for line in shown if line.startswith("~")]
    assert [line.split()[1] for line in marked] == [
        *("answer", "text", "bash", "result", "summary", "(from"),
    ]
    unmarked = "\n".join(line for line in shown if line not in marked)
    assert all(words in unmarked for words in ("the goal", "steered", "Half of it is done.", "going on"))
    assert "looking" not in unmarked


def test_what_the_loop_adds() -> None:
    """Bundles, tasks, approvals, summaries, what was repaired or shortened: each is said in words, with its price."""
    usage = {"model": "m", "cost": Decimal("0.5")}
    told = [
        ev.AgentLoaded(name="coder", model="m", effort="low", system=[], tools=[], problem="no such file"),
        ev.ToolCall(call_id="a", name="bash", repaired={"command": "ls"}),
        ev.ToolResult(call_id="a", content="ok", trimmed={"command": "l"}),
        *(ev.Pause(call_id="a", question="git push", what="approval"), ev.Pause(call_id="a", question="Which?")),
        *(ev.Resume(call_id="a", text="No.", approved=False), ev.Resume(call_id="a", text="", approved=True)),
        ev.TasksWritten(tasks=[{"title": "One", "status": "done"}, {"title": "Two", "status": "open"}]),
        ev.ThinkingSummary(turn=1, text="It weighed two ways.", **usage),
        ev.CallBroken(why="the stream ended", **usage),
        ev.ImagesDropped(),
        *(ev.Compaction(summary="S.", steps=1, **usage), ev.Compaction(summary="", steps=1, refused="empty", **usage)),
    ]
    shown = [" ".join(line.lstrip("~").split()) for line in lines_of(told)]
    assert shown == [
        "agent coder on m, effort low no optional tools: no such file",
        *("runs bash with command=ls", "result ok", "(from here on the model sees its arguments shortened)"),
        *("approve? git push", "asks Which?", "denied No.", "approved", "tasks One done", "Two open"),
        "thought It weighed two ways. (by m $0.5000)",
        "broken the stream ended (m $0.5000)",
        "(from here on the model sees a note instead of all images in results but the newest)",
        *("summary S. (by m $0.5000)", "(from here on the model sees the summary instead of what is above)"),
        "no summary empty (by m $0.5000)",
    ]


def test_a_refused_summary_takes_nothing_away() -> None:
    """Only a summary that stands in for something marks what is above it; one that nobody saw is not marked itself."""
    told = [START, user("go"), says(calls("a")), ev.ToolResult(call_id="a", content="ok")]
    assert unseen([*told, ev.Compaction(summary="s", steps=1, refused="too long")]) == frozenset()
    assert unseen([*told, ev.Compaction(summary="s", steps=1)]) == {2, 3}
    assert unseen([*told, ev.Compaction(summary="s", steps=1, refused="too long"), SUMMARY]) == {2, 3}


def test_text_beside_calls_stays_apart() -> None:
    """Text of a round with tools is a block of its own, before the calls it announces, and not part of the answer."""
    told = [START, says(text("First."), calls("a")), ev.ToolResult(call_id="a", content="ok")]
    told.append(says(text("Last."), stop="end_turn"))
    said = [line.split(maxsplit=1) for line in lines_of(told) if line.startswith("    ")]
    assert [words for words in said if words[0] != "answer"] == [
        *(["text", "First."], ["bash", "command=true"], ["result", "ok"], ["text", "Last."]),
    ]


def test_a_verify_that_says_nothing_takes_one_line() -> None:
    """`test -f done` has no output: nothing stands below it."""
    ran = ev.VerifyResult(commit="c", tree="t", command="test -f done", digest="d", passed=True, seconds=0.1)
    before = len(list(lines_of([START])))
    (line,) = list(lines_of([START, ran]))[before:]
    assert line.split(maxsplit=1) == ["verify", "passed: test -f done"]


def test_thinking_is_never_shown() -> None:
    """Of thinking only that it happened is said, redacted or not, signature included."""
    blocks = [
        {"type": "thinking", "thinking": SECRET, "signature": "c2lnbmF0dXJl"},
        {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ"},
    ]
    lines = list(lines_of([START, says(*blocks, text("Done."), stop="end_turn")]))
    assert not any(words in "\n".join(lines) for words in (SECRET, "c2lnbmF0dXJl", "cmVkYWN0ZWQ"))
    assert [line.strip() for line in lines if "thinking)" in line] == ["(thinking)", "(redacted_thinking)"]


def test_nothing_reaches_the_terminal() -> None:
    """Escapes, bidi controls and line breaks of every kind are harmless wherever a model or a file may put them."""
    evil = "a\x1b]52;c;eA==\x07\u202eb\u2028c\x85d\re"
    told = [
        START.model_copy(update={"model": evil}),
        ev.Claim(epoch=1, holder=evil),
        says(text(evil), {**calls("a"), "name": evil, "input": {evil: evil}}, stop=evil),
        *(ev.ToolCall(call_id="a", name=evil), ev.ToolResult(call_id="a", content=evil)),
        *(ev.StepEnd(step=1, error=evil), ev.TurnEnd(turn=1, reason=evil, facts={evil: evil})),
        *(
            ev.Torn(offset=1, bytes=1, file=evil),
            ev.Unknown(name=evil, payload={}),
            ev.Pause(call_id="a", question=evil),
        ),
        *(ev.Checkpoint(commit="c", tree="t", taken_back=[evil]), ev.Report(report={"verdict": evil, "note": evil})),
    ]
    for line in lines_of(told):
        assert line.isprintable(), json.dumps(line)
    assert harmless("one\ntwo") == "one\ntwo"


def test_long_things_are_shortened_in_the_middle() -> None:
    """A long output has its beginning and its end; so has a long line."""
    lines = list(lines_of([ev.ToolResult(call_id="a", content="\n".join(map(str, range(100))))]))
    assert len(lines) == 13
    assert (lines[0].split()[-1], lines[6].strip(), lines[-1].strip()) == ("0", "… 88 lines …", "99")
    (line,) = lines_of([ev.ToolResult(call_id="a", content="a" * 500_000 + "z")])
    assert len(line) < 2_100
    assert line.endswith("az")
