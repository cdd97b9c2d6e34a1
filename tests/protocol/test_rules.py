"""What no other test holds of the protocol's rules, and that docs/protocol.md names tests and code that there are."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import redis

from dispatcher.accept import refusal
from dispatcher.book import Book
from dispatcher.config import Config
from dispatcher.decide import HandOut
from dispatcher.errors import EngineError
from dispatcher.fleet import Fleet
from dispatcher.inbox import Inbox
from dispatcher.journal import NightStarted, Ordered, Reported
from dispatcher.ledger import UnitFacts
from dispatcher.orders import digest_of, order_of
from dispatcher.shown.display import Display, Snapshot
from dispatcher.train import Train, merged_ref
from dispatcher.units import UnitFile
from dispatcher.watch import Watch
from workers.lease import LeaseTable
from workers.orders import UnitReport
from workers.outbox import Mailbox
from worktrees.repository import Repository
from worktrees.worktree import Worktrees

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/protocol.md"
NIGHT = "1130-k3v"
UNIT = UnitFile(id="a", goal="Do it.", verify="true")


class Silent(Display):
    """Says nothing."""

    def __init__(self) -> None:
        pass

    def note(self, line: str) -> None:
        pass

    def status(self, line: str) -> None:
        pass

    def update(self, snapshot: Snapshot) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def book(tmp_path: Path) -> Any:
    opened = Book.open(tmp_path / "journal.jsonl")
    opened.note(NightStarted(night=NIGHT, title="Ours", base="0" * 40, base_name="main"))
    yield opened
    opened.close()


def passed(commit: str, tree: str) -> UnitReport:
    named = {"night": NIGHT, "unit": "a", "attempt": 1, "epoch": 1}
    return UnitReport(**named, verdict="pass", commit=commit, tree=tree, digest=digest_of(UNIT, Config()))


async def test_an_order_is_in_the_journal_before_redis_hears_of_it(
    book: Book, redis_server: Any, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that cannot be written publishes nothing; one that can is written first (rules 3, 4)."""
    table = LeaseTable(redis_client, NIGHT)
    fleet = Fleet(book, table, redis_server.url, Watch(3), 0.0, Silent())
    places: dict[str, Any] = {"repository": Path("/r"), "home": Path("/h")}
    order = order_of(UNIT, HandOut("a", 1, 1, None), UnitFacts(), Config(), night=NIGHT, base="b", run_id="", **places)
    publish, before = table.publish, []

    def look(*args: Any) -> str:
        before.extend(book.journal.entries)
        return publish(*args)

    monkeypatch.setattr(table, "publish", look)
    with monkeypatch.context() as patched:
        patched.setattr(book.journal, "write", full)
        with pytest.raises(EngineError):
            await fleet.hand_out(order, None)
    assert before == []
    assert redis_client.keys() == []
    await fleet.hand_out(order, None)
    assert isinstance(before[-1], Ordered)


def full(*_: Any) -> None:
    raise EngineError("no space", component="disk")


async def test_a_report_is_acknowledged_only_when_the_journal_has_it(
    book: Book, make_repository: Any, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full disk its sender keeps it (rule 15)."""
    checkout = make_repository()
    mailbox = Mailbox(redis_client, NIGHT)
    ignore = {"end": lambda _: None, "hold": lambda *_: None}
    inbox = Inbox(book, Repository.discover(checkout.path), mailbox, Silent(), **ignore)
    book.note(Ordered(unit="a", attempt=1, epoch=1, base="b", digest="d"))
    report = passed(checkout.git("rev-parse", "HEAD"), "t" * 40)
    mailbox.send(report)
    with monkeypatch.context() as patched:
        patched.setattr(book.journal, "write", full)
        with pytest.raises(EngineError):
            await inbox.collect()
    assert not mailbox.is_acknowledged(report.task_id)
    assert mailbox.receive() == [report]
    await inbox.collect()
    assert mailbox.is_acknowledged(report.task_id)


async def test_what_is_merged_is_the_commit_and_not_what_its_ref_has_become(
    book: Book, make_repository: Any, tmp_path: Path
) -> None:
    """Whoever was given up may commit on; it never lands (rule 16)."""
    checkout = make_repository({"shared": "line\n"})
    base = checkout.git("rev-parse", "HEAD")
    book.note(NightStarted(night=NIGHT, title="Ours", base=base, base_name="main"))
    checkout.git("checkout", "-q", "--detach")
    verified = checkout.commit({"a": "1"})
    report = passed(verified, checkout.git("rev-parse", "HEAD^{tree}"))
    zombie = checkout.commit({"a": "1", "evil": "1"})
    checkout.git("update-ref", report.ref, zombie)
    checkout.git("checkout", "-q", "main")
    repository = Repository.discover(checkout.path)
    book.note(
        Reported(report=report, accepted=refusal(report, UnitFacts(1, 1, settled=False), has_commit=True) is None)
    )
    train = Train(repository, Worktrees(repository, tmp_path / "trees"), book, Config(), Silent())
    assert await train.merge(report, lambda: UNIT)
    tip = merged_ref(NIGHT)
    assert checkout.git("ls-tree", "--name-only", tip).split() == ["a", "shared"]
    assert not repository.is_ancestor(zombie, checkout.git("rev-parse", tip))


def test_git_flushes_objects_and_refs(make_repository: Any) -> None:
    """Else a journal could outlive the commit that it speaks of (rule 18)."""
    git = Repository.discover(make_repository().path).git
    assert git.run("config", "--get", "core.fsync").stdout.strip() == "loose-object,reference"


# -- docs/protocol.md --------------------------------------------------------------------------------------------------


def rows() -> list[tuple[str, ...]]:
    """Return the cells of the table of rules."""
    lines = re.findall(r"^\| *● *\d+.*|^\| *\d+ .*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def names_of(path: Path) -> set[str]:
    """Return every function, class, method and assigned name of a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def test_every_rule_has_a_name_and_a_test() -> None:
    """Twenty rules, each with code and at least one test."""
    assert [int(re.sub(r"\D", "", row[0])) for row in rows()] == list(range(1, 21))
    for row in rows():
        assert re.search(r"`\w+/[\w/]+\.py", row[1]), row
        assert "::test_" in row[2], row


def test_the_code_that_the_page_names_is_there() -> None:
    """`path.py: name, name`."""
    for row in rows():
        for path, names in re.findall(r"`([\w/]+\.py)(?:: ([\w, .]+))?`", row[1]):
            known = names_of(ROOT / path)
            for name in filter(None, names.split(", ")):
                assert set(name.split(".")) <= known, f"{path} has no {name}"


def test_the_tests_that_the_page_names_are_there() -> None:
    """`path.py::test_name`, also behind the table."""
    text = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)(?:\[[^\]]*\])?`", text)
    assert len(named) > 40
    for path, name in named:
        assert name in names_of(ROOT / path), f"{path} has no {name}"


def test_every_rule_is_named_in_the_code() -> None:
    """`(rule 9)` stands where it lives."""
    sources = [path for package in ("worktrees", "workers", "dispatcher") for path in (ROOT / package).rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    named: set[int] = set()
    for numbers in re.findall(r"rules? ((?:\d+(?:, | and |-)?)+)", text):
        parts = re.split(r", | and ", numbers)
        for part in filter(None, parts):
            low, _, high = part.partition("-")
            named.update(range(int(low), int(high or low) + 1))
    assert set(range(1, 21)) <= named
