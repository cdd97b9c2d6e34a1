"""Project memory: read from the base commit, whatever the checkout or the branch says since."""

from collections.abc import Callable
from typing import Any

import pytest

from workers.agents.memory import MOST_BYTES, joined, project_memory
from worktrees.errors import WorktreesError
from worktrees.repository import Repository

Make = Callable[..., Any]


def read(checkout: Any, commit: str) -> str:
    return project_memory(Repository.discover(checkout.path), commit)


def test_both_files_of_the_base_in_their_order(make_repository: Make) -> None:
    """AGENTS.md, then CLAUDE.md, as of the commit: later versions and uncommitted ones do not count."""
    made = make_repository({"CLAUDE.md": "Use tabs.\n", "AGENTS.md": "Be brief.\n", "docs/CLAUDE.md": "Not this."})
    base = made.git("rev-parse", "HEAD")
    made.commit({"CLAUDE.md": "Skip the tests.\n"})
    (made.path / "AGENTS.md").write_text("Skip them!")
    assert read(made, base) == "# AGENTS.md\n\nBe brief.\n\n# CLAUDE.md\n\nUse tabs."


def test_none_or_one(make_repository: Make) -> None:
    """Without a file there is no memory, and an empty file is none."""
    made = make_repository({"README.md": "x", "AGENTS.md": "\n"})
    assert read(made, made.git("rev-parse", "HEAD")) == ""
    base = made.commit({"AGENTS.md": "Be brief."})
    assert read(made, base) == "# AGENTS.md\n\nBe brief."


def test_links_between_the_two_are_one_file(make_repository: Make) -> None:
    """CLAUDE.md is often a link to AGENTS.md; any other link is not followed, and that is said."""
    made = make_repository({"AGENTS.md": "Be brief."})
    link = made.path / "CLAUDE.md"
    link.symlink_to("AGENTS.md")
    assert read(made, made.commit({})) == "# AGENTS.md\n\nBe brief."
    link.unlink()
    link.symlink_to("/etc/hostname")
    told = read(made, made.commit({}))
    assert "CLAUDE.md is a symbolic link, which is not followed" in told
    assert "hostname" not in told


def test_the_same_words_twice_are_said_once(make_repository: Make) -> None:
    """A copy costs nothing."""
    made = make_repository({"AGENTS.md": "Be brief.\n", "CLAUDE.md": "Be brief."})
    assert read(made, made.git("rev-parse", "HEAD")) == "# AGENTS.md\n\nBe brief."


def test_imports_are_not_followed_but_said(make_repository: Make) -> None:
    """A line `@path` of Claude Code's names a file to read; the other memory file is there anyway."""
    made = make_repository(
        {"CLAUDE.md": "@AGENTS.md\n- @docs/style.md\nMail a@b.c\n@pytest.fixture()\n", "AGENTS.md": "A"}
    )
    told = read(made, made.git("rev-parse", "HEAD"))
    assert told.endswith("Read these files where they matter: docs/style.md)")


def test_too_much_is_cut_at_a_line() -> None:
    """Both together have a limit, and what is left out is counted."""
    line = "é" * 99 + "\n"
    told = joined({"AGENTS.md": line * 150, "CLAUDE.md": line * 150}, [])
    assert len(told.encode()) < MOST_BYTES + 400
    first, second = told.split("# CLAUDE.md")
    assert "left out" not in first
    kept = second.split("[…")[0].strip().splitlines()
    assert {len(one) for one in kept} == {99}
    assert f"{15_000 - (len(kept) * 100 - 1):,} more characters of CLAUDE.md are left out" in second


def test_a_huge_file_is_not_even_read(make_repository: Make) -> None:
    """Somebody's two megabytes are no memory."""
    made = make_repository({"AGENTS.md": "x" * 2_000_000})
    assert read(made, made.git("rev-parse", "HEAD")) == "(AGENTS.md has 2,000,000 bytes and is left out.)"


def test_a_base_that_is_not_there_is_an_error(make_repository: Make) -> None:
    """No memory and no repository are two things."""
    with pytest.raises(WorktreesError):
        read(make_repository(), "a" * 40)
