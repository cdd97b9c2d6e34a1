"""The morning report and the last lines of a run: made from the state file, the journal and git alone.

It says what is, never more: what was verified and on which tree, what was not, what a person must see.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from dispatcher.journal import RunEnded, RunStarted, Verified
from dispatcher.ledger import Ledger
from dispatcher.outcome import Outcome
from dispatcher.shown.counted import dollars
from dispatcher.state import Bucket, State, one_line
from dispatcher.train import merged_ref
from worktrees.repository import Repository

__all__ = ["Material", "as_facts", "as_text", "ran_on", "summary"]

_MOST_NAMED = 2  # verifies in the headline
_NOTE_CHARACTERS = 600


class Material(Protocol):
    """What a report is made from: a night as it is now, or one that is being archived."""

    @property
    def repository(self) -> Repository:
        """Git."""
        ...

    @property
    def state(self) -> State:
        """The four buckets."""
        ...

    @property
    def ledger(self) -> Ledger:
        """What the journal says."""
        ...

    @property
    def entries(self) -> Sequence[tuple[str, object]]:
        """The journal as (time, entry) pairs."""
        ...


def as_facts(here: Material, waiting: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the report as plain data; money as strings in dollars. `waiting` says why a unit is not handed out."""
    ledger = here.ledger
    tip = here.repository.read_ref(merged_ref(here.state.night)) if here.state.night else None
    runs = [entry for _, entry in here.entries if isinstance(entry, RunEnded)]
    blocked = _noted(here, Bucket.blocked)
    return {
        "night": here.state.night,
        "title": here.state.title,
        "tip": tip,
        "branch": merged_ref(here.state.night).removeprefix("refs/heads/") if tip else None,
        "passed": [unit for unit in here.state.ids(Bucket.passed) if ledger.unit(unit).merged],
        "waived": [unit for unit in here.state.ids(Bucket.passed) if not ledger.unit(unit).merged],
        "questions": _questions(here),
        "approvals": _approvals(here),
        "blocked": {unit: note for unit, note in blocked.items() if not ledger.unit(unit).is_cancelled},
        "cancelled": [unit for unit in blocked if ledger.unit(unit).is_cancelled],
        "tried": _noted(here, Bucket.tried),
        "open": list(here.state.ids(Bucket.open)),
        "waiting": dict(waiting or {}),
        "tip_verifies": _tip_verifies(here, tip),
        "spent": f"{ledger.spent:.2f}",
        "unpriced": [unit for unit, facts in ledger.units.items() if facts.unpriced],
        "runs": sum(isinstance(entry, RunStarted) for _, entry in here.entries),
        "ended": {"reason": runs[-1].reason, "detail": runs[-1].detail} if runs else None,
    }


def _questions(here: Material) -> dict[str, str]:
    facts = here.ledger.units
    return {unit: question.question or "" for unit, one in facts.items() if (question := one.question) is not None}


def _approvals(here: Material) -> list[str]:
    """Return the units among those with a question that wait for a yes or a no to a call."""
    return [unit for unit, one in here.ledger.units.items() if one.question is not None and one.question.approval]


def _noted(here: Material, bucket: Bucket) -> dict[str, str]:
    """Return the notes, in full where the state file's were cut."""
    asking = _questions(here)
    told = {entry.id: here.ledger.unit(entry.id).whole(entry.note) for entry in here.state.entries(bucket)}
    return {unit: one_line(note, _NOTE_CHARACTERS) for unit, note in told.items() if unit not in asking}


def _tip_verifies(here: Material, tip: str | None) -> list[dict[str, Any]]:
    """Return every verify that was run on the very tree of the tip, whatever stage it was run at."""
    if tip is None:
        return []
    if tip in here.ledger.state_commits:  # which added nothing but the state file and the archive
        tip = here.repository.parents(tip)[0]
    found = ran_on(here.repository.tree(tip), (entry for _, entry in here.entries))
    return [{"command": one.command, "passed": one.passed, "seconds": one.seconds} for one in found]


