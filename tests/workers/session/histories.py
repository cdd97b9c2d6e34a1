"""Histories as the turn loop leaves them, made up by hypothesis from a small model of the loop.

Their thinking is signed as the rehearsal server signs it, so its rules can judge what is derived from them.
"""

from decimal import Decimal
from itertools import count
from typing import Any

from hypothesis import strategies as st

from workers.rehearsal import rules, seal
from workers.rehearsal.history import build
from workers.rehearsal.models import BUILT_IN_MODELS
from workers.session import events as ev
from workers.session.repair import forked_turn_closers, interrupted_turn_closers
from workers.session.surface import request, surface

START = ev.SessionStart(
    night="1117-abc",
    unit="round-totals",
    attempt=1,
    base="b" * 40,
    digest="d",
    model="claude-sonnet-5-5",
    system=[{"type": "text", "text": "Work."}],
    tools=[{"name": name, "input_schema": {"type": "object"}} for name in ("bash", "ask")],
)
MODEL = BUILT_IN_MODELS["claude-sonnet-5-5"]
SECRET = "sssh"  # what no transcript may say
ENDINGS = ("completed", "aborted", "blocked", "error", "max-tokens", "something-new")
STEPS = ("tools", "tools", "tools", "question", "rejected", "paused", "empty", "last", "cut", "failed")


def user(words: str, source: Any = "goal") -> ev.UserMessage:
    return ev.UserMessage(source=source, content=[{"type": "text", "text": words}])


def says(*content: dict[str, Any], stop: str = "tool_use") -> ev.AssistantMessage:
    return ev.AssistantMessage(content=list(content), stop_reason=stop, cost=Decimal("0.01"))


def calls(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "bash", "input": {"command": "true"}}


def step_start(step: int) -> ev.StepStart:
    return ev.StepStart(step=step, model="claude-sonnet-5-5", max_tokens=128_000, request="r")


