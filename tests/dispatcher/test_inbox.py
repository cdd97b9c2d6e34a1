"""What workers report and people ask: journalled once, obeyed once, acknowledged only then."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from entries import NIGHT, failed, merged, ordered, release, reported, verdict
from quiet import Quiet

from dispatcher import dropbox
from dispatcher.book import Book
from dispatcher.inbox import Inbox
from dispatcher.journal import Asked, NightStarted, Reported
from dispatcher.outcome import ENGINE, STOPPED, Outcome
from dispatcher.state import Bucket, State
from dispatcher.train import unit_ref
from workers.outbox import Mailbox, Outbox
from worktrees.repository import Repository


class Desk:
    """An inbox with everything around it, and what it said."""

    def __init__(self, checkout: Any, client: redis.Redis, folder: Path) -> None:
        self.checkout = checkout
        self.commit = checkout.git("rev-parse", "HEAD")
        self.repository = Repository.discover(checkout.path)
        self.mailbox = Mailbox(client, NIGHT)
        self.book = Book.open(folder / "journal.jsonl")
        self.endings: list[Outcome] = []
        self.held: dict[str, float] = {}
        self.display = Quiet()
        self.dropbox = folder / "dropbox"
        self.inbox = Inbox(
            self.book, self.repository, self.mailbox, self.display, self.endings.append, self.held.__setitem__
        )

    def reports(self) -> list[tuple[str, bool]]:
        return [
            (entry.report.task_id, entry.accepted) for entry in self.book.journal.entries if isinstance(entry, Reported)
        ]

    def ask(self, request: dropbox.Request, state: State | None = None) -> Asked:
        """Drop a request, look into the drop-box, and return what the journal says of it."""
        dropbox.drop(self.dropbox, request)
        self.inbox.obey(self.dropbox, state or State("Ours").add("a"))
        assert dropbox.pending(self.dropbox) == []
        entry = self.book.journal.entries[-1]
        assert isinstance(entry, Asked)
        return entry


@pytest.fixture
def desk(make_repository: Any, redis_client: redis.Redis, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(make_repository(), redis_client, tmp_path)
    yield made
    made.book.close()


async def test_a_report_is_journalled_then_acknowledged_and_shown_as_a_branch(desk: Desk) -> None:
    """The branch that people see points to what was verified."""
    desk.book.note(ordered("a"))
    report = verdict("a", "pass", commit=desk.commit)
    desk.mailbox.send(report)
    await desk.inbox.collect()
    assert desk.reports() == [(report.task_id, True)]
    assert desk.mailbox.is_acknowledged(report.task_id)
    assert desk.mailbox.receive() == []
    assert desk.repository.read_ref(unit_ref(NIGHT, "a", 1)) == desk.commit


async def test_a_duplicate_is_acknowledged_again_and_not_journalled_again(desk: Desk) -> None:
    """Whoever sends it has not heard us."""
    desk.book.note(ordered("a"))
    report = verdict("a", "fail")
    for _ in range(2):
        desk.mailbox.send(report)
        await desk.inbox.collect()
        assert desk.mailbox.receive() == []
    assert desk.reports() == [(report.task_id, True)]


async def test_a_refused_report_is_journalled_with_its_reason_and_acknowledged(desk: Desk) -> None:
    """A pass whose commit is not here has nothing to merge."""
    desk.book.note(ordered("a"))
    report = verdict("a", "pass", commit="1" * 40)
    desk.mailbox.send(report)
    await desk.inbox.collect()
    assert desk.reports() == [(report.task_id, False)]
    assert desk.mailbox.is_acknowledged(report.task_id)
    assert "commit cannot be read" in desk.display.notes[-1]
    assert desk.repository.read_ref(unit_ref(NIGHT, "a", 1)) is None


async def test_without_redis_everybody_waits(desk: Desk, redis_server: Any) -> None:
    """The report is still there when it is back."""
    desk.book.note(ordered("a"))
    desk.mailbox.send(verdict("a", "fail"))
    redis_server.kill()
    await desk.inbox.collect()
    assert desk.reports() == []
    redis_server.start()
    await desk.inbox.collect()
    assert len(desk.reports()) == 1


async def test_a_branch_that_a_crash_kept_from_being_set_is_set_when_the_report_comes_again(desk: Desk) -> None:
    """It was journalled and not acknowledged. What was refused, or is of another hand-out, never moves a branch."""
    desk.book.note(ordered("a", 1, 2))
    report, old = (verdict("a", "pass", epoch=epoch, commit=desk.commit) for epoch in (2, 1))
    desk.book.note(reported(report))
    desk.inbox.take(old)
    desk.inbox.take(old)
    assert desk.repository.read_ref(unit_ref(NIGHT, "a", 1)) is None
    desk.inbox.take(report)
    assert desk.repository.read_ref(unit_ref(NIGHT, "a", 1)) == desk.commit


def test_what_lies_in_the_outbox_is_gone_once_the_journal_has_it(desk: Desk, tmp_path: Path) -> None:
    """Its worker may be dead, and a run with nothing left to do starts none that could hear of it."""
    desk.book.note(NightStarted(night=NIGHT, title="t", base="b", base_name="m"), ordered("a"))
    outbox = Outbox(tmp_path / "outbox")
    for _ in range(2):
        outbox.put(verdict("a", "fail"))
        desk.inbox.collect_left_over(outbox)
        assert outbox.pending() == []
    assert len(desk.reports()) == 1


def test_what_lies_in_the_outbox_is_taken_for_this_night_alone(desk: Desk, tmp_path: Path) -> None:
    """Other nights' reports are left for their own runs."""
    outbox = Outbox(tmp_path / "outbox")
    desk.book.note(NightStarted(night=NIGHT, title="t", base="b", base_name="m"))
    desk.book.note(ordered("a"))
    outbox.put(verdict("a", "fail"))
    outbox.put(verdict("a", "fail", night="other"))
    desk.inbox.collect_left_over(outbox)
    desk.inbox.collect_left_over(outbox)
    assert desk.reports() == [(f"{NIGHT}.a.1.1", True)]


