"""The inbox: what workers report and what people ask, journalled before anything else happens (rule 15)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import redis

from dispatcher import dropbox, forks
from dispatcher.accept import refusal
from dispatcher.book import Book
from dispatcher.display import Display
from dispatcher.journal import Asked, Reported
from dispatcher.outcome import ENGINE, STOPPED, Outcome
from dispatcher.state import Bucket, State
from dispatcher.train import unit_ref
from workers.orders import Release
from workers.outbox import Closing, Mailbox, Outbox
from worktrees.errors import GitError, RefMoved, RepositoryError
from worktrees.repository import Repository

__all__ = ["Inbox"]

# Seconds until a unit that was handed back for infrastructure's sake is handed out again.
_HOLD = {"busy": 2.0, "model": 30.0}
_ENDINGS = {
    "disk": (ENGINE, "engine", "disk"),
    "key": (ENGINE, "engine", "the model's key was refused"),
    "spend": (STOPPED, "stopped", "the account's spend limit is reached"),
}


@dataclass
class Inbox:
    """`end` hears why nothing more should be handed out; `hold` keeps a unit back for seconds.

    `events` says how many events a unit's attempt has stored, 0 where its session is not here.
    """

    book: Book
    repository: Repository
    mailbox: Mailbox
    display: Display
    end: Callable[[Outcome], None]
    hold: Callable[[str, float], None]
    events: Callable[[str, int], int] = lambda _unit, _attempt: 0

    # -- people -----------------------------------------------------------------------------------------------------

    def obey(self, folder: Path, state: State) -> None:
        """Take every request out of the drop-box: journalled, obeyed once, and only then deleted."""
        for path, request in dropbox.pending(folder):
            if request.id not in self.book.ledger.asked:
                self._obey(request, state)
            dropbox.done(path)

    def _obey(self, request: dropbox.Request, state: State) -> None:
        why_not = self._why_not(request, state)
        self.book.note(Asked(request=request.model_dump(mode="json"), obeyed=why_not is None, reason=why_not or ""))
        self.display.note(f"asked       {request.kind} {getattr(request, 'unit', '')}: {why_not or 'done'}")
        if isinstance(request, dropbox.Stop):
            self.end(Outcome(STOPPED, "stopped", "asked to stop"))

    def _why_not(self, request: dropbox.Request, state: State) -> str | None:
        if isinstance(request, dropbox.Stop):
            return None
        bucket = state.bucket_of(request.unit)
        facts = self.book.ledger.unit(request.unit)
        if bucket is None:
            return "there is no such unit"
        match request:
            case dropbox.Answer():
                return None if facts.question is not None else "it has asked nothing"
            case dropbox.Retry() if bucket is Bucket.passed or facts.waiting is not None:
                return "it has passed"
            case dropbox.Retry():
                return "it is being worked on" if facts.in_flight else None
            case dropbox.Fork():
                stored = self.events(request.unit, request.attempt)
                return forks.refusal(request, bucket, facts, stored, in_flight=facts.in_flight)
            case _:
                return f"{request.kind} is not available in this version"

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

    def take(self, report: Closing) -> None:
        """Journal a report, accepted or refused; one that the journal holds already changes nothing."""
        if report.task_id in self.book.ledger.reports:
            return
        commit = report.commit if report.kind == "verdict" else None
        has_commit = commit is not None and self.repository.has_commit(commit)
        reason = refusal(report, self.book.ledger.unit(report.unit), has_commit=has_commit)
        self.book.note(Reported(report=report, accepted=reason is None, reason=reason or ""))
        self.display.note(_line(report, reason))
        if reason is None:
            self._set_branch(report)
            if report.kind == "release":
                self._released(report)

    def _set_branch(self, report: Closing) -> None:
        """Let people see the attempt's commits under a branch of its own (rule 16)."""
        commit = (report.commit if report.kind == "verdict" else None) or self.repository.read_ref(report.ref)
        if commit is None:
            return
        branch = unit_ref(report.night, report.unit, report.attempt)
        try:
            self.repository.update_ref(branch, commit, self.repository.read_ref(branch), message="overnight")
        except (GitError, RefMoved, RepositoryError) as error:
            self.display.note(f"branch      {branch} was not set: {error}")

    def _released(self, report: Release) -> None:
        self.hold(report.unit, _HOLD.get(report.reason, 0.0))
        if report.reason in _ENDINGS:
            code, word, what = _ENDINGS[report.reason]
            self.end(Outcome(code, word, f"{what}: {report.detail}"))


def _line(report: Closing, refused: str | None) -> str:
    said = report.verdict if report.kind == "verdict" else f"released ({report.reason})"
    note = report.note if report.kind == "verdict" else report.detail
    cost = "" if report.cost is None else f"  ${report.cost:.2f}"
    line = f"report      {report.unit} {report.attempt}.{report.epoch}: {said}{cost}  {note}".rstrip()
    return line if refused is None else f"{line}  (refused: {refused})"
