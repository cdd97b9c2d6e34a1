"""`overnight import` and `overnight export` over the real command."""

from __future__ import annotations

import json
from collections.abc import Callable

from night_stand import QUICK, Project

MakeNight = Callable[..., Project]
FEATURES = [
    {"description": "Make foo", "passes": False, "steps": ["look"], "owner": "ann"},
    {"description": "Make bar", "passes": True},
]


def test_import_writes_unit_files_and_says_what_it_did_not_take(night: MakeNight) -> None:
    """A dry run writes nothing; without a verify in force it is refused before anything is written."""
    project = night({"units": {}})
    file = project.write("feature_list.json", json.dumps(FEATURES))
    refused = project.overnight("import", str(file))
    assert (refused.code, "verify" in refused.err) == (2, True)
    dry = project.overnight("import", str(file), "--verify", "true", "--dry-run")
    units = project.root / ".overnight/units"
    assert (dry.code, list(units.glob("*"))) == (0, [])

    taken = project.overnight("import", str(file), "--verify", "true")

    assert taken.out.splitlines() == [
        "make-foo → open",
        "skipped, passes already: Make bar",
        "not carried over: make-foo: owner (unknown here)",
    ]
    assert (
        units / "make-foo.md"
    ).read_text() == "---\nverify: 'true'\n---\n\nMake foo\n\nSteps to check it:\n\n- look\n"
    again = project.overnight("import", str(file), "--verify", "true")
    assert again.out.startswith("skipped, is there already: make-foo\n")

    told = json.loads(project.overnight("export").out)
    assert [(one["id"], one["bucket"]) for one in told["units"]] == [("make-foo", "open")]


def test_import_keeps_the_order_that_ids_ask_for_and_says_what_it_did_not_understand(night: MakeNight) -> None:
    """Ids become `after`; each value that is not carried over has its reason; an empty list is said."""
    project = night({"units": {}}, config=QUICK)
    stories = [
        {"id": "US-001", "title": "Cart", "passes": "true", "priority": "high"},
        {"id": "US-002", "title": "Pay", "dependsOn": ["US-001"], "verify": ["make"]},
    ]
    file = project.write("prd.json", json.dumps({"userStories": stories}))
    taken = project.overnight("import", str(file), "--verify", "true")
    assert taken.out.splitlines() == [
        "cart → open  (there: US-001)",
        "pay → open  (there: US-002)",
        (
            'not carried over: cart: passes ("true" is neither true nor false: taken as not done); '
            'priority ("high" is no number: it keeps its place)'
        ),
        "not carried over: pay: verify (not a command)",
    ]
    assert "after:\n- cart\n" in (project.root / ".overnight/units/pay.md").read_text()
    empty = project.overnight("import", str(project.write("list.json", "[]")))
    assert (empty.code, "lists nothing to do" in empty.out) == (0, True)


def test_a_file_that_is_none_is_bad_input(night: MakeNight) -> None:
    """Named, with the line where JSON ends being JSON."""
    project = night({"units": {}}, config=QUICK)
    file = project.write("prd.json", '{"userStories": [\n oops]}')
    refused = project.overnight("import", str(file))
    assert refused.code == 2
    assert "prd.json:2" in refused.err


def test_what_is_written_first_is_queued_first(night: MakeNight) -> None:
    """A list keeps its priorities, and `overnight add` comes behind, whatever the names are."""
    project = night({"units": {}}, config=QUICK)
    stories = [{"title": "Apple", "priority": 2}, {"title": "Zebra", "priority": 1}]
    file = project.write("prd.json", json.dumps({"userStories": stories}))
    assert project.overnight("import", str(file), "--verify", "true").code == 0
    assert project.overnight("add", "Aardvark", "--verify", "true").code == 0
    told = json.loads(project.overnight("export").out)
    assert [one["id"] for one in told["units"]] == ["zebra", "apple", "aardvark"]
