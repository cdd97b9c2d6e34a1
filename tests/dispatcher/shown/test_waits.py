"""Who waits for whom, in words."""

from typing import Any

from entries import asked, unit

from dispatcher.budget import Limits
from dispatcher.decide import View
from dispatcher.ledger import Ledger
from dispatcher.shown.waits import waits
from dispatcher.state import Bucket, State


def view(units: dict[str, tuple[str, ...]], archived: dict[str, bool] | None = None, **buckets: str) -> View:
    state = State("Ours")
    for bucket, ids in buckets.items():
        state = state.add_all(ids.split(), Bucket(bucket))
    known: dict[str, Any] = {name: unit(name) for name in state.ids()}
    known |= {name: unit(name, after=after) for name, after in units.items()}
    return View(state, known, Ledger(), Limits(None, None, 3, 1), archived=archived or {})


def test_a_blocked_dependency_says_so_on_its_dependents() -> None:
    """Also at the end of a chain; what is only not done yet is named, and what waits for nothing is not."""
    after = {"b": ("a",), "c": ("b",), "d": ("x", "c"), "e": ("x",)}
    found = waits(view(after, open="b c d e x", blocked="a"))
    assert found == {
        "b": "waits for a, which is blocked and needs you",
        "c": "waits for b, which waits for a, which is blocked and needs you",
        "d": "waits for x, c, which waits for b, which waits for a, which is blocked and needs you",
        "e": "waits for x",
    }


def test_a_cancelled_dependency_is_not_said_to_need_you() -> None:
    """A person cancelled it, and may want to know who waited for it."""
    there = view({"b": ("a",)}, open="b", blocked="a")
    there.ledger.extend([asked("cancel", "a")])
    assert waits(there) == {"b": "waits for a, which was cancelled"}


def test_an_archived_unit_that_the_base_does_not_hold_is_a_persons_turn() -> None:
    """One that it holds is nobody's."""
    assert waits(view({"b": ("old",)}, {"old": True}, open="b")) == {}
    (line,) = waits(view({"b": ("old",)}, {"old": False}, open="b")).values()
    assert line == "waits for old of an archived night, which the base does not hold: merge that night's branch"


def test_a_unit_that_never_existed_is_not_called_archived() -> None:
    """What comes after it waits for a person's edit; the end of a chain says so, too, and a circle ends."""
    found = waits(view({"b": ("zz",), "c": ("b",), "d": ("e",), "e": ("d",)}, open="b c d e"))
    assert found == {
        "b": "waits for zz, which does not exist: add it, or take it out of `after`",
        "c": "waits for b, which waits for zz, which does not exist: add it, or take it out of `after`",
        "d": "waits for e",
        "e": "waits for d",
    }
