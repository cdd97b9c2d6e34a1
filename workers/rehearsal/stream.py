"""From a step to what goes over the wire: the content blocks, the SSE frames, the body of a plain answer.

Pure: the same step, scene and history give the same bytes, so a call that is repeated gets the same answer.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from workers.rehearsal import seal
from workers.rehearsal.history import link, tokens_of
from workers.rehearsal.script import Block as ScriptBlock
from workers.rehearsal.script import RedactedBlock, Scene, Step, TextBlock, ThinkingBlock, ToolBlock

__all__ = [
    "PING",
    "Answer",
    "Usage",
    "block_frames",
    "compose",
    "end_frames",
    "error_frame",
    "sse",
    "start_frames",
]


def sse(event: str, data: dict[str, Any]) -> bytes:
    """Return one server-sent event; `data` carries its own name as `type`, as the API has it."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), json.dumps({"type": event, **data}).encode())


PING = sse("ping", {})


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call; input in all is the sum of the first three."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int

    def as_json(self) -> dict[str, int]:
        """Return it under the API's names."""
        return {
            "input_tokens": self.input_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
            "output_tokens": self.output_tokens,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, whole: `arguments` is the text of each tool call's input as it is sent, "" for other blocks."""

    id: str
    model: str
    blocks: tuple[dict[str, Any], ...]
    arguments: tuple[str, ...]
    stop_reason: str | None
    usage: Usage

    def message(self) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        return {**self._message(list(self.blocks), self.usage.as_json()), **self.ending()}

    def opening(self) -> dict[str, Any]:
        """Return the message of `message_start`: no content yet, no stop reason."""
        return self._message([], {**self.usage.as_json(), "output_tokens": 1})

    def ending(self) -> dict[str, Any]:
        """Return how the answer ended, for `message_delta` and for the plain body."""
        details = {"type": "refusal", "category": None, "explanation": None}
        stopped = {"stop_reason": self.stop_reason, "stop_sequence": None}
        return {**stopped, "stop_details": details} if self.stop_reason == "refusal" else stopped

    def _message(self, content: list[Any], usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**usage, "service_tier": "standard"},
        }


def fill(value: Any, scene: Scene) -> Any:
    """Replace {{unit}}, {{attempt}} and {{step}} in every string of a JSON value."""
    if isinstance(value, str):
        if "{{" not in value:
            return value
        for name in ("unit", "attempt", "step"):
            value = value.replace("{{" + name + "}}", str(getattr(scene, name)))
        return value
    if isinstance(value, dict):
        return {fill(key, scene): fill(item, scene) for key, item in value.items()}
    return [fill(item, scene) for item in value] if isinstance(value, list) else value


def _identifier(prefix: str, before: bytes, index: int) -> str:
    return f"{prefix}_{blake2b(before + str(index).encode(), digest_size=12).hexdigest()}"


def _parsed(raw: str) -> dict[str, Any]:
    """Return raw argument text as an object; text that is none gives an empty one."""
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _tool(block: ToolBlock, scene: Scene, before: bytes, index: int) -> tuple[dict[str, Any], str]:
    if block.raw is not None:
        arguments = fill(block.raw, scene)
        value = _parsed(arguments)
    else:
        value = fill(block.input or {}, scene)
        arguments = json.dumps(value)
    name = fill(block.tool, scene)
    return {
        "type": "tool_use",
        "id": _identifier("toolu", before, index),
        "name": name,
        "input": value,
    }, arguments


def _render(block: ScriptBlock, scene: Scene, before: bytes, index: int, *, show: bool) -> tuple[dict[str, Any], str]:
    match block:
        case TextBlock():
            return {"type": "text", "text": fill(block.text, scene)}, ""
        case ThinkingBlock():
            text = fill(block.thinking, scene) if show else ""
            return {"type": "thinking", "thinking": text, "signature": seal.sign(text, before)}, ""
        case RedactedBlock():
            return {"type": "redacted_thinking", "data": seal.sign("", before)}, ""
        case ToolBlock():
            return _tool(block, scene, before, index)


def compose(
    step: Step,
    scene: Scene,
    before: bytes,
    count: Callable[[int], Usage],
    *,
    thinks: bool,
    show: bool,
) -> Answer:
    """Return the answer of a step to the request with the digest `before`.

    `count` turns the output's tokens into the usage; without `thinks` thinking blocks are left out, without
    `show` their text is empty, but signed.
    """
    blocks: list[dict[str, Any]] = []
    arguments: list[str] = []
    digest = before
    for planned in step.blocks:
        if not thinks and isinstance(planned, ThinkingBlock | RedactedBlock):
            continue
        block, argument = _render(planned, scene, digest, len(blocks), show=show)
        digest = link(digest, "assistant", block)
        blocks.append(block)
        arguments.append(argument)
    return Answer(
        id=_identifier("msg", before, scene.step),
        model=scene.model,
        blocks=tuple(blocks),
        arguments=tuple(arguments),
        stop_reason=step.stop_reason,
        usage=count(sum(map(tokens_of, blocks)) + 1),
    )


def start_frames(answer: Answer) -> Iterator[bytes]:
    """Yield `message_start` and the first ping."""
    yield sse("message_start", {"message": answer.opening()})
    yield PING


def _chunks(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _shell(block: dict[str, Any]) -> dict[str, Any]:
    """Return the block as `content_block_start` shows it: what the deltas will bring is empty."""
    empty: dict[str, dict[str, Any]] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}},
    }
    return {**block, **empty.get(block["type"], {})}


def _deltas(block: dict[str, Any], arguments: str, size: int) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in _chunks(block["text"], size))
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in _chunks(block["thinking"], size))
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            yield {"type": "input_json_delta", "partial_json": ""}
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in _chunks(arguments, size))


def block_frames(answer: Answer, index: int, size: int) -> Iterator[bytes]:
    """Yield the frames of one block: start, deltas of at most `size` characters, stop."""
    block = answer.blocks[index]
    yield sse("content_block_start", {"index": index, "content_block": _shell(block)})
    for delta in _deltas(block, answer.arguments[index], size):
        yield sse("content_block_delta", {"index": index, "delta": delta})
    yield sse("content_block_stop", {"index": index})


def end_frames(answer: Answer) -> Iterator[bytes]:
    """Yield `message_delta` with the stop reason and the usage, and `message_stop`."""
    yield sse("message_delta", {"delta": answer.ending(), "usage": answer.usage.as_json()})
    yield sse("message_stop", {})


def error_frame(kind: str, message: str) -> bytes:
    """Return an error inside the stream."""
    return sse("error", {"error": {"type": kind, "message": message}})
