"""Unit files read fresh, and what people wrote down adopted into the state."""

import os
from pathlib import Path

import pytest

from dispatcher import journal as j
from dispatcher.archive import ARCHIVE_PATH
from dispatcher.config import Config, parse
from dispatcher.errors import UnitFileError
from dispatcher.ledger import Ledger
from dispatcher.roster import Roster
from dispatcher.state import Bucket, State


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / ".overnight" / "units"
    made.mkdir(parents=True)
    return made


def roster(folder: Path, config: str = '[verify]\nrun = "true"\n') -> Roster:
    made = Roster(folder.parents[1], parse(config))
    made.load()
    return made


def test_unit_files_that_no_bucket_lists_are_adopted_into_open(folder: Path) -> None:
    """In the order in which they were written, behind what is there; a cancelled one is not."""
    for moment, name in enumerate(("b", "a", "gone")):
        (folder / f"{name}.md").write_text("Do it.\n")
        os.utime(folder / f"{name}.md", ns=(moment, moment))
    cancelled = Ledger().extend([j.Edited(obeyed=[], refused=[], cancelled=["gone"])])
    state = roster(folder).adopt(State("Ours").add("z", Bucket.blocked).add("c"), cancelled)
    assert state.ids(Bucket.open) == ("c", "b", "a")
    assert state.ids(Bucket.blocked) == ("z",)


def test_a_typed_goal_moves_into_a_unit_file(folder: Path) -> None:
    """And is a unit at once; a file that is there already wins."""
    (folder / "b.md").write_text("From the file.\n")
    made = roster(folder)
    state = made.adopt(State("Ours").add("a", goal="Do a.").add("b", goal="Typed."), Ledger())
    assert (folder / "a.md").read_text() == "Do a.\n"
    assert (folder / "b.md").read_text() == "From the file.\n"
    assert state.typed_goals == {}
    assert {name: unit.goal for name, unit in made.units.items()} == {"a": "Do a.", "b": "From the file."}


def test_a_file_that_breaks_while_a_run_goes_on_leaves_the_last_good_reading_in_force(folder: Path) -> None:
    """What is wrong is returned, and goes away when it is mended."""
    path = folder / "a.md"
    path.write_text("Do a.\n")
    made = roster(folder)
    path.write_text("---\nverfy: x\n---\nDo a.\n")
    wrong = made.reload()
    assert isinstance(wrong, UnitFileError)
    assert made.units["a"].goal == "Do a."
    path.write_text("Do b.\n")
    assert made.reload() is None
    assert made.units["a"].goal == "Do b."


def test_a_unit_without_a_verify_is_refused_at_the_start(folder: Path) -> None:
    """It could never pass."""
    (folder / "a.md").write_text("Do a.\n")
    with pytest.raises(UnitFileError, match="verify"):
        Roster(folder.parents[1], Config()).load()


def test_attempts_are_the_units_own_or_the_configs(folder: Path) -> None:
    """Also for a unit whose file is gone."""
    (folder / "a.md").write_text("---\nlimits: {attempts: 7}\n---\nDo a.\n")
    made = roster(folder)
    assert (made.attempts("a"), made.attempts("gone")) == (7, 3)


def archive_one(folder: Path, unit: str, commit: str) -> None:
    path = folder.parents[1] / ARCHIVE_PATH / "1130-k3v.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"# Loop State: x\n\n## commits\n- {unit}  {commit}\n\n## merged\n")


def test_a_unit_may_come_after_an_archived_one(folder: Path) -> None:
    """It is known, and counts when the base holds its commit; an unknown one is refused as ever."""
    archive_one(folder, "old", "a" * 40)
    (folder / "b.md").write_text("---\nafter: old\n---\nDo b.\n")
    made = roster(folder)
    assert made.landed("base", lambda base, commit: (base, commit) == ("base", "a" * 40)) == {"old": True}
    assert made.landed("base", lambda *_: False) == {"old": False}
    (folder / "c.md").write_text("---\nafter: never\n---\nDo c.\n")
    with pytest.raises(UnitFileError, match="never"):
        made.load()
