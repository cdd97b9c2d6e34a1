"""What an answer's headers say of how much may still be asked: nothing left means a pause, little left a slower pace.

Times are differences between two of the server's own moments (`…-reset` and `date`): no clock of ours is in them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

__all__ = ["Headroom", "read_headroom"]

_PREFIX = b"anthropic-ratelimit-"
_KINDS = ("requests", "tokens", "input-tokens", "output-tokens")
# Below this share of a limit calls are paced: from no gap at the share itself to a tenth of the time to the reset at 0.
_LOW = 0.1
_WIDEST_GAP = 0.1
# Until the reset, where the server does not say what time it has.
_UNTOLD_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Headroom:
    """`pause`: seconds in which nobody may ask. `gap`: seconds between two calls, for the next `seconds`."""

    pause: float = 0.0
    gap: float = 0.0
    seconds: float = 0.0


def read_headroom(headers: Iterable[tuple[bytes, bytes]]) -> Headroom | None:
    """Return what raw headers ask for; None when there is enough left of every limit, or no word of it."""
    said = {low: value for name, value in headers if (low := name.lower()).startswith((_PREFIX, b"date"))}
    tightest: Headroom | None = None
    for kind in _KINDS:
        found = _of_kind(said, kind.encode())
        if found is not None and (tightest is None or (found.pause, found.gap) > (tightest.pause, tightest.gap)):
            tightest = found
    return tightest


def _of_kind(said: dict[bytes, bytes], kind: bytes) -> Headroom | None:
    limit, remaining = _number(said, kind + b"-limit"), _number(said, kind + b"-remaining")
    if limit is None or remaining is None or limit <= 0 or remaining >= limit * _LOW:
        return None
    seconds = _until_reset(said, kind)
    if remaining <= 0:
        return Headroom(pause=seconds)
    return Headroom(gap=seconds * _WIDEST_GAP * (1 - remaining / (limit * _LOW)), seconds=seconds)


def _number(said: dict[bytes, bytes], name: bytes) -> float | None:
    try:
        return float(said[_PREFIX + name])
    except (KeyError, ValueError):
        return None


def _until_reset(said: dict[bytes, bytes], kind: bytes) -> float:
    try:
        reset = datetime.fromisoformat(said[_PREFIX + kind + b"-reset"].decode())
        now = parsedate_to_datetime(said[b"date"].decode())
        return max(0.0, (reset - now).total_seconds())
    except (KeyError, ValueError, TypeError, OverflowError):  # absent, no dates, or one of them without a zone
        return _UNTOLD_SECONDS
