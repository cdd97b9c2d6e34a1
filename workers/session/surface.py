"""The surface: what the model sees, derived from the events by a pure fold and stored nowhere else (spec L2, L9).

Each event only ever adds whole messages behind the ones before it, so the messages of a longer log extend those of a
shorter one and the provider's prompt cache keeps hitting (spec A8), until a compaction begins them anew.
`cache_control` is no part of it: see `request`.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import events as ev
from .events import Block

__all__ = ["Request", "Surface", "request", "surface"]

Message = dict[str, Any]

_TEXT = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode

# At most four breakpoints a request; a look-up goes back 20 blocks, so one about every 15 (facts: caching).
_STRIDE = 15
_MOVING = 2


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent: the three parts that the hash in `step/start` covers, with breakpoints added."""

    system: list[Block]
    tools: list[Block]
    messages: list[Message]


class Surface:
    """The fold, kept up to date event by event: a step costs its new events, not the whole history."""

    def __init__(self) -> None:
        self.system: list[Block] = []
        self.tools: list[Block] = []
        self.messages: list[Message] = []
        self._first: list[Block] = []  # the message that says which unit this is: no compaction takes it away
        self._due: list[str] = []
        self._results: dict[str, Block] = {}
        self._held: list[list[Block]] = []
        self._unhashed: list[Any] = []
        self._digest = hashlib.sha256()

    def add(self, event: Any) -> None:
        """Fold one event in."""
        match event:
            case ev.SessionStart():
                self.system, self.tools = event.system, event.tools
                self._unhashed.append([self.system, self.tools])
            case ev.UserMessage() if self._due:
                self._held.append(event.content)  # results come first, at once
            case ev.UserMessage():
                self._first = self._first or event.content
                self._message("user", event.content)
            case ev.AssistantMessage() if event.content:
                self._message("assistant", event.content)
                self._due = [block["id"] for block in event.content if block["type"] == "tool_use"]
            case ev.ToolResult():
                self._result(event)
            case ev.Compaction():
                self._compact(event)
            case _:  # everything else is for people and for recovery, strangers included (spec L8)
                pass

    def extend(self, history: Iterable[Any]) -> "Surface":
        """Fold many events in and return self."""
        for event in history:
            self.add(event)
        return self

    @property
    def digest(self) -> str:
        """SHA-256 over system, tools and messages as JSON lines: what `step/start` records.

        Computed when somebody asks, over what came since: readers never do, and what was compacted never counts.
        """
        for part in self._unhashed:
            self._digest.update(_TEXT(part).encode("ascii") + b"\n")
        self._unhashed.clear()
        return self._digest.hexdigest()

    @property
    def unanswered(self) -> list[str]:
        """Ids of the last answer's tool calls that have no result yet, in order."""
        return [call for call in self._due if call not in self._results]

    def _result(self, event: ev.ToolResult) -> None:
        if event.call_id not in self._due or event.call_id in self._results:
            return  # never two results for one call, whatever a log holds
        block: Block = {
            "type": "tool_result",
            "tool_use_id": event.call_id,
            "content": event.content or "(no output)",
        }
        if event.is_error:
            block["is_error"] = True
        self._results[event.call_id] = block
        if not self.unanswered:  # results go out together, first in their message
            self._message("user", [self._results[call] for call in self._due])
            for content in self._held:
                self._message("user", content)
            self._due, self._results, self._held = [], {}, []

    def _compact(self, event: ev.Compaction) -> None:
        """Let the summary stand in for the history. The first message stays: it says which unit this is.

        `step:` counts the answers that are no longer there, for whoever counts them (the rehearsal server does).
        """
        told = {"type": "text", "text": f"step: {event.steps}\n\nSummary of the session so far:\n\n{event.summary}"}
        self.messages, self._due, self._results, self._held = [], [], {}, []
        self._digest, self._unhashed = hashlib.sha256(), [[self.system, self.tools]]
        self._message("user", [*self._first, told])

    def _message(self, role: str, content: list[Block]) -> None:
        message = {"role": role, "content": content}
        self.messages.append(message)
        self._unhashed.append(message)


def surface(history: Iterable[Any]) -> Surface:
    """Return the surface of a whole log (spec L2)."""
    return Surface().extend(history)


def request(view: Surface) -> Request:
    """Return the request with its cache breakpoints; the surface itself is not touched.

    One stands behind the stable head, the moving ones behind the newest message and one stride before it, so that
    a call with many new blocks still finds the last one's prefix.
    """
    messages = list(view.messages)
    for index in _breakpoints(messages):
        messages[index] = _marked_message(messages[index])
    return Request(_mark_last(view.system), _mark_last(view.tools), messages)


def _breakpoints(messages: Sequence[Message]) -> list[int]:
    found: list[int] = []
    blocks = _STRIDE
    for index in range(len(messages) - 1, -1, -1):
        if len(found) == _MOVING:
            break
        if blocks >= _STRIDE and messages[index]["role"] == "user":
            found.append(index)
            blocks = 0
        blocks += len(messages[index]["content"])
    return found


def _marked_message(message: Message) -> Message:
    return {**message, "content": _mark_last(message["content"])}


def _mark_last(blocks: list[Block]) -> list[Block]:
    if not blocks:
        return blocks
    return [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]
