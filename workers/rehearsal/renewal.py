"""The ways in which a session may rewrite its past: to drop images (A23), or to begin a turn under another head. Pure.

Thinking is bound to what stood before it, so both are allowed only without any of the thinking that was sent. Another
model is another head: it may be sent the past without the thinking of the one before, which it cannot read.
"""

from collections.abc import Sequence

from workers.rehearsal.history import Block, History

__all__ = ["is_renewal"]


def is_renewal(history: History, last: History, *, is_new_model: bool = False) -> bool:
    """Say whether a request is the session's last one with another head, or text in the place of tool results' images.

    Whatever else it changes, or thinking that it keeps, makes it no renewal.
    """
    before = [(part.role, kept) for part in last.messages if (kept := _without_thinking(part.blocks))]
    after = history.messages[: len(before)]
    if len(after) < len(before):
        return False
    heads = [[part.blocks for part in one.parts[:2]] for one in (history, last)]
    has_new_head = is_new_model or heads[0] != heads[1]
    if has_new_head and not _begins_a_turn(history, len(before)):
        return False
    gone = 0
    for (role, old), part in zip(before, after, strict=True):
        count = _images_gone(old, part.blocks) if role == part.role else None
        if count is None:
            return False
        gone += count
    return gone > 0 or has_new_head


def _begins_a_turn(history: History, known: int) -> bool:
    """Say whether more than was known is there, and a person speaks last: an agent changes between turns only."""
    last = history.messages[-1].blocks
    return len(history.messages) > known and not any(block["type"] == "tool_result" for block in last)


def _without_thinking(blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if "thinking" not in block["type"]]


def _images_gone(old: Sequence[Block], new: Sequence[Block]) -> int | None:
    """Return how many images in tool results are text now; None where anything else differs."""
    if len(old) != len(new):
        return None
    counts = [_gone_in(before, after) for before, after in zip(old, new, strict=True) if before != after]
    return None if None in counts else sum(count for count in counts if count is not None)


def _gone_in(before: Block, after: Block) -> int | None:
    """Return how many images a tool result has less; None for blocks that differ in anything else."""
    old, new = before.get("content"), after.get("content")
    if before["type"] != "tool_result" or {**before, "content": None} != {**after, "content": None}:
        return None
    if not isinstance(old, list) or not isinstance(new, list) or len(old) != len(new):
        return None
    changed = [(part["type"], other["type"]) for part, other in zip(old, new, strict=True) if part != other]
    return len(changed) if all(change == ("image", "text") for change in changed) else None
