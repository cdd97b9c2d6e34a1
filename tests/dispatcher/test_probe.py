"""What git says before anything is handed out, over a real repository."""

from pathlib import Path
from typing import Any

import pytest
from entries import NIGHT, merged, ordered, reported, unit, verdict

from dispatcher import journal as j
from dispatcher.ledger import Ledger
from dispatcher.probe import Probe
from dispatcher.train import unit_ref
from worktrees.repository import Repository

LINES = "".join(f"line {n}\n" for n in range(9))


class Stand:
    """A base, and commits of units on it."""

    def __init__(self, checkout: Any) -> None:
        self.checkout = checkout
        self.repository = Repository.discover(checkout.path)
        self.base = checkout.git("rev-parse", "HEAD")
        self.probe = Probe(self.repository)

    def commit(self, ref: str, text: str, base: str = "") -> str:
        """Commit a text of the file under a ref; the checkout goes back to where it was."""
        self.checkout.git("checkout", "-q", "--detach", base or self.base)
        (self.checkout.path / "a.txt").write_text(text)
        self.checkout.git("commit", "-q", "-am", "work")
        made: str = self.checkout.git("rev-parse", "HEAD")
        self.checkout.git("update-ref", ref, made)
        self.checkout.git("checkout", "-q", "main")
        return made


@pytest.fixture
def stand(make_repository: Any) -> Stand:
    return Stand(make_repository({"a.txt": LINES}))


def night(stand: Stand, *entries: Any) -> Ledger:
    start = j.NightStarted(night=NIGHT, title="t", base=stand.base, base_name="main")
    return Ledger().extend([start, *entries])


def order(stand: Stand, name: str, attempt: int = 1, epoch: int = 1, base: str = "") -> j.Ordered:
    return ordered(name, attempt, epoch).model_copy(update={"base": base or stand.base})


def test_a_unit_that_failed_is_in_the_way_of_who_touches_the_same_lines(stand: Stand) -> None:
    """Nobody else's; what is at work is looked at by its newest checkpoint, or by what passed and waits."""
    stand.commit(unit_ref(NIGHT, "again", 1), LINES.replace("line 0", "mine"))
    stand.commit(f"refs/overnight/{NIGHT}/near/1.1", LINES.replace("line 0", "yours"))
    stand.commit(f"refs/overnight/{NIGHT}/far/1.1", LINES.replace("line 8", "yours"))
    waits = stand.commit(f"refs/overnight/{NIGHT}/waits/1.1", LINES.replace("line 0", "theirs"))
    ledger = night(
        stand,
        *(order(stand, name) for name in ("near", "far", "again", "waits")),
        reported(verdict("again", "fail")),
        reported(verdict("waits", "pass", commit=waits)),
    )
    assert stand.probe.conflicts(["again", "new"], ledger) == {"again": {"near", "waits"}}
    assert stand.probe.conflicts(["new"], ledger) == {}
    assert (
        stand.probe.conflicts(["again"], night(stand, order(stand, "again"), reported(verdict("again", "fail")))) == {}
    )


def test_what_conflicts_with_the_base_already_is_nobodys_doing(stand: Stand) -> None:
    """Somebody who began after the other's change was merged is not in the way."""
    stand.commit(unit_ref(NIGHT, "again", 1), LINES.replace("line 0", "mine"))
    tip = stand.commit("refs/heads/tip", LINES.replace("line 0", "merged"))
    stand.commit(f"refs/overnight/{NIGHT}/b/1.1", LINES.replace("line 0", "merged").replace("line 8", "b"), tip)
    entries = (order(stand, "again"), reported(verdict("again", "fail")), order(stand, "b", base=tip))
    assert stand.probe.conflicts(["again"], night(stand, *entries)) == {"again": frozenset()}


def test_a_unit_without_a_checkpoint_yet_is_in_nobodys_way(stand: Stand) -> None:
    """There is nothing to compare with."""
    stand.commit(unit_ref(NIGHT, "again", 1), LINES.replace("line 0", "mine"))
    entries = (order(stand, "again"), reported(verdict("again", "fail")), order(stand, "b"))
    assert stand.probe.conflicts(["again"], night(stand, *entries)) == {"again": frozenset()}


def test_an_interrupted_attempt_on_a_base_without_its_dependency_is_outdated(stand: Stand, tmp_path: Path) -> None:
    """One that was begun with it, or ended, is not."""
    commit = stand.commit("refs/heads/x", LINES.replace("line 0", "x"))
    units = {"b": unit("b", after=("a",))}
    gone = j.Lost(unit="b", attempt=1, epoch=1, claimed=True)
    old = night(stand, order(stand, "b"), gone, merged("a", commit=commit))
    assert stand.probe.outdated(units, old) == {"b"}
    assert stand.probe.outdated({"b": unit("b")}, old) == set()
    new = night(stand, merged("a", commit=commit), order(stand, "b", base=commit), gone)
    assert stand.probe.outdated(units, new) == set()
    over = night(stand, order(stand, "b"), reported(verdict("b", "fail")), merged("a", commit=commit))
    assert stand.probe.outdated(units, over) == set()


def test_holds_says_no_of_a_commit_that_is_not_here(stand: Stand) -> None:
    """And of one that is elsewhere in history."""
    other = stand.commit("refs/heads/x", LINES.replace("line 0", "x"))
    assert stand.probe.holds(other, stand.base)
    assert not stand.probe.holds(stand.base, other)
    assert not stand.probe.holds(stand.base, "0" * 40)
