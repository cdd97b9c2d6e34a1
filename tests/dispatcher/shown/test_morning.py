"""The morning report's words."""

from types import SimpleNamespace

from entries import asked, ordered

from dispatcher.journal import Verified
from dispatcher.ledger import Ledger
from dispatcher.people import waiting
from dispatcher.shown.morning import as_facts, as_text, ran_on
from dispatcher.state import Bucket, State

FACTS = {
    "night": "1130-k3v",
    "title": "Till",
    "tip": "0123456789abcdef",
    "branch": "overnight/1130-k3v/merged",
    "passed": ["one"],
    "waived": [],
    "questions": {},
    "blocked": {},
    "cancelled": [],
    "tried": {},
    "open": [],
    "tip_verifies": [],
    "spent": "1.20",
    "unpriced": [],
    "runs": 1,
    "ended": None,
}


def _ran(*passed):
    return [{"command": f"check {n}", "passed": ok, "seconds": 1.0} for n, ok in enumerate(passed, 1)]


def test_what_is_spent_in_part_at_an_unknown_price_is_said_to_be():
    """The dollars are those of the calls whose price is known."""
    assert as_text({**FACTS, "unpriced": ["one"]}).splitlines()[0].endswith("$1.20 + unknown")


def test_a_cancelled_unit_needs_nobody(make_repository):
    """Whoever cancelled it knows: it stands in a place of its own, also in the JSON; another block needs you."""
    ledger = Ledger().extend([ordered("a"), asked("cancel", "a"), asked("block", "b", reason="why")])
    state = State("Till").add("a", Bucket.blocked, "cancelled by a person").add("b", Bucket.blocked, "why")
    here = SimpleNamespace(repository=make_repository({"a": "1"}), state=state, ledger=ledger, entries=[])
    facts = as_facts(here)
    assert (facts["cancelled"], facts["blocked"]) == (["a"], {"b": "why"})
    lines = as_text(facts).splitlines()
    needs = lines.index("needs you")
    assert lines[needs + 1].startswith("  b  why")
    assert lines[needs + 2 : needs + 4] == [
        "cancelled by a person",
        "  a  → overnight retry a, to bring it back",
    ]
    assert [one.unit for one in waiting(state, ledger)] == ["b"]


def test_few_verifies_of_the_tip_are_named():
    """One or two verifies stand in the headline with their commands."""
    headline = as_text({**FACTS, "tip_verifies": _ran(True, False)}).splitlines()[0]
    assert headline == "1 passed and merged · tip 01234567: check 1 ✔   check 2 ✘ · $1.20"


def test_many_verifies_of_the_tip_are_counted_and_failures_named():
    """More are counted, so that the headline stays a line; what failed is never hidden in a number."""
    headline = as_text({**FACTS, "tip_verifies": _ran(True, True, False, True)}).splitlines()[0]
    assert headline == "1 passed and merged · tip 01234567: 3 of 4 verifies ✔   check 3 ✘ · $1.20"


def test_a_tip_that_nobody_verified_is_said_to_be_unverified():
    """A tip without its last verifies is not hidden behind its units' own."""
    assert "not verified: the tip as a whole (the run ended before its last verify)" in as_text(FACTS)


def _verified(stage, command, *, passed, tree="t"):
    return Verified(stage=stage, tree=tree, commit="c", command=command, passed=passed, seconds=0.1)


def test_what_was_red_before_the_work_is_no_fault_of_the_tip():
    """A unit that passed without a change leaves the tree of the base, where other verifies are red as they must be."""
    entries = [
        _verified("base", "test -f undone", passed=False),
        _verified("base", "true", passed=True),
        _verified("final", "make ci", passed=False),
        _verified("final", "elsewhere", passed=False, tree="u"),
    ]
    assert [(one.command, one.passed) for one in ran_on("t", entries)] == [("true", True), ("make ci", False)]
