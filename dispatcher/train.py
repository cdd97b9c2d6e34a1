"""The merge train: merges units that passed, one at a time, and moves the merged branch (protocol rules 16-18).

In memory: conflicts are seen without a checkout. A merged tree that is not the very tree already verified must pass
verify itself, because two units can be green alone and red together. Only then the branch moves.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dispatcher.book import Book
from dispatcher.config import Config
from dispatcher.journal import MergeDone, MergeDropped, MergeFailed, MergeIntent, Verified
from dispatcher.orders import digest_of, verify_of
from dispatcher.shown.display import Display
from dispatcher.units import UnitFile
from workers.orders import UnitReport, VerifyOrder
from workers.verify import headline, verify
from worktrees.errors import RefMoved
from worktrees.merge import Conflict, advance, commit_merge, merge_trees
from worktrees.repository import Repository
from worktrees.worktree import Worktrees

__all__ = ["Train", "merged_ref", "unit_ref"]

_TREE = "merge"


def merged_ref(night: str) -> str:
    """The branch that holds every passed unit."""
    return f"refs/heads/overnight/{night}/merged"


def unit_ref(night: str, unit: str, attempt: int) -> str:
    """The branch of an attempt that people see; set by the dispatcher alone."""
    return f"refs/heads/overnight/{night}/unit/{unit}.{attempt}"


@dataclass
class Train:
    """The queue's one engine. Every outcome is in the journal before it returns."""

    repository: Repository
    worktrees: Worktrees
    book: Book
    config: Config
    display: Display

    @property
    def ref(self) -> str:
        """The merged branch."""
        return merged_ref(self.book.ledger.night)

    def tip(self) -> str:
        """Return the commit that new attempts start from: the merged branch's, or the base while there is none."""
        return self.repository.read_ref(self.ref) or self.book.ledger.base

    def recover(self) -> None:
        """Finish or drop a merge that a crash cut off (rule 18)."""
        intent = self.book.ledger.intent
        if intent is None:
            return
        found = self.repository.read_ref(intent.ref)
        if found is not None and self._holds(found, intent.new):
            self.book.note(MergeDone(unit=intent.unit, attempt=intent.attempt, commit=intent.new))
        elif found == intent.old and self.repository.has_commit(intent.new):
            self._close(intent, has_moved=self._move(intent))
        else:
            self.book.note(MergeDropped(unit=intent.unit))

    def is_whole(self) -> bool:
        """Tell whether the merged branch still holds what the journal says has passed; somebody may have rewound it."""
        last = self.book.ledger.tip  # whose history has every merge before it: a tip is the first parent of the next
        found = self.repository.read_ref(self.ref)
        return last is None or (found is not None and self._holds(found, last))

    async def merge(self, report: UnitReport, unit_now: Callable[[], UnitFile | None]) -> bool:
        """Merge a unit that passed; True when the branch holds it. Every other outcome is a MergeFailed entry.

        `unit_now` looks the unit up: its file may be edited while the merged tree is being verified.
        """
        unit = unit_now()
        if self._is_voided(report, unit):
            return False
        assert unit is not None
        assert report.commit is not None
        old = await asyncio.to_thread(self.repository.read_ref, self.ref)  # what the branch must still be in the end
        tip = old or self.book.ledger.base
        merged = await asyncio.to_thread(merge_trees, self.repository, tip, report.commit)
        if isinstance(merged, Conflict):
            self._fail(report, "conflict", f"merge conflict in {', '.join(merged.paths)}")
            return False
        failed = await self._verify(report, unit, tip, merged.tree)
        if failed is not None:
            self._fail(report, "verify", f"passed alone, failed merged: {failed}")
            return False
        new = await asyncio.to_thread(self._commit, report, tip, merged.tree)
        if self._is_voided(report, unit_now()):
            return False
        intent = MergeIntent(unit=report.unit, attempt=report.attempt, ref=self.ref, old=old, new=new, tree=merged.tree)
        self.book.note(intent)
        # Only git goes to the thread: an entry between a state and its journalling would be taken for written.
        return self._close(intent, has_moved=await asyncio.to_thread(self._move, intent))

    def _is_voided(self, report: UnitReport, unit: UnitFile | None) -> bool:
        """Tell whether a person has taken the unit away, or edited what its verdict stands on (rule 17)."""
        if self.book.ledger.unit(report.unit).waiting != report:
            return True  # cancelled or waived: the journal says so already
        if unit is None or digest_of(unit, self.config) != report.digest:
            self._fail(report, "voided", "its goal or verify was edited while it was at work")
            return True
        return False

    async def verify_tip(self, commands: list[str]) -> list[Verified]:
        """Run every command once more on the final tip, unless exactly that has passed already."""
        tip = await asyncio.to_thread(self.tip)
        tree = await asyncio.to_thread(self.repository.tree, tip)
        return [
            self.book.ledger.verified[tree, command]
            if self._has_passed(tree, command)
            else await self._run("final", tip, tree, command)
            for command in commands
        ]

    def is_red(self) -> bool:
        """Tell whether a verify of the merged branch as it stands now has failed."""
        tree = self.repository.tree(self.tip())
        runs = self.book.ledger.verified.items()
        return any(of == tree and not run.passed and run.stage != "base" for (of, _), run in runs)

    def _has_passed(self, tree: str, command: str) -> bool:
        return self.book.ledger.passed_verify(tree, command, self.config.setup.run)

    def _holds(self, tip: str, commit: str) -> bool:
        return self.repository.has_commit(commit) and self.repository.is_ancestor(commit, tip)

    def _commit(self, report: UnitReport, tip: str, tree: str) -> str:
        assert report.commit is not None
        message = f"Merge {report.unit} (attempt {report.attempt})"
        return commit_merge(self.repository, tree=tree, parents=[tip, report.commit], message=message)

    def _move(self, intent: MergeIntent) -> bool:
        """Move the branch; False where somebody else has moved it meanwhile."""
        try:
            advance(self.repository, intent.ref, new=intent.new, old=intent.old, message=f"overnight: {intent.unit}")
        except RefMoved:
            return False
        return True

    def _close(self, intent: MergeIntent, *, has_moved: bool) -> bool:
        if has_moved:
            self.book.note(MergeDone(unit=intent.unit, attempt=intent.attempt, commit=intent.new))
        else:
            self.book.note(MergeDropped(unit=intent.unit))
        return has_moved

    async def _verify(self, report: UnitReport, unit: UnitFile, tip: str, tree: str) -> str | None:
        """Return why the merged tree fails, None when everything that must say yes has said yes to this very tree."""
        wanted = [] if tree == report.tree else [verify_of(unit, self.config)]
        if self.config.merge.verify is not None:
            wanted.append(self.config.merge.verify)
        wanted = [command for command in dict.fromkeys(wanted) if not self._has_passed(tree, command)]
        if not wanted:
            return None
        commit = await asyncio.to_thread(self._commit, report, tip, tree)
        for command in wanted:
            outcome = await self._run("merge", commit, tree, command, report.unit)
            if not outcome.passed:
                return headline(outcome.output)
        return None

    async def _run(
        self, stage: Literal["merge", "final"], commit: str, tree: str, command: str, unit: str = ""
    ) -> Verified:
        self.display.status(f"verify {unit or 'the tip'} merged: {command}")
        setup, merge = self.config.setup, self.config.merge
        timeout = merge.timeout if command == merge.verify else self.config.verify.timeout
        order = VerifyOrder(run=command, timeout=timeout, setup=setup.run, setup_timeout=setup.timeout)
        outcome = await verify(self.worktrees, _TREE, commit, order, tag=f"{self.book.ledger.night}.{_TREE}")
        entry = Verified(
            stage=stage,
            tree=tree,
            commit=commit,
            command=command,
            passed=outcome.passed,
            seconds=round(outcome.seconds, 3),
            exit_code=outcome.exit_code,
            output=outcome.output[-4000:],
            unit=unit,
            setup=setup.run or "",
        )
        self.book.note(entry)
        return entry

    def _fail(self, report: UnitReport, why: Literal["conflict", "verify", "voided"], note: str) -> None:
        self.display.note(f"not merged  {report.unit} {report.attempt}: {note}")
        self.book.note(MergeFailed(unit=report.unit, attempt=report.attempt, why=why, note=note))
