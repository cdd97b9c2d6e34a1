"""The tool `skill`: reads from the shelf that it was given and from nowhere else."""

from pathlib import Path
from typing import Any

import pytest

from workers.agents.skills import load_skills
from workers.errors import ToolError
from workers.tools import UseSkill, Workspace, built_in


async def use(root: Path, workspace: Workspace, **arguments: Any) -> str:
    return (await UseSkill(load_skills(root)).run(arguments, workspace)).content


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one skill and a file beside it."""
    folder = tmp_path / "checkout/.overnight/skills/release"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\ndescription: Makes a release.\n---\nTag it.\n")
    (folder / "list.md").write_text("1. Tag")
    return tmp_path / "checkout"


async def test_instructions_and_files(checkout: Path, workspace: Workspace) -> None:
    """By name it gives the instructions, with `file` another file of the skill; an empty `file` is none."""
    assert (await use(checkout, workspace, name="release")).startswith("Tag it.")
    assert (await use(checkout, workspace, name="/release", file="")).startswith("Tag it.")
    assert await use(checkout, workspace, name="release", file="list.md") == "1. Tag"
    assert "plan.md" in await use(checkout, workspace, name="builtin:writing-plans")
    assert not UseSkill(load_skills(checkout)).mutates({"name": "release"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "`name` is missing"),
        ({"name": 3}, "must be a string"),
        ({"name": "relese"}, "there is no skill 'relese'; there are: builtin:brainstorming"),
        ({"name": "release", "file": "../release/SKILL.md"}, "without `..`"),
        ({"name": "release", "file": "nothing.md"}, "No such file"),
        ({"name": "release", "file": ["list.md"]}, "must be a string"),
    ],
)
async def test_what_is_not_there(checkout: Path, workspace: Workspace, arguments: dict[str, Any], words: str) -> None:
    """The model is told what is wrong and what there is."""
    with pytest.raises(ToolError, match=words):
        await use(checkout, workspace, **arguments)


async def test_without_a_shelf_there_is_none(workspace: Workspace) -> None:
    """The tool of an agent that was given no skills reads nothing."""
    for arguments in ({"name": "brainstorming"}, {"name": "brainstorming", "file": "x"}):
        with pytest.raises(ToolError, match="there is no skill"):
            await built_in()["skill"].run(arguments, workspace)
