"""What `overnight log` shows of a session, event by event: for people with numbers to fork at, or as JSON. Pure."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from dispatcher.shown.counted import counted
from workers.session import events as ev
from workers.session.costs import is_paid
from workers.session.transcript import lines_of_event

__all__ = ["LogView"]


class LogView:
    """Turns events into lines, and counts what they say. `turn` shows one turn, with what follows it, and no other."""

    def __init__(self, *, as_json: bool, turn: int | None = None) -> None:
        self._as_json = as_json
        self._wanted = turn
        self._turn = 0
        self.turns: list[int] = []
        self._own_turns = self._steps = 0
        self._cost: Decimal | None = Decimal(0)

    def lines(self, event: Any, seq: int | None, time: str | None, *, is_unseen: bool = False) -> Iterator[str]:
        """Yield the lines of one event, marked where the model no longer sees it.

        Without a `seq` it is not in the log but follows from it (a closer).
        """
        self._count(event)
        if self._wanted not in (None, self._turn):
            return
        if self._as_json:
            kind, data = event.stored()
            yield json.dumps({"seq": seq, "time": time, "type": kind, "data": _without_thinking(event, data)})
            return
        number = "+" if seq is None else str(seq)
        for line in lines_of_event(event, is_unseen=is_unseen):
            yield f"{number:>5}  {line}".rstrip()
            number = ""

    def total(self) -> str:
        """Return the line that sums the attempt up: what it copied from another one does not count."""
        cost = "price unknown" if self._cost is None else f"${self._cost:.4f}"
        return f"       total       {counted(self._own_turns, 'turn')}  {counted(self._steps, 'step')}  {cost}"

    def _count(self, event: Any) -> None:
        match event:
            case ev.TurnStart():
                self._turn = event.turn
                self.turns.append(event.turn)
                self._own_turns += 1
            case ev.StepStart():
                self._steps += 1
            case _ if is_paid(event):
                self._cost = None if event.cost is None or self._cost is None else self._cost + event.cost
            case ev.SessionFork():
                self._own_turns, self._steps, self._cost = 0, 0, Decimal(0)
            case _:
                pass


def _without_thinking(event: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Raw reasoning never leaves the runtime (spec A5)."""
    if isinstance(event, ev.AssistantMessage):
        data["content"] = [block for block in data["content"] if "thinking" not in block["type"]]
    return data
