"""The surface: what the model sees, derived from the events by a pure fold and stored nowhere else (spec L2, L9).

Each event only ever adds whole messages behind the ones before it, so the messages of a longer log extend those of a
shorter one and the provider's prompt cache keeps hitting (spec A8), until a compaction begins them anew, images are
dropped or a turn starts under another head. Thinking is bound to what stood before it, and to its model, so all three
drop it; an agent that only works harder, or under another policy, has the same head.
`cache_control` is no part of it: see `request`.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import events as ev
from .events import Block

__all__ = ["IMAGES_GONE", "Request", "Surface", "request", "surface"]

Message = dict[str, Any]
_Place = tuple[int, int]  # a message, and a block in it

_ENCODED = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode

IMAGES_GONE = "(an image stood here; it was dropped to make room. Look at the file again if you need it.)"


def _text(part: Any) -> bytes:
    """Return a part of a request as JSON, the same bytes for the same part."""
    return _ENCODED(part).encode("ascii")


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent: the three parts that the hash in `step/start` covers, with breakpoints added.

    `texts` are the messages as JSON, where somebody has them already: most were sent before.
    """

    system: list[Block]
    tools: list[Block]
    messages: list[Message]
    texts: list[bytes] | None = None

    def body(self, **fields: Any) -> bytes:
        """Return the request's JSON, with `fields` beside its three parts. Costs little more than what is new in it."""
        texts = [_text(message) for message in self.messages] if self.texts is None else self.texts
        head = _text({**fields, "system": self.system, "tools": self.tools})
        first, *others = texts or [b""]
        return b",".join([b'%b,"messages":[%b' % (head[:-1], first), *others]) + b"]}"


class Surface:
    """The fold, kept up to date event by event: a step costs its new events, not the whole history."""

    def __init__(self) -> None:
        self.system: list[Block] = []
        self.tools: list[Block] = []
        self.messages: list[Message] = []
        self._model = ""
        self._first: list[Block] = []  # the message that says which unit this is: no compaction takes it away
        self._unheard: list[list[Block]] = []  # what was said since the last answer: no compaction takes that either
        self._written: list[_Place] = []  # where calls that were answered had breakpoints, as far as that still stands
        self._done = 0  # answers that compactions took away
        self._due: list[str] = []
        self._results: dict[str, Block] = {}
        self._held: list[list[Block]] = []
        self._texts: list[bytes] = []  # the messages as JSON, as far as somebody has asked
        self._digest = hashlib.sha256()

    def add(self, event: Any) -> None:
        """Fold one event in."""
        match event:
            case ev.SessionStart():
                self.system, self.tools, self._model = event.system, event.tools, event.model
            case ev.UserMessage() if self._due:
                self._held.append(event.content)  # results come first, at once
            case ev.UserMessage():
                self._said(event.content)
            case ev.AssistantMessage():
                self._answer(event.content)
            case ev.ToolResult():
                self._result(event)
            case ev.Compaction() if not event.refused:
                self._compact(event)
            case ev.AgentLoaded():
                self._load(event)
            case ev.ImagesDropped():
                self._drop_images()
            case _:  # everything else is for people and for recovery, strangers included (spec L8)
                pass

    def extend(self, history: Iterable[Any]) -> "Surface":
        """Fold many events in and return self."""
        for event in history:
            self.add(event)
        return self

    @property
    def texts(self) -> list[bytes]:
        """The messages as JSON. Made when somebody asks, of what came since: readers never do."""
        if not self._texts:
            self._digest = hashlib.sha256(_text([self.system, self.tools]) + b"\n")
        for message in self.messages[len(self._texts) :]:
            self._texts.append(_text(message))
            self._digest.update(self._texts[-1] + b"\n")
        return self._texts

    @property
    def digest(self) -> str:
        """SHA-256 over system, tools and messages as JSON lines: what `step/start` records.

        What was compacted never counts.
        """
        _ = self.texts
        return self._digest.hexdigest()

    @property
    def unanswered(self) -> list[str]:
        """Ids of the last answer's tool calls that have no result yet, in order."""
        return [call for call in self._due if call not in self._results]

    @property
    def answers(self) -> int:
        """How many answers the model has given, those that a compaction took away included."""
        return self._done + len([None for message in self.messages if message["role"] == "assistant"])

    @property
    def kept(self) -> list[Message]:
        """The messages that a compaction would leave as they are: the first one, and what nobody has answered yet."""
        return [{"role": "user", "content": content} for content in (self._first, *self._unheard) if content]

    @property
    def places(self) -> list[_Place]:
        """Where the messages' cache breakpoints stand: at the end, and where the last two answered calls wrote.

        However much came since, the next call finds exactly what the last one wrote, without looking back.
        """
        return [*self._written[-2:], self._end(len(self.messages) - 1)] if self._first else []

    def _end(self, last: int) -> _Place:
        """Return the last block, up to a message, that is not the model's own: those go back unchanged."""
        while last > 0 and self.messages[last]["role"] != "user":  # behind a pause of the API, or several
            last -= 1
        return last, len(self.messages[last]["content"]) - 1

    def _said(self, content: list[Block]) -> None:
        if self._first:
            self._unheard.append(content)
        self._first = self._first or content
        self._message("user", content)

    def _answer(self, content: list[Block]) -> None:
        if self.messages:
            self._written.append(self._end(len(self.messages) - 1))
        self._unheard = []
        if content:
            self._message("assistant", content)
            self._due = [block["id"] for block in content if block["type"] == "tool_use"]

    def _result(self, event: ev.ToolResult) -> None:
        if event.call_id not in self._due or event.call_id in self._results:
            return  # never two results for one call, whatever a log holds
        text = event.content or "(no output)"
        content = [{"type": "text", "text": text}, *event.images] if event.images else text
        block: Block = {"type": "tool_result", "tool_use_id": event.call_id, "content": content}
        if event.is_error:
            block["is_error"] = True
        self._results[event.call_id] = block
        if event.trimmed is not None:
            self._trim(event.call_id, event.trimmed)
        if not self.unanswered:  # results go out together, first in their message
            self._message("user", [self._results[call] for call in self._due])
            for content in self._held:
                self._said(content)
            self._due, self._results, self._held = [], {}, []

    def _trim(self, call: str, arguments: dict[str, Any]) -> None:
        """Let shorter arguments stand in for a call's in the last answer, which has not been sent back yet."""
        last = self.messages[-1]
        content = [{**block, "input": arguments} if block.get("id") == call else block for block in last["content"]]
        self.messages[-1] = {**last, "content": content}
        if len(self._texts) == len(self.messages):  # somebody looked between two results of one answer
            self._texts = []

    def _compact(self, event: ev.Compaction) -> None:
        """Let the summary stand in for the history. The first message stays: it says which unit this is.

        So does what nobody has answered yet. `step:` counts the answers that are no longer there, for whoever counts
        them (the rehearsal server does).
        """
        told = {"type": "text", "text": f"step: {event.steps}\n\nSummary of the session so far:\n\n{event.summary}"}
        self._due, self._results, self._held = [], {}, []
        self._done = event.steps
        unheard = [{"role": "user", "content": content} for content in self._unheard]
        self._begin_anew([{"role": "user", "content": [*self._first, told]}, *unheard])
        self._written = [(0, len(self._first) - 1)]  # by the very first call

    def _load(self, event: ev.AgentLoaded) -> None:
        """Put another head in force. Effort and policy are no part of it: they leave the past as it was sent."""
        head = (event.system, event.tools, event.model)
        if head != (self.system, self.tools, self._model):
            self.system, self.tools, self._model = head
            self._begin_anew(_without_thinking(self.messages))

    def _drop_images(self) -> None:
        """Drop the images of all results but the newest; what stands before that one is written by the next call.

        It is the next to go, and by then what stands before it is all that is left as it was.
        """
        self._begin_anew(_without_images(_without_thinking(self.messages)))
        newest = next((at for at in range(len(self.messages) - 1, 0, -1) if _has_image(self.messages[at])), 0)
        if newest > 0:
            self._written.append(self._end(newest - 1))

    def _begin_anew(self, messages: list[Message]) -> None:
        pairs = zip(self.messages, messages, strict=False)
        kept = next((at for at, (old, new) in enumerate(pairs) if old is not new), len(messages))
        self._written = [place for place in self._written if place[0] < kept]
        self.messages, self._texts = messages, []

    def _message(self, role: str, content: list[Block]) -> None:
        self.messages.append({"role": role, "content": content})


