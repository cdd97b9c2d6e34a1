"""The prompt cache: how much of what a session sends is read from it, against the best that its history allows.

The cache is the one of the facts page: an entry is written at each breakpoint, a look-up goes back 20 blocks from one.
Its five minutes are left out: everything here happens at once.
"""

import json
import random
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import pytest
from histories import START, calls, says, user

from workers.session import events as ev
from workers.session.surface import Request, Surface, request

LOOK_BACK = 20  # blocks, the one with the breakpoint included
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "a" * 2_000}}


@dataclass
class Cache:
    """One endpoint's cache, and what could have been read had every block of every request been written."""

    entries: set[bytes] = field(default_factory=set)
    sent: set[bytes] = field(default_factory=set)
    read: int = 0
    best: int = 0
    whole: int = 0
    most_breakpoints: int = 0
    texts: dict[int, tuple[Any, bytes]] = field(default_factory=dict)  # by the block's identity

    def text(self, block: dict[str, Any]) -> bytes:
        if "cache_control" in block:
            block = {name: value for name, value in block.items() if name != "cache_control"}
        elif id(block) in self.texts:
            return self.texts[id(block)][1]
        made = json.dumps(block).encode()
        self.texts[id(block)] = block, made
        return made

    def ask(self, made: Request) -> None:
        chain: list[tuple[bytes, int]] = []
        marks = []
        digest, size = b"", 0
        for block in [*made.tools, *made.system, *(b for message in made.messages for b in message["content"])]:
            if "cache_control" in block:
                marks.append(len(chain))
            text = self.text(block)
            digest, size = blake2b(digest + text, digest_size=12).digest(), size + len(text)
            chain.append((digest, size))
        back = [at for mark in marks for at in range(max(0, mark - LOOK_BACK + 1), mark + 1)]
        self.read += max((chain[at][1] for at in back if chain[at][0] in self.entries), default=0)
        self.best += next((known for digest, known in reversed(chain) if digest in self.sent), 0)
        self.whole += size
        self.entries |= {chain[mark][0] for mark in marks}
        self.sent |= {digest for digest, _ in chain}
        self.most_breakpoints = max(self.most_breakpoints, len(marks))


def one_step(chance: random.Random, step: int) -> list[Any]:
    """An answer with some calls, now and then very many, and their results; now and then an image, or a word.

    Or one that ends the turn, so that another begins, of another effort; or a pause of the API.
    """
    if chance.random() < 0.02:
        goes_on = user("Verify failed.", "verify").model_copy(update={"effort": "high"})
        return [says({"type": "text", "text": "Done."}, stop="end_turn"), ev.TurnStart(turn=step), goes_on]
    if chance.random() < 0.02:
        return [says({"type": "text", "text": "Wait."}, stop="pause_turn")]
    names = [f"{step}-{n}" for n in range(chance.choice([1, 1, 1, 2, 3, 30]))]
    thought = [{"type": "thinking", "thinking": "", "signature": f"s{step}"}] if chance.random() < 0.5 else []
    words = [{"type": "text", "text": "So. " * chance.randrange(1, 40)}] if chance.random() < 0.3 else []
    told: list[Any] = [says(*thought, *words, *map(calls, names))]
    for name in names:
        images = [IMAGE] if chance.random() < 0.1 else []
        trimmed = {"command": "short"} if chance.random() < 0.1 else None
        output = "x" * chance.randrange(1, 4_000)
        told.append(ev.ToolResult(call_id=name, content=output, images=images, trimmed=trimmed))
    if chance.random() < 0.05:
        told.append(user("Mind the gap.", "person"))
    return told


def between(chance: random.Random, step: int, view: Surface) -> list[Any]:
    """What may stand before a step's call: a summary, images that are dropped."""
    if step % 170 == 169:
        return [ev.Compaction(summary="So far so good. " * 60, steps=view.answers)]
    results = [block for message in view.messages for block in message["content"] if block["type"] == "tool_result"]
    if sum(not isinstance(block["content"], str) and IMAGE in block["content"] for block in results) > 20:
        return [ev.ImagesDropped()]
    return []


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 6))])
def test_almost_all_that_could_be_read_is_read(seed: int) -> None:
    """In 500 steps with hooks, images, steering and compactions: within 2 % of the best, with four breakpoints."""
    chance, view, cache = random.Random(seed), Surface().extend([START, user("go " * 400)]), Cache()
    for step in range(500):
        view.extend(between(chance, step, view))
        cache.ask(request(view))
        view.extend(one_step(chance, step))
    assert cache.best > 0.9 * cache.whole  # else there would be nothing to lose
    assert cache.read > 0.98 * cache.best, (cache.read / cache.whole, cache.best / cache.whole)
    assert cache.most_breakpoints == 4


def test_an_answer_that_was_lost_costs_nothing() -> None:
    """A failed call wrote nothing; the next one finds what the last answered one wrote, however much came since."""
    view, cache = Surface().extend([START, user("go")]), Cache()
    cache.ask(request(view))
    view.extend([says(*(calls(f"a{n}") for n in range(40)))])
    view.extend(ev.ToolResult(call_id=f"a{n}", content="ok") for n in range(40))
    for _ in range(3):  # three failures, each with a message more
        view.extend([user("on")] * 10)
    before = cache.read
    cache.ask(request(view))
    first = sum(len(json.dumps(block)) for block in [*START.tools, *START.system, user("go").content[0]])
    assert cache.read - before == first


def test_a_question_beside_the_session_reads_it_and_writes_nothing() -> None:
    """What asks for a summary reads all that the last call wrote, and has no breakpoint behind that."""
    view, cache = Surface().extend([START, user("go")]), Cache()
    cache.ask(request(view))
    view.extend([says(calls("a")), ev.ToolResult(call_id="a", content="ok")])
    before = set(cache.entries)
    asked = request(view, [{"type": "text", "text": "Sum it up."}])
    cache.ask(asked)
    assert cache.entries == before
    assert cache.read > 0
    assert asked.messages[-1]["content"] == [{"type": "text", "text": "Sum it up."}]
    assert len(view.messages) == 3


def test_a_summary_leaves_the_goal_to_be_read() -> None:
    """The first call after a compaction reads head and goal, which the very first call wrote."""
    view, cache = Surface().extend([START, user("go " * 400)]), Cache()
    cache.ask(request(view))
    first = cache.whole
    for step in range(3):
        view.extend([says(calls(f"a{step}")), ev.ToolResult(call_id=f"a{step}", content="ok")])
        cache.ask(request(view))
    view.extend([user("on")] * 30)  # more than a look-back, all of it still unanswered
    view.add(ev.Compaction(summary="s", steps=3))
    before = cache.read
    cache.ask(request(view))
    assert cache.read - before == first


def test_the_second_time_that_images_are_dropped() -> None:
    """What stands before the newest image is written at once, so the next drop reads all that is left as it was."""
    view, cache = Surface().extend([START, user("go")]), Cache()
    for step in range(60):
        view.extend([says(calls(f"a{step}")), ev.ToolResult(call_id=f"a{step}", content="ok" * 50, images=[IMAGE])])
        if step % 20 == 19:
            view.add(ev.ImagesDropped())
            read, best = cache.read, cache.best
        cache.ask(request(view))
        if step % 20 == 19 and step > 20:
            assert cache.read - read > 0.9 * (cache.best - best) > 0
