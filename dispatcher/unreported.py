"""What attempts have spent and nobody reported, since a worker or its dispatcher was killed: their logs say it."""

from collections.abc import Iterable
from decimal import Decimal

from dispatcher.home import Home
from dispatcher.journal import Spent
from dispatcher.ledger import Ledger
from workers.errors import LogError
from workers.session.costs import spent
from workers.session.session import read_session

__all__ = ["unreported"]


def unreported(home: Home, ledger: Ledger, units: Iterable[str]) -> list[Spent]:
    """Return what is to be booked of the units' newest attempts, as far as their logs lie on this host.

    What cannot be read stays as it is: the log is damaged, or a price was unknown.
    """
    found = []
    for unit in units:
        facts = ledger.unit(unit)
        try:
            cost = spent(read_session(home.session(ledger.night, unit, facts.attempt)))
        except LogError:
            continue
        if cost is not None and cost > facts.costs.get(facts.attempt, Decimal(0)):
            found.append(Spent(unit=unit, attempt=facts.attempt, cost=cost))
    return found
