"""A session's log that was damaged between two runs: a person hears at once, mends it or begins anew, and it passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from night_stand import Project, asks, check_night, makes, orders, plays

from dispatcher.journal import Lost, Reported

MakeNight = Callable[..., Project]
UNITS = ("create-foo", "create-bar")


def damage(path: Path) -> bytes:
    """Change one byte of a line in the middle, and return what was there."""
    whole = path.read_bytes()
    lines = whole.split(b"\n")
    lines[4] = lines[4].replace(b"type", b"tipe", 1)
    path.write_bytes(b"\n".join(lines))
    assert path.read_bytes() != whole
    return whole


def test_a_person_hears_at_once_and_both_ways_on_lead_on(night: MakeNight) -> None:
    """No loss, no attempt spent: `blocked` with line and file; restored it goes on, `retry` has a log of its own."""
    project = night(
        plays(
            {
                unit: {"attempts": {1: [asks("Which?"), *makes(f"{unit[-3:]}.txt")], 2: makes(f"{unit[-3:]}.txt")}}
                for unit in UNITS
            }
        )
    )
    for unit in UNITS:
        project.unit(unit)
    assert project.overnight("run", "-j", "2").code == 1
    logs = {unit: project.home.session(project.night(), unit, 1) for unit in UNITS}
    whole = {unit: damage(path) for unit, path in logs.items()}
    for unit in UNITS:
        project.overnight("answer", unit, "This.")
    assert project.overnight("run", "-j", "2").code == 1
    assert sorted(project.ids("blocked")) == sorted(UNITS)
    assert project.journal(Lost) == []
    told: list[Any] = [entry.report for entry in project.journal(Reported)][-2:]
    assert [(one.kind, one.reason) for one in told] == [("release", "session")] * 2
    for looks in (("report",), ("inbox",)):
        said = project.overnight(*looks).text
        for unit, path in logs.items():
            assert "its session: line 5 (byte " in said
            assert str(path) in said
            assert f"`overnight unblock {unit}`" in said
            assert f"`overnight retry {unit}`" in said

    logs["create-foo"].write_bytes(whole["create-foo"])
    project.overnight("unblock", "create-foo")
    project.overnight("retry", "create-bar")
    assert project.overnight("run", "-j", "2").code == 0
    check_night(project, UNITS)
    assert sorted(orders(project)[-2:]) == [("create-bar", 2, 1), ("create-foo", 1, 3)]
    assert "This." in "".join(record.data.get("text", "") for record in project.session("create-foo"))
