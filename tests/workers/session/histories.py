"""Plain histories as the turn loop leaves them, made up by hypothesis; `tales` has those with everything in them.

What is derived from either is judged by the rehearsal server's rules.
"""

from decimal import Decimal
from itertools import count
from typing import Any

from hypothesis import strategies as st

from workers.rehearsal import rules
from workers.rehearsal.history import build
from workers.rehearsal.models import BUILT_IN_MODELS
from workers.session import events as ev
from workers.session.repair import interrupted_turn_closers
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
    """Tells one session, step by step, as `draw` decides."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.told: list[Any] = [START, ev.Claim(epoch=1, holder="h")]
        self.turn = 0
        self.steps = count(1)
        self.ids = count(1)
        self.epochs = count(2)

    def tell(self, turns: int = 3) -> list[Any]:
        for _ in range(self.draw(st.integers(0, turns))):
            if not self.one_turn():
                break
        return self.told

    def one_turn(self) -> bool:
        """Tell a turn; False when it is suspended and nobody answers."""
        self.turn += 1
        self.told += [ev.TurnStart(turn=self.turn), user(f"turn {self.turn}")]
        for _ in range(self.draw(st.integers(0, 4))):
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
                    says({"type": "text", "text": "Done."}, stop="end_turn"),
                    ev.StepEnd(step=step),
                ]
                break
            if kind != "question":
                self.plain(kind, step)
        if self.draw(st.booleans()):
            self.told.append(ev.TurnEnd(turn=self.turn, reason=self.draw(st.sampled_from(ENDINGS))))
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
        names = [f"c{next(self.ids)}" for _ in range(self.draw(st.integers(1, 12)))]
        words = [{"type": "text", "text": "Now."}] if self.draw(st.booleans()) else []
        self.told.append(says(*words, *(calls(name) for name in [*more, *names])))
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


def model_of(history: list[Any]) -> str:
    """Return the model that is in force at the end of a history."""
    return [event.model for event in history if isinstance(event, ev.SessionStart | ev.AgentLoaded)][-1]


def body(history: list[Any]) -> dict[str, Any]:
    """Return the request that a history gives, as it would be sent."""
    made = request(surface(history))
    return {
        "model": model_of(history),
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
    return rules.shape(asked, BUILT_IN_MODELS) or rules.content(asked, build(asked), BUILT_IN_MODELS[asked["model"]])


def gone_on(history: list[Any]) -> list[Any]:
    """Return a repaired history up to the next request: the question is answered, or a message starts a turn."""
    waiting = surface(history).unanswered
    if waiting:
        return [*history, *(ev.ToolResult(call_id=call, content="This.") for call in waiting)]
    return [*history, user("Go on.", "runtime")]


def is_suspended(history: list[Any]) -> bool:
    """Say whether a question or an approval waits for its answer: a call that was let run waits no more."""
    waiting: set[str] = set()
    for event in history:
        if isinstance(event, ev.Pause):
            waiting.add(event.call_id)
        elif isinstance(event, ev.ToolCall | ev.ToolResult):
            waiting.discard(event.call_id)
    return bool(waiting)