def _without_thinking(messages: Iterable[Message]) -> list[Message]:
    kept = [_filtered(message, [b for b in message["content"] if "thinking" not in b["type"]]) for message in messages]
    return [message for message in kept if message["content"]]


def _without_images(messages: list[Message]) -> list[Message]:
    """Put a note in the place of the images in all tool results but the newest that has some."""
    having = [id(block) for message in messages for block in message["content"] if _images_of(block)]
    gone = set(having[:-1])
    return [_filtered(m, [_noted(block) if id(block) in gone else block for block in m["content"]]) for m in messages]


def _filtered(message: Message, content: list[Block]) -> Message:
    """Return a message with this content: the very same one where nothing has changed."""
    return message if content == message["content"] else {**message, "content": content}


def _images_of(block: Block) -> list[Block]:
    """Return the images of a tool result; those that a person attached are none of them."""
    content = block.get("content")
    if block["type"] != "tool_result" or not isinstance(content, list):
        return []
    return [part for part in content if part["type"] == "image"]


def _has_image(message: Message) -> bool:
    return any(_images_of(block) for block in message["content"])


def _noted(block: Block) -> Block:
    note = {"type": "text", "text": IMAGES_GONE}
    return {**block, "content": [note if part["type"] == "image" else part for part in block["content"]]}


def surface(history: Iterable[Any]) -> Surface:
    """Return the surface of a whole log (spec L2)."""
    return Surface().extend(history)


def request(view: Surface, asking: list[Block] | None = None) -> Request:
    """Return the request with its cache breakpoints, at most four; the surface itself is not touched.

    One stands behind the head (tools come before the system prompt, so it covers both), the others where
    `Surface.places` says. `asking` is a question beside the history: it goes last, and nothing is written for it.
    """
    messages, texts = list(view.messages), list(view.texts)
    places = view.places if asking is None else view.places[:-1]
    for number, index in places:
        messages[number] = {**messages[number], "content": _marked(messages[number]["content"], index)}
    for number in {number for number, _ in places}:
        texts[number] = _text(messages[number])
    if asking is not None:
        messages.append({"role": "user", "content": asking})
        texts.append(_text(messages[-1]))
    if not view.system:
        return Request(view.system, _marked(view.tools, len(view.tools) - 1), messages, texts)
    return Request(_marked(view.system, len(view.system) - 1), view.tools, messages, texts)


def _marked(blocks: list[Block], index: int) -> list[Block]:
    if not blocks:
        return blocks
    return [*blocks[:index], {**blocks[index], "cache_control": {"type": "ephemeral"}}, *blocks[index + 1 :]]
