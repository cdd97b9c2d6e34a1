"""Forks: from where a unit may be taken up again in a new attempt (spec L11)."""

from pathlib import Path

from dispatcher import dropbox
from dispatcher.ledger import UnitFacts
from dispatcher.state import Bucket
from workers.errors import LogError
from workers.log import read

__all__ = ["refusal", "stored"]


def refusal(
    wanted: dropbox.Fork, bucket: Bucket | None, facts: UnitFacts, events: int, *, in_flight: bool
) -> str | None:
    """Return why a fork cannot be, None when it can. `events`: how many the attempt's session holds. Pure."""
    if bucket is Bucket.passed or facts.merged is not None or facts.waiting is not None:
        return "it has passed"
    if in_flight:
        return "it is being worked on"
    if wanted.attempt not in facts.bases:
        return f"there is no attempt {wanted.attempt}; there are {', '.join(map(str, facts.bases)) or 'none yet'}"
    if not events:
        return f"the session of attempt {wanted.attempt} cannot be read here"
    if wanted.keep > events:
        return f"attempt {wanted.attempt} has events 0 to {events - 1}; --at {wanted.keep} is beyond them"
    return None


def stored(session: Path) -> int:
    """Return how many events a session's log holds; 0 where it is missing or cannot be read."""
    try:
        return len(read(session).records)
    except LogError:
        return 0
