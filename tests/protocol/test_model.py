"""The protocol's rules hold in every state that the model can reach, and each of them is needed (issue 4)."""

import sys

import pytest
from explore import Found, explore
from model import SWITCHES, Bounds

ONE, TWO = Bounds(faults=1, attempts=1, epochs=2), Bounds(hosts=2, faults=1, attempts=1, epochs=2)
SMALL = {
    "one host": ONE,
    "two hosts": TWO,
    "embedded": ONE._replace(embedded=True),
    "two attempts, nothing fails": Bounds(faults=0),
}
LARGE = {
    "one host": ONE._replace(faults=2),
    "two hosts": TWO._replace(faults=2),
    "embedded": ONE._replace(faults=2, embedded=True, epochs=3),
    "two attempts on one host": ONE._replace(attempts=2),
    "two attempts on two hosts": TWO._replace(attempts=2),
}
# Where the least is that shows what a switch is good for; the others need one fault on one host.
WHERE = {
    "9 fence": TWO,
    "10 S under KP": TWO,
    "10 publish again": ONE._replace(faults=2),
    "15 readable": TWO,
    "16 commit ids": TWO,
}


def told(found: Found, what: str) -> Found:
    """Print what was found, for `pytest -s` and for a test that fails."""
    lines = [f"{what}: {found.states} states, {found.transitions} transitions: {found.wrong or 'nothing is wrong'}"]
    sys.stdout.write("\n".join([*lines, *(f"    {line}" for line in found.trace)]) + "\n")
    return found


@pytest.mark.parametrize("bounds", SMALL)
def test_with_all_rules_nothing_goes_wrong(bounds: str) -> None:
    """No unit lost, no two writers, no pass without its verify, no second merge, no end that cannot be reached."""
    assert told(explore(SMALL[bounds]), bounds).wrong == ""


@pytest.mark.parametrize("switch", SWITCHES)
def test_without_any_one_rule_something_does(switch: str) -> None:
    """The shortest way there is printed."""
    bounds = WHERE.get(switch, ONE)._replace(off=frozenset({switch}))
    found = told(explore(bounds), f"without {switch}")
    assert found.wrong
    assert found.trace


def test_every_rule_that_the_design_marks_is_a_switch() -> None:
    """The ● rules of the protocol."""
    assert {int(switch.split()[0]) for switch in SWITCHES} == {4, 5, 6, 7, 9, 10, 11, 14, 15, 16, 18}


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("bounds", LARGE)
def test_with_all_rules_nothing_goes_wrong_twice(bounds: str) -> None:
    """With two faults of any kind at any moments, or two attempts and one."""
    assert told(explore(LARGE[bounds]), bounds).wrong == ""
