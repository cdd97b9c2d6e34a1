"""What is due: the moves that the journal holds and no state write has made yet. Pure."""

from collections.abc import Callable

from dispatcher import moves
from dispatcher.ledger import Ledger
from dispatcher.state import NOTE_LIMIT, State, one_line

__all__ = ["with_due"]


def with_due(state: State, ledger: Ledger, attempts: Callable[[str], int]) -> State:
    """Return the state with every move that is due; `attempts` says how many a unit has, 0: nobody knows."""
    for unit, due in ledger.due.items():
        if state.bucket_of(unit) is not None:
            failures = ledger.unit(unit).failures
            most = attempts(unit)
            count = f" ({failures} of {most})" if due.counted and most else ""
            note = one_line(due.note, NOTE_LIMIT - len(count)) + count
            state = moves.move(state, unit, due.bucket, due.cause, note, first=due.first)
    return state
