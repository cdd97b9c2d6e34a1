"""Rules about `cache_control`: where it may stand, and how often."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from workers.rehearsal.history import History
from workers.rehearsal.refusal import EXTRA, Body, Refusal

__all__ = ["MAX_BREAKPOINTS", "breakpoint_rules", "breakpoints", "cache_control"]

MAX_BREAKPOINTS = 4


def _marked(body: Body) -> Iterator[tuple[str, Body]]:
    """Yield (where, block) for every block that carries `cache_control`, in the order of the chain."""
    for index, tool in enumerate(body.get("tools") or []):
        if tool.get("cache_control") is not None:
            yield f"tools.{index}", tool
    for place, content in _contents(body):
        if isinstance(content, list):
            yield from _marked_in(content, place)


def _contents(body: Body) -> Iterator[tuple[str, Any]]:
    yield "system", body.get("system")
    for number, message in enumerate(body["messages"]):
        yield f"messages.{number}.content", message["content"]


def _marked_in(blocks: list[Any], place: str) -> Iterator[tuple[str, Body]]:
    for index, block in enumerate(blocks):
        if not isinstance(block, dict):
            continue
        if block.get("cache_control") is not None:
            yield f"{place}.{index}", block
        if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
            yield from _marked_in(block["content"], f"{place}.{index}.content")


def breakpoints(body: Body, history: History) -> list[int]:
    """Return the indexes, in the whole chain, of the blocks that end with a cache breakpoint."""
    sizes = [len(part.digests) for part in history.parts]
    starts = dict(zip((part.where for part in history.parts), accumulate(sizes, initial=0), strict=False))
    found = [starts[_part_of(where)] + _block_of(where) for where, _ in _marked(body)]
    if body.get("cache_control") is not None and history.digests:
        found.append(len(history.digests) - 1)
    return found


def _part_of(where: str) -> str:
    pieces = where.split(".")
    return ".".join(pieces[:2]) if pieces[0] == "messages" else pieces[0]


def _block_of(where: str) -> int:
    pieces = where.split(".")
    return int(pieces[3] if pieces[0] == "messages" else pieces[1])


def cache_control(block: Body, where: str) -> Iterator[Refusal]:
    """What `cache_control` itself looks like, where it is set."""
    mark = block.get("cache_control")
    if mark is None:
        return
    if not isinstance(mark, dict) or mark.get("type") != "ephemeral":
        yield Refusal(f"{where}: Input should be an object with type 'ephemeral'")
    elif mark.get("ttl", "5m") not in ("5m", "1h"):
        yield Refusal(f"{where}.ephemeral.ttl: Input should be '5m' or '1h'")
    elif extra := next((key for key in mark if key not in {"type", "ttl"}), None):
        yield Refusal(f"{where}.ephemeral.{extra}: {EXTRA}")


def breakpoint_rules(body: Body) -> Iterator[Refusal]:
    """No breakpoint where none may stand, and not more than four."""
    marked = list(_marked(body))
    for where, block in marked:
        kind = block.get("type")
        if kind in ("thinking", "redacted_thinking"):  # a tuple: inside a tool result the type is not checked yet
            yield Refusal(f"{where}.{kind}.cache_control: {EXTRA}")
        if kind == "text" and not block.get("text"):
            yield Refusal(f"{where}.text.cache_control: cache_control cannot be set for empty text blocks")
        yield from cache_control(block, f"{where}.cache_control")
    count = len(marked) + (body.get("cache_control") is not None)
    if count > MAX_BREAKPOINTS:
        yield Refusal(f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {count}.")
