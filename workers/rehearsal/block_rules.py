"""Rules about messages one by one: their shape, and what each kind of block may hold and where it may stand."""

import re
from collections.abc import Iterator
from typing import Any

from workers.rehearsal.history import Part
from workers.rehearsal.image_rules import image
from workers.rehearsal.refusal import EXTRA, MISSING, Body, Refusal
from workers.rehearsal.tool_rules import TOOL_NAME

__all__ = ["block_fields", "content_blocks", "messages", "text_block"]

_TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ROLES = ("user", "assistant", "system")


def messages(listed: list[Any]) -> Iterator[Refusal]:
    """What everything after relies on: messages and blocks are objects of a known kind with the fields they need."""
    if not listed:
        yield Refusal("messages: at least one message is required")
        return
    for number, message in enumerate(listed):
        yield from _message(message, number, last=number == len(listed) - 1)
    if listed[0]["role"] != "user":
        yield Refusal('messages: first message must use the "user" role')


def _message(message: Any, number: int, *, last: bool) -> Iterator[Refusal]:
    where = f"messages.{number}"
    if not isinstance(message, dict):
        yield Refusal(f"{where}: Input should be an object")
        return
    yield from (Refusal(f"{where}.{key}: {EXTRA}") for key in message if key not in {"role", "content"})
    yield from (Refusal(f"{where}.{key}: {MISSING}") for key in ("role", "content") if key not in message)
    if message["role"] not in _ROLES:
        yield Refusal(f"{where}.role: Input should be 'user', 'assistant' or 'system'")
    content = message["content"]
    if not isinstance(content, str | list):
        yield Refusal(f"{where}.content: Input should be a valid string or list")
    elif not content and not (last and message["role"] == "assistant"):
        yield Refusal(
            f"{where}: all messages must have non-empty content except for the optional final assistant message"
        )
    elif isinstance(content, list):
        yield from _typed(content, where)


def _typed(blocks: list[Any], where: str) -> Iterator[Refusal]:
    """Only what everything after relies on: blocks are objects of a known type, with the fields it needs."""
    for index, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or kind not in _BLOCK_FIELDS:
            known = ", ".join(repr(name) for name in _BLOCK_FIELDS)
            yield Refusal(f"{where}.content.{index}: Input tag {kind!r} does not match any of the expected: {known}")
            continue
        yield from (
            Refusal(f"{where}.content.{index}.{kind}.{name}: {MISSING}")
            for name in _BLOCK_NEEDS[kind]
            if name not in block
        )
        if kind == "text" and not isinstance(block["text"], str):
            yield Refusal(f"{where}.content.{index}.text.text: Input should be a valid string")


_BLOCK_NEEDS: dict[str, tuple[str, ...]] = {
    "text": ("text",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    "image": ("source",),
    "document": ("source",),
    "search_result": ("content", "source", "title"),
}
_BLOCK_FIELDS: dict[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "thinking": frozenset({"type", "thinking", "signature", "cache_control"}),
    "redacted_thinking": frozenset({"type", "data", "cache_control"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller", "toolset_name"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "document": frozenset({"type", "source", "cache_control", "citations", "context", "title"}),
    "search_result": frozenset({"type", "content", "source", "title", "cache_control", "citations"}),
}
# Fields that `model_dump()` adds as null to what the API sent; the API does not take them back.
_NOT_NULL = ("caller", "toolset_name")


def block_fields(block: Body, where: str) -> Iterator[Refusal]:
    """No field that this kind of block does not have, and none that is null only because a client wrote it out."""
    kind = block["type"]
    yield from (Refusal(f"{where}.{kind}.{key}: {EXTRA}") for key in block if key not in _BLOCK_FIELDS[kind])
    yield from (
        Refusal(f"{where}.{kind}.{key}: Input should be a valid value, not null")
        for key in _NOT_NULL
        if key in block and block[key] is None
    )


def text_block(block: Body, where: str, empty: str) -> Iterator[Refusal]:
    """Text that is text, and says something; `empty` is the message when it does not."""
    if not isinstance(block.get("text"), str):
        yield Refusal(f"{where}.text.text: Input should be a valid string")
    elif not block["text"]:
        yield Refusal(empty)
    elif not block["text"].strip():
        yield Refusal(empty.replace("non-empty", "non-whitespace"))


def content_blocks(part: Part) -> Iterator[Refusal]:
    """Every block of one message."""
    for index, block in enumerate(part.blocks):
        where = f"{part.where}.content.{index}"
        yield from block_fields(block, where)
        yield from _allowed_in(part.role, block, where)
        if block["type"] == "text":
            yield from text_block(block, where, f"{where}: text content blocks must be non-empty")
        elif block["type"] == "image":
            yield from image(block, where)
        elif block["type"] == "tool_use":
            yield from _tool_use(block, where)
        elif block["type"] == "tool_result":
            yield from _tool_result(block, where)


_ONLY_IN = {
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_use": "assistant",
    "tool_result": "user",
}


def _allowed_in(role: str, block: Body, where: str) -> Iterator[Refusal]:
    needed = _ONLY_IN.get(block["type"], role)
    if needed != role:
        yield Refusal(f"{where}: `{block['type']}` blocks can only be in `{needed}` messages")


def _tool_use(block: Body, where: str) -> Iterator[Refusal]:
    if not isinstance(block["id"], str) or not _TOOL_ID.fullmatch(block["id"]):
        yield Refusal(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block["name"], str) or not TOOL_NAME.fullmatch(block["name"]):
        yield Refusal(f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if not isinstance(block["input"], dict):
        yield Refusal(f"{where}.tool_use.input: Input should be an object")


_IN_A_RESULT = ("document", "image", "search_result", "text")


def _tool_result(block: Body, where: str) -> Iterator[Refusal]:
    if not isinstance(block["tool_use_id"], str):
        yield Refusal(f"{where}.tool_result.tool_use_id: Input should be a valid string")
    inner = block.get("content", "")
    if not isinstance(inner, str | list):
        yield Refusal(f"{where}.tool_result.content: Input should be a valid string or list")
    elif isinstance(inner, list):
        yield from _result_blocks(inner, f"{where}.tool_result.content")
    if not isinstance(block.get("is_error", False), bool):
        yield Refusal(f"{where}.tool_result.is_error: Input should be a valid boolean")


def _result_blocks(blocks: list[Any], where: str) -> Iterator[Refusal]:
    for index, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in _IN_A_RESULT:
            yield Refusal(f"{where}.{index}: Input tag {kind!r} does not match any of: {_IN_A_RESULT}")
        elif kind == "image":
            yield from block_fields(block, f"{where}.{index}")
            yield from image(block, f"{where}.{index}")
        elif kind == "text":
            yield from block_fields(block, f"{where}.{index}")
            yield from text_block(block, f"{where}.{index}", "messages: text content blocks must be non-empty")
