"""Steering: what people say to a run as a whole, whatever its units are. Pure."""

from collections.abc import Iterable

from dispatcher import dropbox
from dispatcher.ledger import Ledger

__all__ = ["NEED_NO_STATE", "PAUSED", "is_paused"]

NEED_NO_STATE = (dropbox.Stop, dropbox.Pause, dropbox.Resume)
"""What concerns no unit: it is obeyed also while nobody can read which units there are."""

PAUSED = "nothing is handed out until `overnight resume`"
"""What a pause means, wherever it is shown."""


def is_paused(ledger: Ledger, dropped: Iterable[dropbox.Request]) -> bool:
    """Tell whether nothing is handed out once what lies in the drop-box (oldest first) is obeyed, too."""
    said = [one for one in dropped if isinstance(one, dropbox.Pause | dropbox.Resume)]
    return isinstance(said[-1], dropbox.Pause) if said else ledger.paused
