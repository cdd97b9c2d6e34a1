"""What a reader must add so that a log cut off anywhere is whole again (spec L5). Pure; twice changes nothing."""

from collections.abc import Iterable
from typing import Any

from . import events as ev

__all__ = ["forked_turn_closers", "interrupted_turn_closers"]

NEVER_STARTED = "This call never started: the session was interrupted before it. Nothing was run."
UNKNOWN_OUTCOME = (
    "This call was started, and the session was interrupted before its result was stored. Its outcome is unknown: it "
    "may have run wholly, partly or not at all. Look at the files before you decide whether to run it again."
)

FORKED = "This call has no result here: the session was forked before it. What it did is not part of this attempt."


class _Open:
    """What is still open at the end of a log."""

    def __init__(self) -> None:
        self.turn: int | None = None
        self.steps: list[int] = []
        self.calls: dict[str, bool] = {}  # call id -> was started
        self.paused: set[str] = set()

    def see(self, event: Any) -> None:
        match event:
            case ev.TurnStart():
                self.turn = event.turn
            case ev.TurnEnd():
                self.turn = None
            case ev.StepStart():
                self.steps.append(event.step)
            case ev.StepEnd() if event.step in self.steps:
                self.steps.remove(event.step)
            case ev.AssistantMessage():
                self.calls = {block["id"]: False for block in event.content if block["type"] == "tool_use"}
            case ev.ToolCall() if event.call_id in self.calls:
                self.calls[event.call_id] = True
                self.paused.discard(event.call_id)  # approved, and started
            case ev.ToolResult():
                self.calls.pop(event.call_id, None)
                self.paused.discard(event.call_id)
            case ev.Pause():
                self.paused.add(event.call_id)
            case _:
                pass

    def closers(self, why: str, reason: str) -> list[Any]:
        """Return results for the open calls, the ends of open steps and of the turn, in that order."""
        told = {True: UNKNOWN_OUTCOME, False: NEVER_STARTED} if reason == "interrupted" else {True: why, False: why}
        found: list[Any] = [
            ev.ToolResult(call_id=call, content=told[started], is_error=True) for call, started in self.calls.items()
        ]
        found += [ev.StepEnd(step=step, error=reason) for step in self.steps]
        if self.turn is not None:
            found.append(ev.TurnEnd(turn=self.turn, reason=reason))
        return found


def _fold(history: Iterable[Any]) -> _Open:
    state = _Open()
    for event in history:
        state.see(event)
    return state


def interrupted_turn_closers(history: Iterable[Any]) -> list[Any]:
    """Return the missing closing events of exactly three kinds: tool results, `step/end`, `turn/end` `interrupted`.

    A turn that a stored question or approval suspended is no orphan and is left as it is, with every call that waits
    behind it.
    """
    state = _fold(history)
    return [] if state.paused else state.closers("", "interrupted")


def forked_turn_closers(prefix: Iterable[Any]) -> list[Any]:
    """Return what a fork's prefix is missing: the same three kinds, with `turn/end` `forked`, suspended or not."""
    return _fold(prefix).closers(FORKED, "forked")