def ran_on(tree: str, entries: Iterable[object]) -> list[Verified]:
    """Return the last run of each verify on a tree.

    What was red before anybody had worked is not a fault of the tip, where that is still the tree of the base.
    """
    ran = (entry for entry in entries if isinstance(entry, Verified) and entry.tree == tree)
    return list({entry.command: entry for entry in ran if entry.passed or entry.stage != "base"}.values())


def as_text(facts: dict[str, Any]) -> str:
    """Return the report for people."""
    lines = [_headline(facts)]
    for unit, question in facts["questions"].items():
        command = f'overnight answer {unit} "…"'
        if unit in facts["approvals"]:
            command = f'overnight approve {unit}, or overnight deny {unit} "why"'
        _section(lines, "needs you", f'{unit}  "{one_line(question)}"  → {command}')
    for unit, note in facts["blocked"].items():
        _section(lines, "needs you", f"{unit}  {note}  → overnight log {unit}; overnight retry {unit}")
    for unit, note in facts["tried"].items():
        _section(lines, "did not pass", f"{unit}  {note}  → overnight log {unit}")
    for unit in facts["open"]:
        _section(lines, "not worked on to an end", f"{unit}  {facts['waiting'].get(unit, '')}".rstrip())
    for unit in facts["cancelled"]:
        _section(lines, "cancelled by a person", f"{unit}  → overnight retry {unit}, to bring it back")
    for unit in facts["waived"]:
        _section(lines, "waived by a person, not merged", unit)
    lines.append(_not_verified(facts))
    if facts["branch"]:
        lines.append(f"next: git merge {facts['branch']}")
    return "\n".join(lines)


def _headline(facts: dict[str, Any]) -> str:
    verifies = _verifies(facts["tip_verifies"])
    tip = f"tip {facts['tip'][:8]}" + (f": {verifies}" if verifies else "") if facts["tip"] else "nothing merged"
    spent = dollars(facts["spent"], is_partly_unknown=bool(facts["unpriced"]))
    parts = [f"{len(facts['passed'])} passed and merged", tip, spent]
    if facts["ended"] is not None and facts["ended"]["reason"] != "done":
        parts.append(f"ended: {facts['ended']['reason']}, {one_line(facts['ended']['detail'])}")
    return " · ".join(parts)


def _verifies(ran: Sequence[dict[str, Any]]) -> str:
    """Name each verify of the tip, or count them where that would be a long line; those that failed are named."""
    failed = [one for one in ran if not one["passed"]]
    if len(ran) <= _MOST_NAMED:
        return "   ".join(f"{one['command']} {'✔' if one['passed'] else '✘'}" for one in ran)
    return "   ".join(
        [f"{len(ran) - len(failed)} of {len(ran)} verifies ✔", *(f"{one['command']} ✘" for one in failed)]
    )


def _section(lines: list[str], heading: str, line: str) -> None:
    """Put a line under its heading; sections come in the order in which they begin."""
    if heading not in lines:
        lines.append(heading)
    lines.append(f"  {line}")


def _not_verified(facts: dict[str, Any]) -> str:
    """Say what nobody checked: a tip without its last verifies is not hidden behind its units' own."""
    missing: Sequence[str] = []
    if facts["tip"] and not facts["tip_verifies"]:
        missing = ["the tip as a whole (the run ended before its last verify)"]
    if facts["waived"]:
        missing = [*missing, *facts["waived"]]
    return f"not verified: {', '.join(missing) or 'nothing'}"


def summary(here: Material, outcome: Outcome, waiting: Mapping[str, str] | None = None) -> str:
    """Return the last lines of a run: how it ended, then the report."""
    return f"{outcome.reason}: {outcome.detail}\n{as_text(as_facts(here, waiting))}"
