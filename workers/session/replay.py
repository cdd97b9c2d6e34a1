"""Replay: every request of a session, rebuilt from nothing but the events before it (spec L2). Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import events as ev
from .events import Block
from .surface import Surface, request

__all__ = ["Replayed", "replay", "request_of", "without_thinking"]

HIDDEN = "(not shown: raw reasoning never leaves the runtime)"


@dataclass(frozen=True, slots=True)
class Replayed:
    """One request: its `step/start`'s seq, the hash recorded when it was sent, and that of what the log gives."""

    seq: int
    turn: int
    step: int
    recorded: str
    rebuilt: str

    @property
    def ok(self) -> bool:
        """Whether the log still gives what was sent."""
        return self.recorded == self.rebuilt


def replay(history: Iterable[Any]) -> list[Replayed]:
    """Return one row for each request of a session, in order."""
    view, turn, found = Surface(), 0, []
    for seq, event in enumerate(history):
        if isinstance(event, ev.TurnStart):
            turn = event.turn
        elif isinstance(event, ev.StepStart):
            found.append(Replayed(seq, turn, event.step, event.request, view.digest))
        view.add(event)
    return found


def request_of(history: Iterable[Any], step: int) -> dict[str, Any] | None:
    """Return a step's request as it was sent, with a note in place of every thinking text; None: no such step."""
    view = Surface()
    for event in history:
        if isinstance(event, ev.StepStart) and event.step == step:
            made = request(view)
            messages = [{**message, "content": without_thinking(message["content"])} for message in made.messages]
            return {"system": made.system, "tools": made.tools, "messages": messages}
        view.add(event)
    return None


def without_thinking(content: list[Block]) -> list[Block]:
    """Return blocks in which a note stands for the raw reasoning, its signature included (spec A5)."""
    return [{"type": block["type"], "note": HIDDEN} if "thinking" in block["type"] else block for block in content]
