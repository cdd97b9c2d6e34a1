"""The merge train on a real repository: conflicts, merged trees that fail, crashes, a branch that moved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkouts import Checkout, trees_of
from entries import NIGHT, unit
from quiet import Quiet

from dispatcher import train as train_module
from dispatcher.book import Book
from dispatcher.config import Config, parse
from dispatcher.journal import MergeDone, MergeDropped, MergeFailed, MergeIntent, NightStarted, Reported, Verified
from dispatcher.orders import digest_of
from dispatcher.train import Train, merged_ref, unit_ref
from dispatcher.units import UnitFile
from workers.orders import UnitReport
from worktrees.errors import RepositoryError
from worktrees.repository import Repository
from worktrees.worktree import Worktrees


class Yard:
    """A repository, a night's journal, and units that have passed."""

    def __init__(self, checkout: Any, folder: Path) -> None:
        self.checkout = checkout
        self.folder = folder
        self.base = checkout.git("rev-parse", "HEAD")
        self.repository = Repository.discover(checkout.path)
        self.worktrees = Worktrees(self.repository, folder / "worktrees")
        self.book = Book.open(folder / "journal.jsonl")
        self.book.note(NightStarted(night=NIGHT, title="Ours", base=self.base, base_name="main"))
        self.units: dict[str, UnitFile] = {}

    def train(self, config: Config | None = None) -> Train:
        return Train(self.repository, self.worktrees, self.book, config or Config(), Quiet())

    def passed(self, name: str, files: dict[str, str], verify: str = "true", base: str | None = None) -> UnitReport:
        """A unit that changed files on the base, and its report, which the journal has accepted."""
        self.checkout.git("checkout", "-q", "--detach", base or self.base)
        commit = self.checkout.commit(files, name)
        self.checkout.git("checkout", "-q", "main")
        self.units[name] = unit(name, verify=verify)
        report = UnitReport(
            night=NIGHT, unit=name, attempt=1, epoch=1, verdict="pass", commit=commit,
            tree=self.checkout.git("rev-parse", f"{commit}^{{tree}}"), digest=digest_of(self.units[name], Config()),
        )  # fmt: skip
        self.book.note(Reported(report=report, accepted=True))
        return report

    async def merge(self, report: UnitReport, **more: Any) -> bool:
        return await self.train(**more).merge(report, lambda: self.units[report.unit])

    def tip(self) -> str | None:
        return self.repository.read_ref(merged_ref(NIGHT))

    def of(self, kind: type) -> list[Any]:
        return [entry for entry in self.book.journal.entries if isinstance(entry, kind)]

    def restarted(self) -> None:
        """The dispatcher died: the next one reads the journal."""
        self.book.close()
        self.book = Book.open(self.folder / "journal.jsonl")


@pytest.fixture
def yard(make_repository: Any, tmp_path: Path) -> Iterator[Yard]:
    made = Yard(make_repository({"shared": "line\n"}), tmp_path / "home")
    yield made
    made.book.close()


async def test_the_first_unit_makes_the_branch_and_needs_no_second_verify(yard: Yard) -> None:
    """The merged tree is the very tree that was verified already; intent comes before the branch, done after it."""
    report = yard.passed("a", {"a": "1"}, verify="exit 1")
    assert await yard.merge(report)
    (intent,), (done,) = yard.of(MergeIntent), yard.of(MergeDone)
    assert (intent.old, intent.new) == (None, yard.tip())
    assert done.commit == yard.tip()
    assert yard.of(Verified) == []
    assert Checkout(yard.repository.root).parents(str(yard.tip())) == (yard.base, report.commit)


async def test_two_units_that_are_green_alone_and_red_together(yard: Yard) -> None:
    """The second does not land: what it said yes to is not what would land."""
    assert await yard.merge(yard.passed("a", {"a": "1"}, verify="test ! -f b"))
    tip = yard.tip()
    second = yard.passed("b", {"b": "1"}, verify="test ! -f a || { echo 'a and b do not go together'; exit 1; }")
    assert not await yard.merge(second)
    (failed,) = yard.of(MergeFailed)
    assert (failed.unit, failed.why, failed.note) == (
        "b",
        "verify",
        "passed alone, failed merged: a and b do not go together",
    )
    assert yard.tip() == tip
    assert trees_of(yard.worktrees) == []


async def test_a_conflict_names_the_paths_and_moves_nothing(yard: Yard) -> None:
    """Neither the branch nor a checkout."""
    assert await yard.merge(yard.passed("a", {"shared": "one\n"}))
    tip = yard.tip()
    assert not await yard.merge(yard.passed("b", {"shared": "two\n"}))
    (failed,) = yard.of(MergeFailed)
    assert (failed.why, failed.note) == ("conflict", "merge conflict in shared")
    assert yard.tip() == tip


async def test_the_nights_own_verify_has_a_say_in_every_merge(yard: Yard) -> None:
    """Also where the unit's own need not run again."""
    config = parse('[merge]\nverify = "echo not today; exit 1"\n')
    assert not await yard.merge(yard.passed("a", {"a": "1"}), config=config)
    assert yard.of(MergeFailed)[0].note == "passed alone, failed merged: not today"
    assert yard.tip() is None


@pytest.mark.parametrize("edit", ["goal", "verify", "gone"])
async def test_a_verdict_under_another_goal_or_verify_is_void(yard: Yard, edit: str) -> None:
    """Edited or removed while it was at work (rule 17)."""
    report = yard.passed("a", {"a": "1"})
    edited = {"goal": unit("a", goal="Do something else."), "verify": unit("a", verify="test -f a"), "gone": None}[edit]
    assert not await yard.train().merge(report, lambda: edited)
    assert yard.of(MergeFailed)[0].why == "voided"
    assert yard.tip() is None