@pytest.mark.parametrize(
    ("reason", "code", "held"),
    [
        ("disk", ENGINE, 0.0),
        ("key", ENGINE, 0.0),
        ("spend", STOPPED, 0.0),
        ("busy", None, 2.0),
        ("model", None, 30.0),
        ("stopped", None, 0.0),
        ("session", None, 0.0),
    ],
)
def test_what_a_release_means_for_the_run(desk: Desk, reason: str, code: int | None, held: float) -> None:
    """Trouble of the machine or the account ends it; a busy unit or a model that is away is held back for a while."""
    desk.book.note(ordered("a"))
    desk.inbox.take(release("a", reason, detail="why"))
    assert [ending.code for ending in desk.endings] == ([] if code is None else [code])
    assert all("why" in ending.detail for ending in desk.endings)
    assert desk.held == {"a": held}


QUESTION = reported(verdict("a", "block", question="?", pause_seq=1))


@pytest.mark.parametrize(
    ("request_", "entries", "bucket", "why_not"),
    [
        (dropbox.Answer(unit="a", text="x"), [ordered("a"), QUESTION], "blocked", ""),
        (dropbox.Answer(unit="a", text="x"), [ordered("a")], "open", "it has asked nothing, or has its answer already"),
        (dropbox.Retry(unit="a"), failed("a", 1), "tried", ""),
        (dropbox.Retry(unit="a"), [ordered("a")], "open", "it is being worked on"),
        (dropbox.Retry(unit="a"), [ordered("a"), reported(verdict("a", "pass"))], "open", "it has passed"),
        (dropbox.Retry(unit="a"), [ordered("a"), merged("a")], "passed", "it has passed"),
        (dropbox.Retry(unit="nobody"), [], "open", "there is no such unit"),
        (dropbox.Tell(unit="a", text="x"), [], "open", ""),
        (dropbox.Pause(), [], "open", ""),
    ],
)
def test_which_requests_are_obeyed(desk: Desk, request_: Any, entries: list[Any], bucket: str, why_not: str) -> None:
    """Each is journalled with what became of it, and said."""
    desk.book.note(*entries)
    asked = desk.ask(request_, State("Ours").add("a", Bucket(bucket)))
    assert (asked.obeyed, asked.reason) == (not why_not, why_not)
    assert (why_not or "done") in desk.display.notes[-1]


def test_a_stop_that_was_left_behind_ends_nothing(desk: Desk) -> None:
    """It lay there before this process was: the run that it was meant for has ended."""
    asked = desk.ask(dropbox.Stop(at=datetime.now(UTC) - timedelta(hours=8)))
    assert (asked.obeyed, asked.reason) == (False, "the run that it was meant for has ended")
    assert desk.endings == []


def test_a_request_that_comes_back_is_obeyed_once(desk: Desk) -> None:
    """A crash between the journal and the deletion leaves the file behind."""
    request = dropbox.Stop()
    desk.ask(request)
    desk.ask(request)
    assert len([entry for entry in desk.book.journal.entries if isinstance(entry, Asked)]) == 1
    assert [ending.code for ending in desk.endings] == [STOPPED]


def test_a_no_that_follows_a_yes_in_the_drop_box_is_what_happens(desk: Desk) -> None:
    """Both lay there before the run looked: the yes is journalled as refused, and the call is not let through."""
    desk.book.note(ordered("a"), reported(verdict("a", "block", question="q", approval="bash: q", pause_seq=1)))
    yes, no = dropbox.Approve(unit="a"), dropbox.Deny(unit="a", reason="not today")
    dropbox.drop(desk.dropbox, yes)
    dropbox.drop(desk.dropbox, no)
    desk.inbox.obey(desk.dropbox, State("Ours").add("a", Bucket.blocked))
    found = [(one.request["kind"], one.obeyed) for one in desk.book.journal.entries if isinstance(one, Asked)]
    assert found == [("approve", False), ("deny", True)]
    (answer,) = desk.book.ledger.unit("a").answers
    assert answer.approved is False


def test_what_a_run_need_not_or_cannot_do_is_journalled_so(desk: Desk) -> None:
    """An untried unit keeps its place, and one whose caps are used up stays blocked: neither makes anything due."""
    idle = desk.ask(dropbox.Retry(unit="a"))
    assert (idle.obeyed, idle.unneeded, "keeps its place" in idle.reason) == (False, True, True)
    desk.inbox.used_up = lambda unit, _ledger: f"{unit}: 1 attempt used up"
    refused = desk.ask(dropbox.Unblock(unit="a"), State("Ours").add("a", Bucket.blocked))
    assert (refused.obeyed, refused.unneeded, "a: 1 attempt used up" in refused.reason) == (False, False, True)
    assert desk.book.ledger.due == {}
    desk.inbox.used_up = lambda _unit, _ledger: ""
    assert desk.ask(dropbox.Unblock(unit="a"), State("Ours").add("a", Bucket.blocked)).obeyed
