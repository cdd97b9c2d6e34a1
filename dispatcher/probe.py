"""What git says before anything is handed out: who began on too old a base, and whose work is in whose way.

A unit whose last attempt did not pass will likely touch the same lines again. Its commit is merged in memory with the
newest checkpoint of everybody at work: what conflicts with that, and did not with the base that the other began on, is
in the other's way, and waits until it is done. It only steers; the merge train decides.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dispatcher.ledger import Ledger, UnitFacts
from dispatcher.train import unit_ref
from dispatcher.units import UnitFile
from worktrees.errors import GitError, RepositoryError
from worktrees.merge import Conflict, merge_trees
from worktrees.repository import Repository

__all__ = ["Probe"]

_MOST_MERGES = 16
"""In one look: each takes a few milliseconds, and what is not looked at now is looked at next time."""


@dataclass
class Probe:
    """Looks, and remembers what it saw: commits do not change."""

    repository: Repository
    _merges: dict[tuple[str, str], bool] = field(default_factory=dict)
    _ancestors: dict[tuple[str, str], bool] = field(default_factory=dict)

    def outdated(self, units: Mapping[str, UnitFile], ledger: Ledger) -> frozenset[str]:
        """Return the units that would go on with an attempt whose base lacks what they come after."""
        resumed = {unit: facts for unit, facts in ledger.units.items() if not facts.settled and not facts.in_flight}
        return frozenset(unit for unit, facts in resumed.items() if self._lacks(units.get(unit), facts, ledger))

    def _lacks(self, unit: UnitFile | None, facts: UnitFacts, ledger: Ledger) -> bool:
        needed = [ledger.unit(other).merged for other in unit.after] if unit is not None else []
        return any(not self.holds(facts.base, commit) for commit in needed if commit is not None)

    def holds(self, tip: str, commit: str) -> bool:
        """Tell whether `commit` is an ancestor of `tip`; one that is not here is not."""
        if (tip, commit) not in self._ancestors:
            is_here = self.repository.has_commit(commit) and self.repository.has_commit(tip)
            self._ancestors[tip, commit] = is_here and self.repository.is_ancestor(commit, tip)
        return self._ancestors[tip, commit]

    def conflicts(self, ready: Collection[str], ledger: Ledger) -> Mapping[str, frozenset[str]]:
        """Return for each ready unit those at work or waiting for their merge that its last attempt conflicts with."""
        facts = ledger.units
        again = [unit for unit in ready if unit in facts and _failed_before(facts[unit])]
        others = [unit for unit, one in facts.items() if one.in_flight or one.waiting is not None]
        if not again or not others:
            return {}
        refs, left = self._refs(ledger.night), [_MOST_MERGES]
        commits = {unit: _newest(unit, facts[unit], ledger.night, refs) for unit in others}
        found = {}
        for unit in again:
            mine = refs.get(unit_ref(ledger.night, unit, facts[unit].attempt))
            in_the_way = (
                other
                for other, theirs in commits.items()
                if mine and theirs and self._is_in_the_way(mine, theirs, facts[other].base, left)
            )
            found[unit] = frozenset(in_the_way)
        return found

    def _is_in_the_way(self, mine: str, theirs: str, base: str, left: list[int]) -> bool:
        return self._conflict(mine, theirs, left) and not self._conflict(mine, base, left)

    def _conflict(self, one: str, other: str, left: list[int]) -> bool:
        if (one, other) not in self._merges:
            if left[0] <= 0:
                return False
            left[0] -= 1
            try:
                self._merges[one, other] = isinstance(merge_trees(self.repository, one, other), Conflict)
            except (GitError, RepositoryError):  # a commit that is not here says nothing
                self._merges[one, other] = False
        return self._merges[one, other]

    def _refs(self, night: str) -> Mapping[str, str]:
        patterns = (f"refs/overnight/{night}", f"refs/heads/overnight/{night}/unit")
        listed = self.repository.git.run("for-each-ref", "--format=%(refname) %(objectname)", *patterns).stdout
        return dict(line.split(" ", 1) for line in listed.splitlines())


def _failed_before(facts: UnitFacts) -> bool:
    at_rest = facts.settled and not facts.in_flight and facts.waiting is None and facts.merged is None
    return at_rest and facts.attempt > 0 and facts.failures + facts.conflicts > 0


def _newest(unit: str, facts: UnitFacts, night: str, refs: Mapping[str, str]) -> str | None:
    """Return the newest commit of a unit at work: what passed and waits, else its last checkpoint."""
    if facts.waiting is not None:
        return facts.waiting.commit
    names = (f"refs/overnight/{night}/{unit}/{facts.attempt}.{epoch}" for epoch in range(facts.epoch, 0, -1))
    return next((refs[name] for name in names if name in refs), None)
