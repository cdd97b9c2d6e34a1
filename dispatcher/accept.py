"""Which reports count (protocol rule 15): the first verdict of the current attempt. Pure."""

from dispatcher.ledger import UnitFacts
from workers.orders import Report

__all__ = ["refusal"]


def refusal(report: Report, facts: UnitFacts, *, has_commit: bool) -> str | None:
    """Return why a report is refused, None when it is accepted. `has_commit`: a pass's commit is readable here."""
    if facts.merged is not None:
        return "the unit has passed already"
    if report.attempt != facts.attempt:
        return f"attempt {report.attempt} is over; the current one is {facts.attempt}"
    if facts.settled:
        return "the attempt has its verdict already"
    is_pass = report.kind == "verdict" and report.verdict == "pass"
    if report.epoch == facts.closed_epoch or (report.epoch < facts.closed_epoch and facts.question is not None):
        return "this hand-out, or a later one, has been closed already"
    if report.epoch != facts.epoch and not is_pass:  # a later hand-out that found the unit busy closed nothing
        return f"epoch {report.epoch} was given up; the current one is {facts.epoch}"
    if is_pass and not has_commit:
        return "its commit cannot be read here"
    return None
