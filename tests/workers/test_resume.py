"""Where a session stands when it is taken up: from its events alone."""

from typing import Any

import pytest

from workers.orders import Answered, UnitReport
from workers.resume import (
    CutShort,
    Fresh,
    Interrupted,
    Settled,
    Suspended,
    Unverified,
    Verified,
    standing,
)
from workers.session import events as ev
from workers.session.repair import interrupted_turn_closers
from workers.turn.stops import WINDOW_FULL

START = ev.SessionStart(night="n", unit="u", attempt=1, base="b", digest="d", model="m", system=[], tools=[])
CLAIM = ev.Claim(epoch=1, holder="h")
GOAL = ev.UserMessage(source="goal", content=[{"type": "text", "text": "go"}])
STEP = ev.StepStart(step=1, model="m", max_tokens=9, request="r")
DONE = ev.AssistantMessage(content=[{"type": "text", "text": "Done."}], stop_reason="end_turn")
ASKING = ev.AssistantMessage(
    content=[{"type": "tool_use", "id": "q", "name": "ask", "input": {}}], stop_reason="tool_use"
)
PAUSE = ev.Pause(call_id="q", question="Which?")
TORN = ev.Torn(offset=1, bytes=1, file="f")
LOADED = ev.AgentLoaded(name="coder", model="m", effort="high", system=[], tools=[])

BEGUN = [START, CLAIM, ev.TurnStart(turn=1), GOAL, STEP]
COMPLETED = [*BEGUN, DONE, ev.StepEnd(step=1), ev.TurnEnd(turn=1, reason="completed")]
SUSPENDED = [*BEGUN, ASKING, PAUSE]


def ended(reason: str, **facts: Any) -> list[Any]:
    return [*COMPLETED[:-1], ev.TurnEnd(turn=1, reason=reason, facts=facts)]


def verified(passed: bool) -> ev.VerifyResult:
    return ev.VerifyResult(commit="c", tree="t", command="make", digest="d", passed=passed, seconds=1)


def reported(verdict: Any = "pass", **more: Any) -> ev.Report:
    report = UnitReport(night="n", unit="u", attempt=1, epoch=1, verdict=verdict, **more)
    return ev.Report(report=report.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("history", "where"),
    [
        ([], Fresh()),
        ([START, CLAIM], Fresh()),
        ([START, CLAIM, ev.SetupResult(ok=True, seconds=1)], Fresh()),
        (COMPLETED, Unverified()),
        ([*COMPLETED, ev.Checkpoint(commit="c", tree="t")], Unverified()),
        ([*COMPLETED, CLAIM, TORN, CLAIM], Unverified()),
        ([*COMPLETED, verified(True)], Verified(verified(True))),
        ([*COMPLETED, verified(False), CLAIM], Verified(verified(False))),
        (ended("max-tokens"), CutShort()),
        (ended("max-tokens", error=WINDOW_FULL), CutShort(WINDOW_FULL)),
        (ended("aborted"), Interrupted()),
        (ended("error"), Interrupted()),
        (ended("interrupted"), Interrupted()),
        (ended("a-stranger"), Interrupted()),
    ],
    ids=str,
)
def test_from_the_last_thing_that_happened(history: list[Any], where: Any) -> None:
    """The newest ending or verdict decides; claims and torn tails behind it change nothing."""
    assert standing(history, ()) == where


def test_a_turn_that_was_cut_off_goes_on() -> None:
    """A repaired turn whose message was stored goes on, wherever it was cut."""
    for cut in range(4, len(COMPLETED)):
        history = COMPLETED[:cut]
        assert standing([*history, *interrupted_turn_closers(history)], ()) == Interrupted()


@pytest.mark.parametrize("torn", [[], [TORN], [LOADED], [LOADED, TORN], [ev.Unknown(name="x/y", payload={})]])
def test_a_turn_without_its_message_never_was(torn: list[Any]) -> None:
    """A turn cut off before its message was stored does not swallow it: the goal, or verify's output, is still due."""
    first = [START, CLAIM, ev.TurnStart(turn=1), *torn]
    assert standing([*first, *interrupted_turn_closers(first), CLAIM], ()) == Fresh()
    second = [*COMPLETED, verified(False), ev.TurnStart(turn=2), *torn]
    assert standing([*second, *interrupted_turn_closers(second), CLAIM], ()) == Verified(verified(False))


def test_suspended() -> None:
    """A stored question waits, with the answer that names its seq and no other."""
    seq = SUSPENDED.index(PAUSE)
    assert standing(SUSPENDED, ()) == Suspended(PAUSE, seq, None)
    assert standing(SUSPENDED, [Answered(text="Late.", seq=seq - 1)]) == Suspended(PAUSE, seq, None)
    answers = [Answered(text="Old.", seq=2), Answered(text="This.", seq=seq)]
    assert standing([*SUSPENDED, CLAIM], answers) == Suspended(PAUSE, seq, answers[-1])


def test_an_answer_is_to_one_call() -> None:
    """A yes to another call at the same place, of a session that was lost, is none; the last word holds."""
    seq = SUSPENDED.index(PAUSE)
    other = Answered(text="", seq=seq, call="another", approved=True)
    assert standing([*SUSPENDED, CLAIM], [other]) == Suspended(PAUSE, seq, None)
    yes = Answered(text="", seq=seq, call=PAUSE.call_id, approved=True)
    no = yes.model_copy(update={"approved": False})
    assert standing([*SUSPENDED, CLAIM], [yes, no, other]) == Suspended(PAUSE, seq, no)


def test_an_answered_question_is_over() -> None:
    """Once the answer is the call's result, the question suspends nothing any more."""
    history = [*SUSPENDED, ev.Resume(call_id="q", text="This."), ev.ToolResult(call_id="q", content="This.")]
    repaired = [*history, *interrupted_turn_closers(history)]
    assert standing(repaired, [Answered(text="This.", seq=6)]) == Interrupted()


@pytest.mark.parametrize("behind", [[], [CLAIM], [CLAIM, TORN, CLAIM]])
def test_a_report_is_sent_again(behind: list[Any]) -> None:
    """A session that ends in a verdict is finished, whatever hand-outs came after it."""
    where = standing([*COMPLETED, verified(True), reported(), *behind], ())
    assert isinstance(where, Settled)
    assert UnitReport.model_validate(where.report).verdict == "pass"


def test_a_reported_question() -> None:
    """A question that was reported is reported again until somebody answers it; then the session goes on."""
    history = [*SUSPENDED, reported("block", question="Which?", pause_seq=6), CLAIM]
    assert isinstance(standing(history, ()), Settled)
    assert standing(history, [Answered(text="This.", seq=6)]) == Suspended(PAUSE, 6, Answered(text="This.", seq=6))
    went_on = [*history, ev.Resume(call_id="q", text="This."), ev.ToolResult(call_id="q", content="This.")]
    went_on += [ev.StepEnd(step=1), ev.TurnEnd(turn=1, reason="completed")]
    assert isinstance(standing(went_on, [Answered(text="This.", seq=6)]), Unverified)
