"""From the events of a stream to one whole answer, block by block. A message counts only when it is whole.

Whole means `message_stop` and a stop reason. Arguments are parsed strictly from their raw text: what the SDK makes of a
cut one can look valid and mean something else (facts: stop reasons).
"""

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from workers.errors import ModelError
from workers.sendable import sendable
from workers.session.events import Block, Usage

__all__ = ["Answer", "Assembly", "Broken"]

_USAGE_FIELDS = tuple(Usage.model_fields)
_HOUR = "cache_creation_1h_input_tokens"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: blocks in the API's own JSON, exactly as they came. `unreadable`: raw arguments by tool id.

    `stop_details` are the API's words on a refusal, else empty.
    """

    content: list[Block]
    stop_reason: str
    usage: Usage
    request_id: str
    unreadable: dict[str, str]
    stop_details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broken:
    """A call that began to answer and never came to a whole answer: what it used, as far as its stream had told.

    Whoever is asked to answer is paid, also for what is thrown away.
    """

    usage: Usage
    request_id: str
    why: str


@dataclass
class Assembly:
    """The blocks of a stream in the making. Whatever `see` raises means that the stream was malformed."""

    blocks: list[Block] = field(default_factory=list)
    arguments: dict[int, list[str]] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=dict)
    stop_reason: str | None = None
    stop_details: dict[str, Any] = field(default_factory=dict)
    stopped: bool = False
    request_id: str = ""

    def see(self, event: Any) -> None:
        """Take in one event of the stream."""
        match event.type:
            case "message_start":
                self._count(event.message.usage)
            case "content_block_start":
                self.blocks.append(_plain(event.content_block))
            case "content_block_delta":
                self._grow(self.blocks[event.index], event.index, event.delta)
            case "message_delta":
                self.stop_reason = event.delta.stop_reason
                if event.delta.stop_details is not None:
                    self.stop_details = event.delta.stop_details.model_dump(mode="json", exclude_none=True)
                self._count(event.usage)
            case "message_stop":
                self.stopped = True
            case _:  # block stops, and events that a later API may add
                pass

    def _grow(self, block: Block, index: int, delta: Any) -> None:
        match delta.type:
            case "text_delta":
                block["text"] += delta.text
            case "thinking_delta":
                block["thinking"] += delta.thinking
            case "signature_delta":
                block["signature"] = delta.signature
            case "input_json_delta":
                self.arguments.setdefault(index, []).append(delta.partial_json)
            case _:
                pass

    def _count(self, usage: Any) -> None:
        for name in _USAGE_FIELDS:
            value = getattr(usage, name, None)
            if value is not None:
                self.usage[name] = value
        hour = getattr(getattr(usage, "cache_creation", None), "ephemeral_1h_input_tokens", None)
        if hour is not None and _HOUR in _USAGE_FIELDS:
            self.usage[_HOUR] = hour

    def broken(self, why: str) -> Broken | None:
        """Return what an answer has used that never became whole; None where its stream had not told of anything."""
        return Broken(Usage(**self.usage), self.request_id, why) if any(self.usage.values()) else None

    def finish(self) -> Answer:
        """Return the answer. Raises ModelError (transient) when it is not whole."""
        if not self.stopped or self.stop_reason is None:
            message = "the answer's stream ended before the answer did"
            raise ModelError("transient", message, request_id=self.request_id)
        unreadable = {}
        for index, block in enumerate(self.blocks):
            if block["type"] == "tool_use":
                raw = "".join(self.arguments.get(index, ()))
                block["input"], readable = _parse_arguments(raw)
                if not readable:
                    unreadable[block["id"]] = sendable(raw)
            elif block["type"] == "text":
                block["text"] = sendable(block["text"])
        content = [block for block in self.blocks if not _is_empty(block)]
        return Answer(
            content, self.stop_reason, Usage(**self.usage), self.request_id, unreadable, stop_details=self.stop_details
        )


def _plain(block: BaseModel) -> Block:
    """Return a block as the wire had it: `model_dump` would add nulls that must not go back (facts: streaming)."""
    return block.model_dump(mode="json", exclude_unset=True)


def _is_empty(block: Block) -> bool:
    """Empty text and unsigned thinking are refused when they are sent back."""
    if block["type"] == "text":
        return not block["text"].strip()
    return block["type"] == "thinking" and not block.get("signature")


def _parse_arguments(raw: str) -> tuple[dict[str, Any], bool]:
    """Return the arguments and whether they can be trusted and stored: JSON, which Python reads more loosely."""
    try:
        value = json.loads(raw or "{}")
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")  # NaN, infinities, lone surrogates
    except (ValueError, RecursionError):
        return {}, False
    return (value, True) if isinstance(value, dict) else ({}, False)
