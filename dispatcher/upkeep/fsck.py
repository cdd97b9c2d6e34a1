"""Whether journal, sessions, state file, outbox and merged branch tell the same story. It only looks.

A unit in flight is being written about at this moment, so nothing is said of it.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from dispatcher import journal as j
from dispatcher import moves
from dispatcher.due import with_due
from dispatcher.errors import StateFileError
from dispatcher.ledger import Ledger, UnitFacts
from dispatcher.moves import Cause
from dispatcher.state import Bucket, State, parse
from dispatcher.upkeep.remains import Fault, Remains, SessionLog
from workers.orders import UnitReport
from workers.outbox import decode
from workers.session import events as ev

__all__ = ["check_merges", "check_night", "check_outbox", "check_state", "written_state"]


def check_night(night: Remains, *, is_running: bool) -> Iterator[Fault]:
    """Yield what a night's journal and sessions say against themselves and each other."""
    yield from night.faults
    if not night.has_journal:
        is_said = any(fault.path == night.journal for fault in night.faults)
        if night.sessions and not is_said:  # without a session it never began: a run was killed as it minted the night
            yield Fault(night.journal, "is missing or empty, so nothing says what its sessions are")
        return
    yield from _journal(night, is_running=is_running)
    if not night.is_pruned:
        for log in night.sessions:
            if (log.unit, log.attempt) not in night.moving:
                yield from _session(log, night)
        yield from _missing(night)


def _journal(night: Remains, *, is_running: bool) -> Iterator[Fault]:
    path = night.journal
    first = night.entries[0]
    if not isinstance(first, j.NightStarted):
        yield Fault(path, "does not begin with the start of a night")
    elif first.night != night.night:
        yield Fault(path, f"is that of night {first.night}; was a folder renamed or copied?")
    if night.torn and not is_running:
        yield Fault(path, f"has a torn tail of {night.torn} bytes; the next run sets it aside")
    yield from _revisions(night)
    yield from _numbers(night)


def _revisions(night: Remains) -> Iterator[Fault]:
    last = 0
    for entry in night.entries:
        if not isinstance(entry, j.Written):
            continue
        if entry.rev <= last:
            yield Fault(night.journal, f"writes rev {entry.rev} of the state file after rev {last}")
        last = entry.rev
        if entry.change:  # what it makes of the text before
            continue
        try:
            parse(entry.text)
        except StateFileError as error:
            yield Fault(night.journal, f"holds a state file that cannot be read, rev {entry.rev}: {error}")


def _numbers(night: Remains) -> Iterator[Fault]:
    """Attempts and epochs only ever grow (protocol rule 1)."""
    newest: dict[str, tuple[int, int]] = {}
    for entry in night.entries:
        if isinstance(entry, j.Ordered):
            this, last = (entry.attempt, entry.epoch), newest.get(entry.unit, (0, 0))
            if this <= last:
                yield Fault(night.journal, f"orders {entry.unit} {_dotted(this)} after {_dotted(last)}")
            newest[entry.unit] = max(this, last)


def _dotted(pair: tuple[int, int]) -> str:
    return f"{pair[0]}.{pair[1]}"


def _session(log: SessionLog, night: Remains) -> Iterator[Fault]:
    orders = [
        entry
        for entry in night.entries
        if isinstance(entry, j.Ordered) and (entry.unit, entry.attempt) == (log.unit, log.attempt)
    ]
    if not orders:
        yield Fault(log.path, f"nobody ordered attempt {log.attempt} of {log.unit}")
        return
    if log.torn:
        yield Fault(log.path, f"has a torn tail of {log.torn} bytes; the next worker sets it aside")
    yield from _identity(log, night.night, orders[0])
    yield from _claims(log, {order.epoch for order in orders})
    yield from _verdicts(log, night)
    yield from _cost(log, night)


def _identity(log: SessionLog, night: str, order: j.Ordered) -> Iterator[Fault]:
    start = next((event for event in log.events if isinstance(event, ev.SessionStart)), None)
    if start is None:
        yield Fault(log.path, "does not say whose session it is")
        return
    forks = [event.attempt for event in log.events if isinstance(event, ev.SessionFork)]
    says = (start.night, start.unit, forks[-1] if forks else start.attempt)
    if says != (night, log.unit, log.attempt):
        yield Fault(log.path, f"is the session of {says[1]}, attempt {says[2]}, night {says[0]}; was it moved?")
    if start.base != order.base:
        yield Fault(log.path, f"starts from {start.base[:8]}, and was ordered on {order.base[:8]}")


def _claims(log: SessionLog, ordered: set[int]) -> Iterator[Fault]:
    claims = [event.epoch for event in log.events if isinstance(event, ev.Claim)]
    for epoch in claims:
        if epoch not in ordered:
            yield Fault(log.path, f"was claimed under epoch {epoch}, which nobody ordered")
    if claims != sorted(set(claims)):
        yield Fault(log.path, f"was claimed under epochs {claims}: they must grow")


