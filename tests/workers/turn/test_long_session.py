"""A long session with everything in it: its requests only grow, and almost all of what is sent comes from the cache."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from loop_stand import GOAL, LoopStand
from pictures import picture

from workers.orders import Told
from workers.session import events as ev
from workers.session.replay import replay
from workers.turn.compaction import ASK
from workers.turn.hooks.images import Images
from workers.turn.hooks.repair import Repair
from workers.turn.hooks.shorten import Shorten
from workers.turn.hooks.steering import Steering
from workers.turn.hooks.trim import Trim

Stand = Callable[..., Awaitable[LoopStand]]

SUMMED = {"cues": [{"last": ASK[:28], "answer": {"blocks": [{"text": "Looked at many things. " * 5}]}}]}
EFFORTS = ("low", "high", "medium", "off")
A_TURN = 25  # steps


class Voices:
    """People who say something every now and then."""

    def __init__(self) -> None:
        self.asked = 0

    async def told(self) -> Sequence[Told]:
        self.asked += 1
        return [Told(id=str(number), text="Mind the gap.") for number in range(self.asked // 15)]


def bash(command: str) -> dict[str, Any]:
    return {"tool": "bash", "input": {"command": command}}


def edits(command: str, path: str, **more: Any) -> dict[str, Any]:
    return {"tool": "str_replace_based_edit_tool", "input": {"command": command, "path": path, **more}}


def one_step(number: int) -> dict[str, Any]:
    """A step of a kind that depends on its number: one call or thirty, long output, an image, a document, an end."""
    thought = [{"thinking": f"hm {number}"}]
    if number % A_TURN == A_TURN - 1:
        return {"blocks": [*thought, {"text": "Done."}]}
    match number % 8:
        case 1:
            calls = [bash("seq 1000")]
        case 2 | 3:
            calls = [edits("view", "shot.png")]
        case 5:
            calls = [edits("create", "doc.md", file_text="line\n" * 600)]
        case 7 if number % 16 == 7:
            calls = [edits("view", "doc.md", view_range=[1, 5])] * 30
        case _:
            calls = [bash("true")]
    return {"blocks": [*thought, *calls]}


async def run(at: LoopStand, steps: int) -> None:
    """Run all turns, each with another effort."""
    (at.tree / "shot.png").write_bytes(picture())
    scratch = at.tree.parent / "scratch"
    scratch.mkdir()
    at.hooks = (Steering(Voices()), Images(), Shorten(scratch), Repair(), Trim())
    loop = at.loop()
    for turn in range(steps // A_TURN):
        message = GOAL if turn == 0 else ev.UserMessage(source="verify", content=[{"type": "text", "text": "Failed."}])
        ended = await loop.run_turn(message.model_copy(update={"effort": EFFORTS[turn % len(EFFORTS)]}))
        assert ended.reason == "completed", ended


def is_right(at: LoopStand) -> None:
    """Every request was accepted and can be rebuilt; what the server read from its cache is nearly all there was."""
    told = at.durable()
    assert {request.status for request in at.server.requests} == {200}
    assert all(row.ok for row in replay(told))
    best = read = whole = before = 0
    is_new = True
    for event in told:
        if isinstance(event, ev.Compaction | ev.ImagesDropped):
            is_new = True
        elif isinstance(event, ev.AssistantMessage):
            used = event.usage
            sent = used.input_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens
            whole, read = whole + sent, read + used.cache_read_input_tokens
            best += used.cache_read_input_tokens if is_new else before
            before, is_new = sent, False
    assert best > 0.8 * whole
    assert read > 0.98 * best, (read, best, whole)


async def test_everything_at_once(stand: Stand) -> None:
    """A hundred steps with hooks, images, steering, effort changes and a compaction."""
    at = await stand(*map(one_step, range(100)), script=SUMMED, context_cap=30_000)
    await run(at, 100)
    kinds = at.kinds()
    assert kinds.count("compaction") >= 1
    assert any(event.told for event in at.durable() if isinstance(event, ev.UserMessage))
    assert any(event.trimmed for event in at.results())
    starts = [event for event in at.durable() if isinstance(event, ev.StepStart)]
    assert {(event.output_config or {}).get("effort") for event in starts} == {"low", "medium", "high", None}
    is_right(at)


@pytest.mark.soak
async def test_five_hundred_steps(stand: Stand) -> None:
    """The same, five times as long, with dropped images as well."""
    at = await stand(*map(one_step, range(500)), script=SUMMED, context_cap=150_000)
    await run(at, 500)
    assert at.kinds().count("images/drop") >= 1
    assert at.kinds().count("compaction") >= 1
    is_right(at)


def test_the_script_has_every_kind_of_step() -> None:
    """What the sessions above claim to have in them is there."""
    kinds = [str(one_step(number)) for number in range(100)]
    assert all(any(words in kind for kind in kinds) for words in ("shot.png", "seq 1000", "create", "Done."))
    assert max(kind.count("doc.md") for kind in kinds) == 30