class Teller:
    """Tells one session, step by step, as `draw` decides; a `rich` one with thinking, compactions and forks."""

    def __init__(self, draw: Any, *, rich: bool = False) -> None:
        self.draw = draw
        self.rich = rich
        self.told: list[Any] = [START, ev.Claim(epoch=1, holder="h")]
        self.turn = 0
        self.steps = count(1)
        self.ids = count(1)
        self.epochs = count(2)

    def tell(self, turns: int = 3) -> list[Any]:
        for _ in range(self.draw(st.integers(int(self.rich), turns))):
            if not self.one_turn():
                break
            if self.rich and self.draw(st.integers(0, 2)) == 0:
                self.fork()
        return self.told

    def fork(self) -> None:
        """Go on from a prefix, as another attempt."""
        at = self.draw(st.integers(1, len(self.told)))
        prefix = [event for event in self.told[:at] if not isinstance(event, ev.Claim)]
        self.told = [*prefix, ev.SessionFork(source=1, at=at, attempt=2), *forked_turn_closers(prefix)]
        self.told.append(ev.Claim(epoch=next(self.epochs), holder="h"))

    def compact(self) -> None:
        if self.rich and self.draw(st.integers(0, 3)) == 0 and surface(self.told).messages:
            self.told.append(ev.Compaction(summary="So far so good.", steps=1))

    def thinks(self) -> list[dict[str, Any]]:
        if not self.rich or not self.draw(st.booleans()):
            return []
        before = build(body(self.told)).digest
        return [{"type": "thinking", "thinking": SECRET, "signature": seal.sign(SECRET, before)}]

    def one_turn(self) -> bool:
        """Tell a turn; False when it is suspended and nobody answers."""
        self.turn += 1
        self.told += [ev.TurnStart(turn=self.turn), user(f"turn {self.turn}")]
        for _ in range(self.draw(st.integers(2 if self.rich else 0, 4))):
            self.compact()
            if self.rich and self.draw(st.integers(0, 3)) == 0:
                self.told.append(ev.Unknown(name="moon/phase", payload={"full": True, "version": 3}))
            kind = self.draw(st.sampled_from(STEPS))
            step = next(self.steps)
            self.told.append(step_start(step))
            if kind == "question" and not self.question(step):
                return False
            if kind == "failed":
                self.told.append(ev.StepEnd(step=step, error="transient"))
                break
            if kind in ("last", "cut"):
                self.told += [
                    says(*self.thinks(), {"type": "text", "text": "Done."}, stop="end_turn"),
                    ev.StepEnd(step=step),
                ]
                break
            if kind != "question":
                self.plain(kind, step)
        if self.draw(st.booleans()):
            self.told.append(ev.TurnEnd(turn=self.turn, reason=self.draw(st.sampled_from(ENDINGS))))
            self.compact()
        else:
            self.crash()
        return not is_suspended(self.told)  # cut off just behind its question

    def plain(self, kind: str, step: int) -> None:
        if kind == "paused":
            self.told += [says({"type": "text", "text": "Wait."}, stop="pause_turn"), ev.StepEnd(step=step)]
            return
        if kind == "empty":
            self.told += [says(stop="pause_turn"), ev.StepEnd(step=step)]
            return
        names = self.asked()
        for name in names:
            if kind == "tools":
                self.told.append(ev.ToolCall(call_id=name, name="bash"))
            self.told.append(ev.ToolResult(call_id=name, content=self.draw(st.sampled_from(["", "ok"]))))
        self.told.append(ev.StepEnd(step=step))

    def asked(self, *more: str) -> list[str]:
        names = [f"c{next(self.ids)}" for _ in range(self.draw(st.integers(1, 3 if self.rich else 12)))]
        words = [{"type": "text", "text": "Now."}] if self.draw(st.booleans()) else []
        self.told.append(says(*self.thinks(), *words, *(calls(name) for name in [*more, *names])))
        return names

    def question(self, step: int) -> bool:
        asking = f"q{next(self.ids)}"
        for name in self.asked(asking):
            self.told += [ev.ToolCall(call_id=name, name="bash"), ev.ToolResult(call_id=name, content="ok")]
        self.told.append(ev.Pause(call_id=asking, question="Which?"))
        if not self.draw(st.booleans()):
            return False
        self.told += [
            ev.Claim(epoch=next(self.epochs), holder="h"),
            ev.Resume(call_id=asking, text="This."),
            ev.ToolResult(call_id=asking, content="This."),
            ev.StepEnd(step=step),
        ]
        return True

    def crash(self) -> None:
        """Cut off what was told last, as a crash would, and take it up again."""
        turn_began = max(i for i, event in enumerate(self.told) if isinstance(event, ev.TurnStart))
        keep = self.draw(st.integers(turn_began + 1, len(self.told)))
        del self.told[keep:]
        self.told += interrupted_turn_closers(self.told)
        self.told.append(ev.Claim(epoch=next(self.epochs), holder="h"))


@st.composite
def histories(draw: Any) -> list[Any]:
    """Whole logs, with crashes that were repaired, in the order in which the loop writes them."""
    return Teller(draw).tell()


@st.composite
def tales(draw: Any, turns: int = 2) -> list[Any]:
    """Whole logs with everything in them: signed thinking, compactions and forks too."""
    return Teller(draw, rich=True).tell(turns)


def body(history: list[Any]) -> dict[str, Any]:
    """Return the request that a history gives, as it would be sent."""
    made = request(surface(history))
    return {
        "model": START.model,
        "max_tokens": 128_000,
        "stream": True,
        "thinking": {"type": "adaptive"},
        "system": made.system,
        "tools": made.tools,
        "messages": made.messages,
    }


def refusal(history: list[Any]) -> Any:
    """Return what the rehearsal server's rules say against the request that a history gives; None: accepted."""
    asked = body(history)
    return rules.shape(asked, BUILT_IN_MODELS) or rules.content(asked, build(asked), MODEL)


def gone_on(history: list[Any]) -> list[Any]:
    """Return a repaired history up to the next request: the question is answered, or a message starts a turn."""
    waiting = surface(history).unanswered
    if waiting:
        return [*history, *(ev.ToolResult(call_id=call, content="This.") for call in waiting)]
    return [*history, user("Go on.", "runtime")]


def is_suspended(history: list[Any]) -> bool:
    """Say whether a question waits for its answer."""
    answered = {event.call_id for event in history if isinstance(event, ev.ToolResult)}
    return any(isinstance(event, ev.Pause) and event.call_id not in answered for event in history)
