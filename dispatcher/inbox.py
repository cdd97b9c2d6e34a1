"""The inbox: what workers report and what people ask, journalled before anything else happens (rule 15)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import redis

from dispatcher import dropbox, people
from dispatcher.accept import refusal
from dispatcher.book import Book
from dispatcher.journal import Asked, Reported
from dispatcher.outcome import ENGINE, STOPPED, Outcome
from dispatcher.shown.display import Display
from dispatcher.state import State
from dispatcher.steering import NEED_NO_STATE
from dispatcher.train import unit_ref
from workers.orders import Release, Report
from workers.outbox import Mailbox, Outbox
from worktrees.errors import GitError, RefMoved, RepositoryError
from worktrees.repository import Repository

__all__ = ["Inbox", "take_stop"]

_STARTED = datetime.now(UTC)
"""When this process was: a `stop` from before was meant for a run that has ended."""

# Seconds until a unit that was handed back for infrastructure's sake is handed out again.
_HOLD = {"busy": 2.0, "model": 30.0}
_ENDINGS = {
    "disk": (ENGINE, "engine", "disk"),
    "key": (ENGINE, "engine", "the model's key was refused"),
    "spend": (STOPPED, "stopped", "the account's spend limit is reached"),
}


def take_stop(folder: Path) -> bool:
    """Take every `stop` that is meant for this process out of the drop-box, and tell whether there was one.

    For a run that waits for its time: there may be no night yet whose journal could hold it.
    """
    found = [one for one in dropbox.peek(folder) if isinstance(one, dropbox.Stop) and one.at >= _STARTED]
    for one in found:
        dropbox.withdraw(folder, one)
    return bool(found)


@dataclass
class Inbox:
    """`end` hears why nothing more should be handed out; `hold` keeps a unit back for seconds.

    `events` says how many events a unit's attempt has stored, 0 where its session is not here; `used_up` which of its
    caps is.
    """

    book: Book
    repository: Repository
    mailbox: Mailbox
    display: Display
    end: Callable[[Outcome], None]
    hold: Callable[[str, float], None]
    events: people.Events = lambda _unit, _attempt: 0
    used_up: people.UsedUp = lambda _unit, _ledger: ""

    # -- people -----------------------------------------------------------------------------------------------------

    def obey(self, folder: Path, state: State, *, is_readable: bool = True) -> None:
        """Take every request out of the drop-box: journalled, obeyed once, and only then deleted.

        While the state file cannot be read, what concerns units stays there.
        """
        found = [one for one in dropbox.pending(folder) if is_readable or isinstance(one[1], NEED_NO_STATE)]
        replaced = people.superseded(request for _, request in found)
        for path, request in found:
            if request.id not in self.book.ledger.asked:
                self._obey(request, state, is_replaced=request.id in replaced)
            dropbox.done(path)

    def _obey(self, request: dropbox.Request, state: State, *, is_replaced: bool) -> None:
        ledger = self.book.ledger
        why_not = people.refusal(request, state, ledger, events=self.events, used_up=self.used_up, since=_STARTED)
        if is_replaced:
            why_not = "a later word of yours takes its place"
        idle = people.unneeded(request, state, ledger) if why_not is None else ""
        found = Asked(
            request=request.model_dump(mode="json"),
            obeyed=why_not is None and not idle,
            reason=why_not or idle,
            unneeded=bool(idle),
        )
        self.book.note(found)
        asked = f"{request.kind} {getattr(request, 'unit', '')}".rstrip()
        self.display.note(f"asked       {asked}: {found.reason or 'done'}")
        if isinstance(request, dropbox.Stop) and why_not is None:
            self.end(Outcome(STOPPED, "stopped", "asked to stop"))

    # -- workers ----------------------------------------------------------------------------------------------------

    async def collect(self) -> None:
        """Take the reports that wait in Redis, and acknowledge each once the journal holds it."""
        try:
            for report in await asyncio.to_thread(self.mailbox.receive):
                self.take(report)
                await asyncio.to_thread(self.mailbox.acknowledge, report.task_id)
        except redis.RedisError:
            return  # everybody waits for Redis

    def collect_left_over(self, outbox: Outbox) -> None:
        """Take what workers of this host wrote down after the last dispatcher died."""
        for report in outbox.pending():
            if report.night == self.book.ledger.night:
                self.take(report)
                outbox.remove(report.task_id)  # the journal has it; a worker that carries it still does so from memory

    def take(self, report: Report) -> None:
        """Journal a report, accepted or refused; one that the journal holds already changes nothing."""
        facts = self.book.ledger.unit(report.unit)
        if report.task_id in self.book.ledger.reports:
            if (report.attempt, report.epoch) == (facts.attempt, facts.closed_epoch):
                self._set_branch(report)  # a crash may have come before that
            return
        commit = report.commit if report.kind == "verdict" else None
        has_commit = commit is not None and self.repository.has_commit(commit)
        reason = refusal(report, facts, has_commit=has_commit)
        self.book.note(Reported(report=report, accepted=reason is None, reason=reason or ""))
        is_told = reason is not None and facts.is_cancelled  # what became of it was said when it was cancelled
        self.display.note(_line(report, None if is_told else reason))
        if reason is None:
            self._set_branch(report)
            if report.kind == "release":
                self._released(report)

    def _set_branch(self, report: Report) -> None:
        """Let people see the attempt's commits under a branch of its own (rule 16)."""
        commit = (report.commit if report.kind == "verdict" else None) or self.repository.read_ref(report.ref)
        if commit is None:
            return
        branch = unit_ref(report.night, report.unit, report.attempt)
        found = self.repository.read_ref(branch)
        if found == commit:
            return
        try:
            self.repository.update_ref(branch, commit, found, message="overnight")
        except (GitError, RefMoved, RepositoryError) as error:
            self.display.note(f"branch      {branch} was not set: {error}")

    def _released(self, report: Release) -> None:
        self.hold(report.unit, _HOLD.get(report.reason, 0.0))
        if report.reason in _ENDINGS:
            code, word, what = _ENDINGS[report.reason]
            self.end(Outcome(code, word, f"{what}: {report.detail}"))


def _line(report: Report, refused: str | None) -> str:
    said = report.verdict if report.kind == "verdict" else f"released ({report.reason})"
    note = report.note if report.kind == "verdict" else report.detail
    cost = "" if report.cost is None else f"  ${report.cost:.2f}"
    line = f"report      {report.unit} {report.attempt}.{report.epoch}: {said}{cost}  {note}".rstrip()
    return line if refused is None else f"{line}  (refused: {refused})"