async def test_a_tree_that_is_known_to_be_green_is_not_verified_again(yard: Yard) -> None:
    """After a crash behind the verify, or at the tip: exactly this tree, by exactly this command."""
    await yard.merge(yard.passed("a", {"a": "1"}))
    second = yard.passed("b", {"b": "1"}, verify="test -f a -a -f b")
    assert await yard.merge(second)
    assert [(entry.stage, entry.passed) for entry in yard.of(Verified)] == [("merge", True)]
    again, new = await yard.train().verify_tip(["test -f a -a -f b", "test -f shared"])
    assert (again.stage, new.stage) == ("merge", "final")
    assert len(yard.of(Verified)) == 2


class DiedError(BaseException):
    """The dispatcher died here."""


@pytest.mark.parametrize("when", ["before the branch moves", "after the branch has moved"])
async def test_a_crash_around_the_move_is_mended_at_the_next_start(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Done once, whichever side of it the crash was on (rule 18)."""
    report = yard.passed("a", {"a": "1"})
    real = train_module.advance

    def die(*args: Any, **more: Any) -> None:
        if when.startswith("after"):
            real(*args, **more)
        raise DiedError

    monkeypatch.setattr(train_module, "advance", die)
    with pytest.raises(DiedError):
        await yard.merge(report)
    monkeypatch.undo()
    yard.restarted()
    yard.train().recover()
    yard.train().recover()
    assert [entry.commit for entry in yard.of(MergeDone)] == [yard.tip()]
    assert yard.book.ledger.intent is None
    assert yard.train().is_whole()


async def test_an_intent_whose_branch_went_elsewhere_is_dropped_and_the_unit_merged_anew(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's commit is thrown away."""
    report = yard.passed("a", {"a": "1"})
    theirs = yard.passed("theirs", {"theirs": "1"}).commit

    def die(*_: Any, **__: Any) -> None:
        raise DiedError

    monkeypatch.setattr(train_module, "advance", die)
    with pytest.raises(DiedError):
        await yard.merge(report)
    monkeypatch.undo()
    yard.checkout.git("update-ref", merged_ref(NIGHT), theirs)
    yard.restarted()
    yard.train().recover()
    assert [entry.unit for entry in yard.of(MergeDropped)] == ["a"]
    assert yard.book.ledger.unit("a").waiting == report
    assert await yard.merge(report)
    assert yard.repository.is_ancestor(str(theirs), str(yard.tip()))


async def test_a_commit_that_somebody_puts_on_the_branch_during_the_verify_is_kept(yard: Yard) -> None:
    """The branch moves only from where the merge began; else the unit is merged anew, on top of theirs."""
    await yard.merge(yard.passed("a", {"a": "1"}))
    tip = str(yard.tip())
    theirs = yard.passed("theirs", {"theirs": "1"}, base=tip).commit
    move = f"git -C {yard.checkout.path} update-ref {merged_ref(NIGHT)} {theirs}"
    report = yard.passed("b", {"b": "1"}, verify=move)
    assert not await yard.merge(report)
    assert yard.tip() == theirs
    assert [entry.unit for entry in yard.of(MergeDropped)] == ["b"]
    assert await yard.merge(report)
    assert yard.repository.is_ancestor(str(theirs), str(yard.tip()))


async def test_a_red_tip_is_red_until_the_branch_moves_on(yard: Yard) -> None:
    """A verify that fails on the tip as it stands now; one that failed on an earlier tip is history."""
    await yard.merge(yard.passed("a", {"a": "1"}))
    assert not yard.train().is_red()
    await yard.train().verify_tip(["test -f b"])
    assert yard.train().is_red()
    await yard.merge(yard.passed("b", {"b": "1"}))
    assert not yard.train().is_red()


async def test_a_branch_that_was_rewound_is_noticed(yard: Yard) -> None:
    """What has passed is no longer in it: nothing may be merged until a person has looked."""
    await yard.merge(yard.passed("a", {"a": "1"}))
    assert yard.train().is_whole()
    yard.checkout.git("update-ref", merged_ref(NIGHT), yard.base)
    assert not yard.train().is_whole()
    yard.checkout.git("update-ref", "-d", merged_ref(NIGHT))
    assert not yard.train().is_whole()


async def test_a_branch_that_somebody_has_checked_out_is_not_moved_under_them(yard: Yard) -> None:
    """Their checkout would show the whole merge as undone; the message says where it is."""
    await yard.merge(yard.passed("a", {"a": "1"}))
    yard.checkout.git("checkout", "-q", merged_ref(NIGHT).removeprefix("refs/heads/"))
    report = yard.passed("b", {"b": "1"})
    yard.checkout.git("checkout", "-q", merged_ref(NIGHT).removeprefix("refs/heads/"))
    with pytest.raises(RepositoryError, match="checked out"):
        await yard.merge(report)
    yard.checkout.git("checkout", "-q", "main")
    yard.train().recover()
    assert [entry.unit for entry in yard.of(MergeDone)] == ["a", "b"]


def test_the_branches_that_people_see() -> None:
    """One for the night, one for each attempt."""
    assert merged_ref("n") == "refs/heads/overnight/n/merged"
    assert unit_ref("n", "a", 2) == "refs/heads/overnight/n/unit/a.2"
