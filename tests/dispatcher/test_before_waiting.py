"""What a run that waits for its time checks first: all that would refuse it when nobody is there any more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dispatcher import dropbox
from dispatcher.config import Config, parse
from dispatcher.errors import BadInput
from dispatcher.home import Home
from dispatcher.opening import STATE_PATH
from dispatcher.preflight import check_before_waiting
from worktrees.repository import Repository

STATE = "# Loop State: X\n# Once.\n\n## tried\n\n## passed\n\n## open\n\n## blocked\n"


class Place:
    def __init__(self, checkout: Any, folder: Path) -> None:
        self.checkout = checkout
        self.root: Path = checkout.path
        self.home = Home(folder / "home")

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    async def check(self, config: str = "") -> None:
        found: Config = parse(config + '[verify]\nrun = "make"\n') if "[verify]" not in config else parse(config)
        await check_before_waiting(Repository.discover(self.root), self.home, found)


@pytest.fixture
def place(make_repository: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A repository with one unit, and no key: with all else well, that is what is found."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    made = Place(make_repository({"a": "1"}), tmp_path)
    made.write(".overnight/units/good.md", "Make it nice.\n")
    return made


@pytest.mark.parametrize(
    ("spoil", "config", "words"),
    [
        (lambda _: None, "", "ANTHROPIC_API_KEY"),
        (lambda one: one.write(".overnight/units/bad.md", "---\nafter: nobody\n---\nDo."), "", "nobody"),
        (lambda one: one.write(".overnight/units/bad.md", "---\nafter: bad\n---\nDo."), "", "bad"),
        (lambda _: None, "[verify]\n", "the unit has no verify"),
        (lambda one: one.write(".overnight/units/bad.md", "---\nagent: nobody\n---\nDo."), "", "no agent 'nobody'"),
        (lambda one: one.checkout.git("branch", "overnight"), "", "stands in the way"),
        (lambda _: None, '[model]\nname = "claude-nobody-9"\n', "the price of 'claude-nobody-9' is unknown"),
        (lambda _: None, 'base = "nowhere"\n', "the base 'nowhere' is no commit here"),
        (lambda one: one.write(str(STATE_PATH), STATE.replace("## open", "## opne")), "", "opne"),
        (
            lambda one: one.write(str(STATE_PATH), STATE.replace("Once.", "Night 1-a, rev 3.")),
            "",
            "journal is not",
        ),
    ],
    ids=["key", "after", "cycle", "verify", "agent", "branch", "price", "base", "state", "journal"],
)
async def test_each_fault_is_found_and_nothing_is_made(
    place: Place, spoil: Callable[[Place], object], config: str, words: str
) -> None:
    """Unit files, branches, state file, base, agents, prices and the key, in the order of a run's own start."""
    spoil(place)
    with pytest.raises(BadInput, match=words):
        await place.check(config)
    assert not place.home.root.exists()


async def test_a_unit_whose_cancel_waits_is_no_fault(place: Place) -> None:
    """The run obeys it before it looks, so its file may be gone."""
    place.write(str(STATE_PATH), STATE.replace("## open\n", "## open\n- gone\n"))
    with pytest.raises(BadInput, match="gone"):
        await place.check()
    place.home.make()
    dropbox.drop(place.home.dropbox, dropbox.Cancel(unit="gone"))
    with pytest.raises(BadInput, match="ANTHROPIC_API_KEY"):
        await place.check()
