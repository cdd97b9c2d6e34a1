"""The dispatcher's count of silence: which hand-outs are lost (protocol rule 10). No clock: polls that went well."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from workers.lease import LeaseRecord

__all__ = ["Loss", "Watch"]

# An order that nobody takes may only be waiting behind others; sending it again costs nothing but a message. So many
# times K until it is recalled, and K more until it is given up.
_UNCLAIMED = 5


@dataclass(frozen=True, slots=True)
class Loss:
    """A hand-out that is given up. `claimed`: somebody had taken it.

    `recall`: not yet, but its record is to be closed, so that nobody takes it in the moment of giving it up.
    """

    unit: str
    claimed: bool
    recall: bool = False


@dataclass
class _Count:
    token: str
    beat: int
    polls: int = 0


@dataclass
class Watch:
    """`lost_after` is K: polls in a row without a beat."""

    lost_after: int
    run_id: str = ""
    recalled: set[tuple[str, str]] = field(
        default_factory=set
    )  # orders that nobody can take any more: no need to wait for it
    _counts: dict[str, _Count] = field(default_factory=dict)

    def new_redis(self, run_id: str) -> bool:
        """Take note of the Redis that was polled; True when it is another start of it, and counts begin anew."""
        is_new = run_id != self.run_id
        if is_new:
            self.run_id = run_id
            self._counts.clear()
        return is_new

    def recall(self, unit: str, token: str) -> None:
        """Take note that nobody can take an order any more; whoever took it just now has K polls to say so."""
        self.recalled.add((unit, token))
        self._counts.pop(unit, None)

    def observe(
        self, tokens: Mapping[str, str], records: Mapping[str, LeaseRecord], dead: Collection[str] = ()
    ) -> list[Loss]:
        """Count one healthy poll of the hand-outs in flight (unit → token) and return those that are lost.

        `dead` are holders whose process the engine has reaped: no need to count.
        """
        self._counts = {unit: count for unit, count in self._counts.items() if unit in tokens}
        return [loss for unit, token in tokens.items() if (loss := self._look(unit, token, records, dead)) is not None]

    def _look(self, unit: str, token: str, records: Mapping[str, LeaseRecord], dead: Collection[str]) -> Loss | None:
        record = records.get(unit)
        beat = record.beat if record is not None and record.token == token else -1
        if record is not None and record.token == token and record.holder in dead:
            return Loss(unit, claimed=True)
        count = self._counts.get(unit)
        if count is None or (count.token, count.beat) != (token, beat):
            self._counts[unit] = _Count(token, beat)
            return None
        count.polls += 1
        claimed = beat > 0
        recall = not claimed and (unit, token) not in self.recalled
        if count.polls < self.lost_after * (_UNCLAIMED if recall else 1):
            return None
        del self._counts[unit]
        if not recall:
            self.recalled.discard((unit, token))
        return Loss(unit, claimed, recall)
