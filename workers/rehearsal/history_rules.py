"""Rules about the messages as a chain: what each may assume about those before it, and about the last request."""

from collections.abc import Iterator
from typing import Any

from workers.rehearsal import seal
from workers.rehearsal.history import History, Part
from workers.rehearsal.models import Model
from workers.rehearsal.refusal import Body, Refusal

__all__ = ["drops_moved_thinking", "ending", "pairs", "prefix", "thinking_blocks", "unique_ids", "window"]


def pairs(history: History) -> Iterator[Refusal]:
    """Every tool call is answered at the start of the very next message, each once, and nothing else is."""
    messages = history.messages
    for number, part in history.new_messages():
        yield from _results(part, messages[number - 1] if number else None)
    if messages:
        yield from _unanswered(messages[-1], set())


def _unanswered(asked: Part, answered: set[str]) -> Iterator[Refusal]:
    open_ids = [name for name in asked.tool_uses if name not in answered]
    if open_ids:
        yield Refusal(
            f"{asked.where}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(open_ids)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
            "next message."
        )


def _results(part: Part, before: Part | None) -> Iterator[Refusal]:
    asked = set(before.tool_uses) if before else set()
    answered: set[str] = set()
    others = False
    for index, block in enumerate(part.blocks):
        if block["type"] != "tool_result":
            others = True
            continue
        name, where = block["tool_use_id"], f"{part.where}.content.{index}"
        if name not in asked:
            yield Refusal(
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. Each `tool_result` block "
                "must have a corresponding `tool_use` block in the previous message."
            )
        if name in answered:
            yield Refusal(
                f"{where}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {name}"
            )
        if others:
            yield Refusal(f"{where}: `tool_result` blocks must come first in the message, before other content")
        answered.add(name)
    if before is not None:
        yield from _unanswered(before, answered)


def unique_ids(history: History) -> Iterator[Refusal]:
    """No two tool calls have the same id."""
    seen: set[str] = set()
    for part in history.messages:
        for index, block in enumerate(part.blocks):
            if block["type"] != "tool_use":
                continue
            if block["id"] in seen:
                yield Refusal(f"{part.where}.content.{index}: `tool_use` ids must be unique: {block['id']}")
            seen.add(block["id"])


def thinking_blocks(history: History, *, drop: bool) -> Iterator[Refusal]:
    """Thinking comes back as it was answered, after what it was answered to; `drop` lets a changed past pass."""
    for _, part in history.new_messages():
        for index, block in enumerate(part.blocks):
            if block["type"] == "thinking":
                yield from _seal(block["thinking"], block["signature"], part, index, drop=drop)
            elif block["type"] == "redacted_thinking":
                yield from _seal("", block["data"], part, index, drop=drop)


def _seal(text: Any, signature: Any, part: Part, index: int, *, drop: bool) -> Iterator[Refusal]:
    where, kind = f"{part.where}.content.{index}", part.blocks[index]["type"]
    if not isinstance(text, str) or not isinstance(signature, str):
        yield Refusal(f"{where}.{kind}: Input should be valid strings")
        return
    if not signature:
        yield Refusal(f"{where}.{kind}.signature: Field required: a thinking block must be signed")
        return
    finding = seal.check(text, signature, part.digest_before(index))
    if finding == "forged" and not text and kind == "thinking":
        yield Refusal(f"{where}.thinking: each thinking block must contain thinking")
    elif finding == "forged":
        yield Refusal(f"{where}: Invalid `signature` in `{kind}` block")
    elif finding == "moved" and not drop:
        yield Refusal(
            f"{where}: `{kind}` block is bound to the conversation before it, and what stands before it (tools, "
            "system or messages) has changed since it was created"
        )


def drops_moved_thinking(body: Body) -> bool:
    """Say whether the request asks to drop thinking blocks whose past has changed, instead of being refused."""
    asked = body.get("thinking")
    binding = asked.get("block_binding") if isinstance(asked, dict) else None
    return isinstance(binding, dict) and binding.get("prefix_mismatch_behavior") == "drop_block"


def ending(history: History, model: Model, *, paused: bool) -> Iterator[Refusal]:
    """Who speaks last: the assistant only where the model takes that, or after a pause."""
    last = history.messages[-1]
    if last.role != "assistant":
        return
    if not (paused or model.prefill):
        yield Refusal(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    final = last.blocks[-1] if last.blocks else {}
    if final.get("type") == "text" and not paused and final["text"] != final["text"].rstrip():
        yield Refusal("messages: final assistant content cannot end with trailing whitespace")


def window(history: History, model: Model) -> Iterator[Refusal]:
    """The request fits into the model's context window."""
    if history.tokens > model.max_input_tokens:
        yield Refusal(f"prompt is too long: {history.tokens} tokens > {model.max_input_tokens} maximum")


def prefix(history: History, last: History, ends: tuple[int, ...]) -> Refusal | None:
    """Refuse a request that rewrites what its session sent before (spec A8); compared without `cache_control`.

    Fine are: an extension of the last request; the last one or a beginning of it once more; and an earlier
    request of the same line (`ends`: their lengths in blocks) that goes on with user content only, because the
    answers after it were lost.
    """
    common = history.common(last)
    if common in {len(last.digests), len(history.digests)}:
        return None
    if any(end <= common and "assistant" not in history.roles_from(end) for end in ends):
        return None
    # The same block may be in different messages of the two: the earlier one is where they part.
    where = min(history.part_at(common), last.part_at(common))
    return Refusal(
        f"prefix differs at {history.parts[where].where}: the request is no extension of the session's last one, which "
        f"had {len(last.messages)} messages (the rehearsal's own rule; `strict_prefix: false` turns it off)"
    )