def _verdicts(log: SessionLog, night: Remains) -> Iterator[Fault]:
    booked = {report.task_id: report for report in _reports(night) if isinstance(report, UnitReport)}
    last = len(log.verdicts)
    for number, stored in enumerate(log.verdicts, 1):
        told = booked.get(stored.task_id)
        if told is None and number < last:
            continue  # sent again under a later epoch
        if told is None:
            yield Fault(
                log.path, f"ends in {stored.verdict} (epoch {stored.epoch}), of which the journal knows nothing"
            )
        elif (told.verdict, told.commit) != (stored.verdict, stored.commit):
            what = f"{stored.verdict} ({(stored.commit or '-')[:8]})"
            yield Fault(log.path, f"says {what}, the journal {told.verdict} ({(told.commit or '-')[:8]})")


def _reports(night: Remains) -> Iterator[Any]:
    return (entry.report for entry in night.entries if isinstance(entry, j.Reported))


def _cost(log: SessionLog, night: Remains) -> Iterator[Fault]:
    booked = night.ledger.unit(log.unit).costs.get(log.attempt, Decimal(0))
    if log.cost is not None and log.cost != booked and not night.ledger.unit(log.unit).unpriced:
        yield Fault(log.path, f"cost ${log.cost}, and the journal booked ${booked}")


def _missing(night: Remains) -> Iterator[Fault]:
    """Yield verdicts that were accepted and have no session that holds them."""
    told = {report.task_id for log in night.sessions for report in log.verdicts}
    broken = {fault.path.parent for fault in night.faults}
    for entry in night.entries:
        if not isinstance(entry, j.Reported) or not isinstance(entry.report, UnitReport) or not entry.accepted:
            continue
        report = entry.report
        if (report.unit, report.attempt) in night.moving:
            continue
        path = night.session(report.unit, report.attempt)
        if report.task_id not in told and path.parent not in broken:
            what = f"does not hold the {report.verdict} that the journal accepted from epoch {report.epoch}"
            yield Fault(path, what)


def check_merges(night: Remains, lacks: Callable[[str], str]) -> Iterator[Fault]:
    """Yield units that passed and that the merged branch does not hold. `lacks` says why not, "" for one it holds.

    A branch that is gone was deleted by somebody who has no more use for it, unless the night goes on.
    """
    for unit, facts in night.ledger.units.items():
        if facts.merged is not None and (what := lacks(facts.merged)):
            yield Fault(night.journal, f"{unit} passed as {facts.merged[:8]}: {what}")


def written_state(ledger: Ledger, attempts: Callable[[str], int] = lambda _: 0) -> State:
    """Return the state file as the journal gives it: its last text, what is due, and every merged unit in `passed`.

    `attempts` says how many a unit has, for the note of one that failed.
    """
    text = ledger.texts.get(ledger.rev)
    state = with_due(parse(text) if text is not None else State(ledger.title, ledger.night, 0), ledger, attempts)
    for unit, facts in ledger.units.items():
        if facts.merged is not None and state.bucket_of(unit) is not Bucket.passed:
            state = moves.add(moves.move(state, unit, Bucket.passed, Cause.merged), (unit,), Bucket.passed)
    return state


def check_state(state: State, path: Path, night: Remains) -> Iterator[Fault]:
    """Yield where the state file and the journal of its night contradict each other."""
    ledger = night.ledger
    if state.rev not in ledger.texts:
        yield Fault(path, f"names rev {state.rev}, which the journal never wrote (it is at rev {ledger.rev})")
    elif state.rev != ledger.rev:
        yield Fault(
            path, f"is rev {state.rev}; the journal is at rev {ledger.rev}: an old copy, or a write that was lost"
        )
    meant = written_state(ledger)
    before = parse(ledger.texts[ledger.rev]) if ledger.rev in ledger.texts else meant
    for unit in state.ids():
        said = {meant.bucket_of(unit), before.bucket_of(unit)}
        what = _contradiction(state.bucket_of(unit), ledger.unit(unit), said)
        if what is not None:
            yield Fault(path, f"{unit} is in {state.bucket_of(unit)}{what}")
    for unit in meant.ids():
        if state.bucket_of(unit) is None:
            yield Fault(path, f"{unit} is missing; the journal has it in {meant.bucket_of(unit)}")


def _contradiction(found: Bucket | None, facts: UnitFacts, said: set[Bucket | None]) -> str | None:
    """Return what the journal says against a unit's bucket; either of those that it has `said` will do."""
    if facts.merged is not None:
        return None if found is Bucket.passed else ", and the journal holds its merge"
    if found is Bucket.passed and not facts.waived:
        return ", and the journal holds no merge of it"
    if said == {None}:
        return ", and no run has seen it yet"
    named = " or ".join(sorted(str(bucket) for bucket in said if bucket is not None))
    return None if found in said else f", the journal has it in {named}"


def check_outbox(folder: Path, ledgers: dict[str, Ledger]) -> Iterator[Fault]:
    """Yield what is left in the outbox; while a run is going, reports are on their way through it."""
    for path in sorted(folder.glob("*.json")):
        try:
            report = decode(path.read_bytes())
        except (ValueError, OSError) as error:
            yield Fault(path, f"is no report: {error}", unreadable=True)
            continue
        ledger = ledgers.get(report.night)
        if ledger is None:
            yield Fault(path, f"is a report of night {report.night}, which is not here")
        elif report.task_id in ledger.reports:
            yield Fault(path, "was journalled, and is still here: its worker never heard so")
        else:
            yield Fault(path, "was never journalled; the next run takes it in")
