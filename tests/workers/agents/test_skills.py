"""The catalogue of skills: built-in ones and a project's own, and what may be read of them."""

from pathlib import Path

import pytest

from workers.agents.skills import SKILLS_PATH, load_skills
from workers.errors import ToolError


def write(root: Path, slug: str, text: str, name: str = "SKILL.md") -> Path:
    path = root / SKILLS_PATH / slug / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def skill(front: str = "description: Does it.", body: str = "Do it.") -> str:
    return f"---\n{front}\n---\n\n{body}\n"


def test_the_built_in_ones(tmp_path: Path) -> None:
    """Two skills come with the package; neither stops for somebody's approval (spec A21)."""
    found = load_skills(tmp_path)
    assert [one.name for one in found.listed()] == ["builtin:brainstorming", "builtin:writing-plans"]
    assert not found.problems
    for slug, file in [("brainstorming", "spec.md"), ("builtin:writing-plans", "plan.md")]:
        told = found.instructions(slug)
        assert file in told
        assert "Nobody approves" in told


def test_a_projects_own(tmp_path: Path) -> None:
    """A folder with a SKILL.md is a skill; its other files are named with its instructions and read by path."""
    write(tmp_path, "release", skill("name: release\ndescription: Makes\n  a release.\nlicense: MIT\nallowed-tools: x"))
    write(tmp_path, "release", "1. Tag.", "steps/list.md")
    write(tmp_path, "release", "", ".hidden")
    (tmp_path / SKILLS_PATH / "README.md").write_text("a stray file")
    found = load_skills(tmp_path)
    assert not found.problems
    release = found.skills["release"]
    assert (release.name, release.description) == ("release", "Makes a release.")
    assert release.notes == ("allowed-tools means nothing here",)
    assert found.instructions("release") == "Do it.\n\nFiles of this skill, to be read with `file`: steps/list.md"
    assert found.file("release", "steps/list.md") == "1. Tag."


def test_a_custom_one_stands_in_for_a_built_in_one(tmp_path: Path) -> None:
    """The project's own wins, says that it does, and the built-in one is still there by its whole name."""
    write(tmp_path, "brainstorming", skill(body="Ours."))
    found = load_skills(tmp_path)
    assert found.skills["brainstorming"].shadows
    assert found.instructions("brainstorming") == "Ours."
    assert "spec.md" in found.instructions("builtin:brainstorming")


def test_a_broken_one_is_named_and_stays_out(tmp_path: Path) -> None:
    """Every fault says where it is; a broken stand-in does not bring back what it stood in for."""
    write(tmp_path, "no-front", "Do it.")
    write(tmp_path, "no-words", skill("name: no-words"))
    write(tmp_path, "other-name", skill("name: else\ndescription: x"))
    write(tmp_path, "no-body", skill(body=""))
    write(tmp_path, "long", skill(f"description: {'x' * 1025}"))
    write(tmp_path, "Bad_Name", skill())
    write(tmp_path, "brainstorming", "Broken.")
    (tmp_path / SKILLS_PATH / "empty").mkdir()
    found = load_skills(tmp_path)
    assert list(found.skills) == ["writing-plans"]
    shown = {slug: str(error) for slug, error in found.problems.items()}
    assert shown["no-words"].startswith(".overnight/skills/no-words/SKILL.md:2: description: is missing")
    assert shown["other-name"].startswith(".overnight/skills/other-name/SKILL.md:2: name: ")
    assert "1025 characters" in shown["long"]
    assert "cannot be read" in shown["empty"]
    assert sorted(shown) == [
        *("Bad_Name", "brainstorming", "empty", "long", "no-body", "no-front", "no-words", "other-name"),
    ]


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    """No `..`, no absolute path, no link, neither as a file nor as a folder nor as the skill itself."""
    (tmp_path / "secret").write_text("secret")
    write(tmp_path, "ours", skill())
    (tmp_path / SKILLS_PATH / "ours" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / SKILLS_PATH / "ours" / "up").symlink_to(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "SKILL.md").write_text(skill())
    (tmp_path / SKILLS_PATH / "linked").symlink_to(tmp_path / "elsewhere")
    found = load_skills(tmp_path)
    for path in ("../../../secret", "/etc/hostname", "link", "up/secret", "SKILL.md/x", "a\0b", ".", "missing"):
        with pytest.raises(ToolError):
            found.file("ours", path)
    assert "symbolic link" in str(found.problems["linked"])
    with pytest.raises(ToolError, match="no files"):
        found.file("brainstorming", "x")


def test_files_that_are_no_text_or_too_long(tmp_path: Path) -> None:
    """A picture is refused, a long file is cut and says so."""
    write(tmp_path, "ours", skill())
    (tmp_path / SKILLS_PATH / "ours" / "a.png").write_bytes(b"\x89PNG\xff")
    write(tmp_path, "ours", "x" * 100_005, "long.txt")
    found = load_skills(tmp_path)
    with pytest.raises(ToolError, match="UTF-8"):
        found.file("ours", "a.png")
    assert found.file("ours", "long.txt").endswith("[… 5 more characters]")


def test_an_agents_part_of_the_catalogue(tmp_path: Path) -> None:
    """What an agent does not name is not there for it; the error says what is."""
    found = load_skills(tmp_path).limited(["writing-plans"])
    assert [one.slug for one in found.listed()] == ["writing-plans"]
    with pytest.raises(ToolError, match="there are: builtin:writing-plans"):
        found.instructions("brainstorming")
    assert load_skills(tmp_path).limited(()).listed() == []


def test_one_that_only_people_call_for(tmp_path: Path) -> None:
    """`disable-model-invocation` keeps a skill out of the list, not out of a goal."""
    write(tmp_path, "ours", skill("description: x\ndisable-model-invocation: true"))
    found = load_skills(tmp_path)
    assert "ours" not in [one.slug for one in found.listed()]
    assert [one.slug for one in found.invoked("Do /ours.")] == ["ours"]


@pytest.mark.parametrize(
    ("goal", "slugs"),
    [
        ("/brainstorming a thing", ["brainstorming"]),
        ("First /writing-plans, then\n/brainstorming. And /writing-plans!", ["writing-plans", "brainstorming"]),
        ("Use (/builtin:brainstorming)", ["brainstorming"]),
        ("in docs/brainstorming and /brainstorming/x, /brainstorming.md or //brainstorming", []),
        ("https://x.y/brainstorming ~/brainstorming /brainstorming-not /Brainstorming", []),
        ("/tmp is no skill", []),
    ],
)
def test_a_slash_in_a_goal(tmp_path: Path, goal: str, slugs: list[str]) -> None:
    """`/slug` calls for a skill, each once and in order; a path is a path."""
    assert [one.slug for one in load_skills(tmp_path).invoked(goal)] == slugs
