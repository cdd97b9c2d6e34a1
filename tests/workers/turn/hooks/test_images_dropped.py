"""Images of tool results give way when a call would carry too many, so that a strict API accepts it (spec A23)."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from loop_stand import GOAL, LoopStand
from pictures import picture

from workers.images import prepared
from workers.session import events as ev
from workers.session.surface import IMAGES_GONE
from workers.turn.hooks.images import MOST_IMAGES, Images, carried

Stand = Callable[..., Awaitable[LoopStand]]
LOOK = {"tool": "str_replace_based_edit_tool", "input": {"command": "view", "path": "shot.png"}}


def step(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"blocks": list(blocks)}


async def test_the_twenty_first(stand: Stand) -> None:
    """The call that would carry 21 images has the newest alone, with notes for the others, and is accepted.

    Twenty are carried without a change. What was sent before is rewritten at that one call and never else.
    """
    looks = [step({"thinking": f"hm {number}"}, LOOK) for number in range(24)]
    at = await stand(*looks, step({"text": "Done."}))
    (at.tree / "shot.png").write_bytes(picture())
    at.hooks = (Images(),)
    ended = await at.loop().run_turn(GOAL)
    assert (ended.reason, ended.text) == ("completed", "Done.")
    counts = [sum(carried(at.asked(number))[1]) for number in range(25)]
    assert counts == [*range(21), 1, 2, 3, 4]
    assert at.kinds().count("images/drop") == 1
    before, after = at.asked(20), at.asked(21)
    assert [block["type"] for message in before for block in message["content"]].count("thinking") == 20
    assert not any(block["type"] == "thinking" for message in after for block in message["content"])
    notes = [part["text"] for message in after for part in _parts(message) if part["type"] == "text"]
    assert notes.count(IMAGES_GONE) == 20
    assert notes.count("[image 40x30 png]") == 21


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    results = [block["content"] for block in message["content"] if block["type"] == "tool_result"]
    return [part for content in results if isinstance(content, list) for part in content]


async def test_attached_ones_stay(stand: Stand) -> None:
    """What a person attached counts, and is never dropped; with nothing else to drop nothing is rewritten."""
    image = prepared(picture()).block
    goal = ev.UserMessage(source="goal", content=[*GOAL.content, *[image] * MOST_IMAGES])
    at = await stand(step(LOOK), step(LOOK), step(LOOK), step({"text": "Done."}))
    (at.tree / "shot.png").write_bytes(picture())
    at.hooks = (Images(),)
    assert (await at.loop().run_turn(goal)).reason == "completed"
    assert [carried(at.asked(number)) for number in range(4)] == [(20, []), (20, [1]), (20, [1]), (20, [1])]
    assert at.kinds().count("images/drop") == 2


async def test_looks_at_once(stand: Stand) -> None:
    """Many images in one step are too many as well; the newest of them stays."""
    at = await stand(step(*[LOOK] * 22), step({"text": "Done."}))
    (at.tree / "shot.png").write_bytes(picture())
    at.hooks = (Images(),)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    assert carried(at.asked(1)) == (0, [1])


async def test_a_session_taken_up_again(stand: Stand, tmp_path: Path) -> None:
    """A new process counts what the log holds, and drops nothing twice."""
    at = await stand(*[step(LOOK)] * 20, step({"text": "Done."}), step(LOOK), step({"text": "Done."}))
    (at.tree / "shot.png").write_bytes(picture())
    at.hooks = (Images(),)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    assert at.kinds().count("images/drop") == 0
    at.hooks = (Images(),)
    more = ev.UserMessage(source="runtime", content=[{"type": "text", "text": "Look again."}])
    assert (await at.loop().run_turn(more)).reason == "completed"
    assert at.kinds().count("images/drop") == 1
    assert carried(at.asked(22)) == (0, [1])
