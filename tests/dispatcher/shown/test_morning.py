"""The morning report's words."""

from dispatcher.journal import Verified
from dispatcher.shown.morning import as_text, ran_on

FACTS = {
    "night": "1130-k3v",
    "title": "Till",
    "tip": "0123456789abcdef",
    "branch": "overnight/1130-k3v/merged",
    "passed": ["one"],
    "waived": [],
    "questions": {},
    "blocked": {},
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
