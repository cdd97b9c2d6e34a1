"""What a person attached is shown with the goal, and what a report claims is held against what was done."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from attempt_stand import AttemptStand
from pictures import picture

from workers import attachments
from workers.errors import ImageRefused
from workers.model.client import ModelClient
from workers.orders import AgentOrder, Told
from workers.session import events as ev
from workers.session.transcript import lines_of

Stand = Callable[..., AttemptStand]
MAKES = {"blocks": [{"tool": "bash", "input": {"command": "touch done; echo no > shot.png"}}]}


def says(words: str) -> dict[str, Any]:
    return {"blocks": [{"text": words}]}


@pytest.fixture
async def stand(make_repository: Any, rehearse: Any, tmp_path: Path) -> AsyncIterator[Stand]:
    """Make the stand of one unit whose repository has an image: `stand(step, …, rounds=2)`."""
    async with AsyncExitStack() as opened:

        def make(*steps: dict[str, Any], **options: Any) -> AttemptStand:
            repository = make_repository({"README.md": "# A\n"}, name="repository")
            (repository.path / "docs").mkdir()
            (repository.path / "docs" / "shot.png").write_bytes(picture())
            base = repository.commit({})
            server = rehearse({"units": {"a": {"steps": list(steps)}}})
            client = ModelClient(AgentOrder(model="m", base_url=server.url))
            opened.push_async_callback(client.close)
            return AttemptStand(repository, tmp_path / "home", server, client, base, options)

        yield make


async def test_an_attached_image(stand: Stand) -> None:
    """It stands in the goal's message behind a line with its name, as it is at the base; people read that line."""
    at = stand(MAKES, says("Done."), attach=("docs/shot.png",))
    (at.repository.path / "docs" / "shot.png").write_text("the checkout has moved on")
    assert (await at.run()).verdict == "pass"
    (goal,) = at.of(ev.UserMessage)
    assert [block["type"] for block in goal.content] == ["text", "text", "image"]
    assert goal.content[1]["text"] == "Attached: `docs/shot.png` [image 40x30 png]"
    for request in at.server.requests:
        assert request.body is not None
        assert request.body["messages"][0]["content"][2]["type"] == "image"
    shown = "\n".join(lines_of(at.events()))
    assert "[image 40x30 png]" in shown
    assert goal.content[2]["source"]["data"][:40] not in shown


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("docs/none.png", "attached docs/none.png cannot be read at the unit's base: docs/none.png: No such file"),
        ("README.md", "attached README.md cannot be shown: it cannot be decoded"),
    ],
)
async def test_an_image_that_is_not_there(stand: Stand, name: str, words: str) -> None:
    """Without what its author means the unit waits for a person, and no model is asked."""
    at = stand(says("Done."), attach=(name,))
    report = await at.run()
    assert report.verdict == "block"
    assert report.note.startswith(words)
    assert at.server.requests == []


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """What leads out of the tree is not shown to a model."""
    outside = tmp_path / "secret.png"
    outside.write_bytes(picture())
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "shot.png").symlink_to(outside)
    for name in ("shot.png", "../secret.png", str(outside)):
        with pytest.raises(ImageRefused, match="attached"):
            attachments.read(tree, [name])


async def test_claims_of_the_report(stand: Stand) -> None:
    """What the last text claims and nothing supports is in the report, and so in the log; what is so is not."""
    at = stand(MAKES, says("Created `other.py`. I ran `make test`. Updated `shot.png.txt`. Added `a/done` to it."))
    report = await at.run()
    assert report.verdict == "pass"
    assert report.unsupported == (
        "says that `other.py` was changed; neither the checkpoint nor any call shows it",
        "says that `make test` was run; no such command was run",
        "says that `shot.png.txt` was changed; neither the checkpoint nor any call shows it",
    )
    assert at.events()[-1].report["unsupported"] == list(report.unsupported)


async def test_tests_that_did_not_pass(stand: Stand) -> None:
    """Verify speaks too: a unit that fails while its agent says that the tests pass is told so."""
    at = stand(says("All tests pass."), rounds=1, run="test -f done")
    report = await at.run()
    assert report.verdict == "fail"
    assert report.unsupported == (
        "says that tests pass; the last run of tests, `test -f done`, ended with exit code 1",
    )


async def test_a_night_of_hooks(stand: Stand) -> None:
    """The hooks are attached: the order's message is heard, long output is cut and kept for the agent to read."""
    long = {"blocks": [{"tool": "bash", "input": {"command": "seq 9000", "timeout": "30"}}]}
    reads = {
        "blocks": [{"tool": "bash", "input": {"command": "touch done; tail -n1 $OVERNIGHT_SCRATCH/results/1.txt"}}]
    }
    at = stand(long, reads, says("Done."), told=(Told(id="t", text="Count well."),))
    assert (await at.run()).verdict == "pass"
    assert [event.told for event in at.of(ev.UserMessage)] == ["", "t"]
    first, second = at.of(ev.ToolResult)
    assert first.content.startswith("[arguments repaired: `timeout`")
    assert "$OVERNIGHT_SCRATCH/results/1.txt" in first.content
    assert second.content == "9000"
