"""Units from other loops' files, and the night as JSON."""

import json
import math
from typing import Any

import pytest
from entries import COMMIT, failed, merged, ordered, unit

from dispatcher.errors import BadInput
from dispatcher.ledger import Ledger
from dispatcher.porting import document, read_list
from dispatcher.state import Bucket, State

PRD: dict[str, Any] = {
    "project": "Shop",
    "branchName": "ralph/shop",
    "userStories": [
        {"id": "US-2", "title": "Pay by card", "priority": 2, "passes": False, "acceptanceCriteria": ["A", "B"]},
        {"id": "US-1", "title": "See the cart", "description": "As a buyer …", "priority": 1, "passes": False},
        {"id": "US-3", "title": "Log in", "priority": 0, "passes": True},
    ],
}


def test_stories_become_units_in_the_order_of_their_priority() -> None:
    """With what they are accepted by; those that pass already are named; what has no place here is said."""
    found = read_list(json.dumps(PRD), ())
    assert [one.id for one in found.units] == ["see-the-cart", "pay-by-card"]
    assert found.units[0].goal == "See the cart\n\nAs a buyer …"
    assert found.units[1].goal == "Pay by card\n\nAccepted when:\n\n- A\n- B"
    assert found.passed == ("Log in",)
    assert found.left_out == ("the file's branchName", "the file's project")


def test_what_was_imported_before_is_not_imported_twice() -> None:
    """A list that grew is read again: what has a unit already is named, with the id that it has."""
    known = {read_list(json.dumps(PRD), ()).units[0].goal: "cart"}
    found = read_list(json.dumps(PRD), {"cart"}, known=known)
    assert ([one.id for one in found.units], found.there) == (["pay-by-card"], ("cart",))


def test_features_are_read_from_a_list_or_an_object() -> None:
    """`passes: false` alone is to be done; unknown keys are said by unit."""
    features = [
        {"category": "ui", "description": "New chat button", "steps": ["Click", "Look"], "passes": False, "size": 3},
        {"description": "Old", "passes": True},
    ]
    for text in (json.dumps(features), json.dumps({"features": features})):
        found = read_list(text, {"new-chat-button"}, verify="make e2e")
        assert [(one.id, one.verify) for one in found.units] == [("new-chat-button-2", "make e2e")]
        assert "Steps to check it:\n\n- Click\n- Look" in found.units[0].goal
        assert found.passed == ("Old",)
        assert found.left_out == ("new-chat-button-2: size (unknown here)",)


def test_an_items_own_verify_wins() -> None:
    """Over the one of the command line."""
    (one,) = read_list('[{"name": "x", "verify": "make x"}]', (), verify="make").units
    assert one.verify == "make x"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("3", "neither a list"),
        ('{"stories": []}', "userStories"),
        ("[3]", "item 1"),
        ('[{"title": " "}]', "item 1 has no title"),
        ('[{"title": "x\\u0000y"}]', "NUL"),
        ("[" * 100_000, "nested"),
    ],
)
def test_what_is_no_such_file_is_refused_with_the_place(text: str, words: str) -> None:
    """Nothing is guessed at."""
    with pytest.raises(BadInput, match=words):
        read_list(text, ())


@pytest.mark.parametrize(
    "text",
    [
        '[{"title": "a\\ud800"}]',
        '[{"title": "a", "steps": ["\\ud800"]}]',
        '[{"title": "a", "priority": 1' + "0" * 5000 + "}]",
        "[" * 100_000,
    ],
    ids=["half", "half below", "digits", "deep"],
)
def test_what_json_can_hold_and_a_unit_cannot(text: str) -> None:
    """Half a character, thousands of digits, thousands of lists: refused as bad input, before anything is written."""
    with pytest.raises(BadInput):
        read_list(text, ())


def test_priorities_that_are_no_usual_numbers() -> None:
    """Of any size; what is no number has none."""
    items = [
        {"title": "d", "priority": math.nan},
        {"title": "c", "priority": math.inf},
        {"title": "b", "priority": 10**400},
    ]
    found = read_list(json.dumps([*items, {"title": "a", "priority": -1e300}, {"title": "e", "\ud800": 1}]), ())
    assert [one.id for one in found.units] == ["a", "b", "c", "d", "e"]
    assert all(words.encode() for words in found.left_out)


