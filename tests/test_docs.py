"""What the documents say of commands, options and scripts is so."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dispatcher.cli import overnight
from dispatcher.state import Bucket, parse
from dispatcher.units import parse as parse_unit
from workers.rehearsal import Script
from workers.session import events as ev

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_readme_lists_every_command():
    """The table of commands has a row for each command that there is, and no other."""
    rows = re.findall(r"^\| `overnight ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(overnight.list_commands(None))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_examples_exist(page):
    """Each `overnight …` line of an example names a command, and only options that it has."""
    for block in _blocks(page, ""):
        for line in block.splitlines():
            if not line.startswith("overnight "):
                continue
            words = line.partition(" #")[0].split()
            told = CliRunner().invoke(overnight, [words[1], "--help"])
            assert told.exit_code == 0, line
            for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", re.sub(r'"[^"]*"', "", " ".join(words[2:]))):
                assert option in told.output, line


def test_the_rooms_of_the_dispatcher_are_all_named():
    """Whoever adds a module or a package to the dispatcher says in which room it is found."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = page.partition("## Rooms of the dispatcher")[2].partition("\n## ")[0]
    found = [path.name for path in (ROOT / "dispatcher").glob("[a-z]*.py")]
    found += [f"{path.parent.name}/" for path in (ROOT / "dispatcher").glob("*/__init__.py")]
    assert sorted(set(re.findall(r"`([a-z]+(?:\.py|/))`", rooms)) - {"remains.py"}) == sorted(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    """Each relative link names a file that is there."""
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_script_of_the_example_is_one():
    """The rehearsal page's example can be played."""
    (text,) = _blocks(ROOT / "docs" / "rehearsal.md", "yaml")
    assert Script.parse(yaml.safe_load(text)).units["say-hello"].attempts[2]


def test_the_state_file_of_the_examples_is_one():
    """The state files that the pages show can be read, and the unit file too."""
    (shown,) = _blocks(ROOT / "README.md", "markdown")
    state, unit = _blocks(ROOT / "docs" / "state-file.md", "markdown")
    assert parse(shown) == parse(state)
    assert parse(shown).ids(Bucket.open) == ("drop-py38",)
    assert parse_unit(unit, Path("round-invoice-totals.md")).limits.rounds == 3


def test_the_sessions_page_names_every_event():
    """Whoever adds an event says on the page when it is written."""
    page = (ROOT / "docs" / "sessions.md").read_text(encoding="utf-8")
    kinds = {
        kind.type for kind in vars(ev).values() if isinstance(kind, type) and isinstance(kind.__dict__.get("type"), str)
    }
    assert len(kinds) > 15
    assert {kind for kind in kinds - {ev.Unknown.type} if f"`{kind}`" not in page} == set()
