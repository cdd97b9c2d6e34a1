"""A request as a chain of blocks: tools, then system, then messages, each block hashed together with all before it.

Everything that must hold from one request to the next is asked of this chain: whether a request extends the last
one, what a thinking block is bound to, what the prompt cache holds. `cache_control` is not part of it: moving a
breakpoint changes nothing that the model sees. Parts that equal the remembered ones are taken over as they are,
so a request costs what is new in it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

__all__ = ["EMPTY", "Block", "History", "Part", "bare", "blocks_of", "build", "link", "tokens_of"]

Block = dict[str, Any]

_START = b"\0" * 16
# What an image counts for, about that of one at the usual size; its base64 says nothing about its tokens.
_IMAGE_TOKENS = 1500
_CHARACTERS_PER_TOKEN = 4


def canonical(block: object) -> str:
    """Return the one text of a JSON value, whatever the order of its keys."""
    return json.dumps(block, sort_keys=True, separators=(",", ":"))


def link(digest: bytes, role: str, block: object) -> bytes:
    """Return the digest of everything up to and including this block.

    The role goes into each link, so a message that is split in two of the same role has the same chain.
    """
    return blake2b(digest + role.encode() + b"\0" + canonical(block).encode(), digest_size=16).digest()


def blocks_of(content: Any) -> list[Any]:
    """Return content as a list of blocks; a string is one text block."""
    if content is None:
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def bare(block: Any) -> Any:
    """Return the block without `cache_control`, also inside a tool result; the same object when there is none."""
    if not isinstance(block, dict):
        return block
    if "cache_control" in block:
        block = {key: value for key, value in block.items() if key != "cache_control"}
    inner = block.get("content")
    if isinstance(inner, list) and any(isinstance(item, dict) and "cache_control" in item for item in inner):
        block = {**block, "content": [bare(item) for item in inner]}
    return block


def tokens_of(block: Any) -> int:
    """Count tokens roughly: four characters each, and a flat sum for an image."""
    if isinstance(block, dict):
        if block.get("type") == "image":
            return _IMAGE_TOKENS
        inner = block.get("content")
        if block.get("type") == "tool_result" and isinstance(inner, list):
            return sum(map(tokens_of, inner)) + 4
    return len(canonical(block)) // _CHARACTERS_PER_TOKEN + 1


@dataclass(frozen=True, slots=True)
class Part:
    """Tools, system or one message. `digests` and `tokens` are those of the whole request up to each block."""

    where: str
    role: str
    blocks: tuple[Any, ...]
    before: bytes
    digests: tuple[bytes, ...]
    tokens: tuple[int, ...]

    def digest_before(self, index: int) -> bytes:
        """Return the digest of everything before that block."""
        return self.digests[index - 1] if index else self.before

    @property
    def tool_uses(self) -> list[str]:
        """The ids of the tool calls in this part, in order."""
        return [block["id"] for block in self.blocks if block["type"] == "tool_use"]


@dataclass(frozen=True)
class History:
    """A whole request as parts: tools, system, then one for each message. Never changed once built."""

    parts: tuple[Part, ...]
    shared: int
    """How many leading parts are those of the remembered history."""

    @cached_property
    def digests(self) -> list[bytes]:
        """The digest after each block of the request."""
        return [digest for part in self.parts for digest in part.digests]

    @property
    def digest(self) -> bytes:
        """The digest of the whole request."""
        return self.digests[-1] if self.digests else _START

    @property
    def tokens(self) -> int:
        """The tokens of the whole request, roughly."""
        return next((part.tokens[-1] for part in reversed(self.parts) if part.tokens), 0)

    @property
    def messages(self) -> tuple[Part, ...]:
        """The parts that are messages."""
        return self.parts[2:]

    def new_messages(self) -> Iterator[tuple[int, Part]]:
        """Yield (number, message) for those that the remembered history does not have."""
        return enumerate(self.parts[max(self.shared, 2) :], max(self.shared, 2) - 2)

    def common(self, other: "History") -> int:
        """Return how many leading blocks both have."""
        pairs = zip(self.digests, other.digests, strict=False)
        shortest = min(len(self.digests), len(other.digests))
        return next((index for index, (mine, theirs) in enumerate(pairs) if mine != theirs), shortest)

    def part_at(self, index: int) -> int:
        """Return the number of the part that holds the block with that index; past the end, of the one after."""
        for number, part in enumerate(self.parts):
            if index < len(part.digests):
                return number
            index -= len(part.digests)
        return len(self.parts)

    def roles_from(self, index: int) -> set[str]:
        """Return the roles of the blocks from that index on."""
        roles = [part.role for part in self.parts for _ in part.digests]
        return set(roles[index:])


EMPTY = History(parts=(), shared=0)


def _part(where: str, role: str, blocks: Sequence[Any], before: bytes, tokens: int) -> Part:
    digests, counts, digest = [], [], before
    for block in blocks:
        digest = link(digest, role, block)
        tokens += tokens_of(block)
        digests.append(digest)
        counts.append(tokens)
    return Part(where, role, tuple(blocks), before, tuple(digests), tuple(counts))


def _raw_parts(body: dict[str, Any]) -> Iterator[tuple[str, str, list[Any]]]:
    yield "tools", "tools", body.get("tools") or []
    yield "system", "system", blocks_of(body.get("system"))
    for number, message in enumerate(body["messages"]):
        yield f"messages.{number}", message["role"], blocks_of(message["content"])


def build(body: dict[str, Any], remembered: History = EMPTY) -> History:
    """Build the chain of a request whose shape was checked, taking over what equals the remembered one."""
    parts: list[Part] = []
    shared, digest, tokens = 0, _START, 0
    for index, (where, role, raw) in enumerate(_raw_parts(body)):
        blocks = tuple(map(bare, raw))
        old = remembered.parts[index] if shared == index < len(remembered.parts) else None
        if old is not None and old.role == role and old.blocks == blocks:
            part, shared = old, index + 1
        else:
            part = _part(where, role, blocks, digest, tokens)
        parts.append(part)
        if part.digests:
            digest, tokens = part.digests[-1], part.tokens[-1]
    return History(tuple(parts), shared)