def test_what_is_said_in_an_unusual_way_is_carried_over_or_reported() -> None:
    """Each key with its reason: nothing counts as read because of its name."""
    odd = {
        "title": "Cart",
        "name": "cart page",
        "feature": "Shop",
        "description": ["see", "change"],
        "acceptanceCriteria": {"a": 1},
        "steps": ["look", {"do": "it"}],
        "verify": ["make", "test"],
        "notes": 5,
        "priority": "high",
        "id": {"n": 1},
        "passes": "true",
        "story": " ",
        "size": 3,
    }
    found = read_list(json.dumps([odd]), ())
    assert found.units[0].goal == (
        "Cart\n\nName: cart page\n\nFeature: Shop\n\n- see\n- change\n\nNotes: 5\n\n"
        'Steps to check it:\n\n- look\n- {"do": "it"}'
    )
    assert found.left_out == (
        (
            "cart: acceptanceCriteria (neither a list nor text); id (neither text nor a number); "
            'passes ("true" is neither true nor false: taken as not done); '
            'priority ("high" is no number: it keeps its place); size (unknown here); verify (not a command)'
        ),
    )
    assert read_list('[{"title": 7, "name": "x"}]', ()).units[0].goal == "x\n\n7"
    assert read_list('[{"title": {}, "name": "x", "id": null, "verify": ""}]', ()).left_out == ()


def test_what_an_item_depends_on_becomes_what_its_unit_comes_after() -> None:
    """By id or title, also of one that is there already; what passes is not waited for, what is unclear is said."""
    items = [
        {"id": "US-001", "title": "Log in", "dependsOn": []},
        {"id": 2, "title": "Cart", "dependsOn": ["US-001", "Pay", "US-001"]},
        {"id": "US-003", "title": "Pay", "depends_on": "US-004", "dependencies": ["US-009", "twice"]},
        {"id": "US-004", "title": "Old", "passes": True},
        {"id": "US-005", "title": "There"},
        {"title": "Ship", "dependsOn": [2, "US-005"], "after": {"a": 1}},
        {"title": "Twice", "id": "twice"},
        {"title": "Again", "id": "twice"},
    ]
    found = read_list(json.dumps(items), {"there"}, known={"There": "there"})
    assert {one.id: one.after for one in found.units if one.after} == {
        "cart": ("log-in", "pay"),
        "ship": ("cart", "there"),
    }
    assert found.was["log-in"] == "US-001"
    assert found.left_out == (
        "pay: dependencies (2 items are called 'twice')",
        "ship: after (not a list of ids)",
    )
    circle = [{"id": 1, "title": "a", "dependsOn": [2]}, {"id": 2, "title": "b", "dependsOn": [1]}]
    with pytest.raises(BadInput, match="wait for each other"):
        read_list(json.dumps(circle), ())


def test_the_night_as_json_has_every_unit_with_what_came_of_it() -> None:
    """Bucket, note, file, attempts, cost, commit."""
    state = State("Ours", "1130-k3v", 4).add("a", Bucket.passed).add("b", Bucket.tried, "red").add("c")
    ledger = Ledger().extend([ordered("a"), merged("a", commit=COMMIT), *failed("b", 1)])
    told = json.loads(json.dumps(document(state, {"b": unit("b", after=("a",))}, ledger)))
    by_id = {one["id"]: one for one in told["units"]}
    assert (told["night"], told["rev"], list(by_id)) == ("1130-k3v", 4, ["b", "a", "c"])
    assert (by_id["a"]["passes"], by_id["a"]["merged"]) == (True, COMMIT)
    assert (by_id["b"]["note"], by_id["b"]["attempts"], by_id["b"]["file"]["after"]) == ("red", 1, ["a"])
    assert by_id["c"] == {"id": "c", "bucket": "open", "passes": False, "note": ""}
