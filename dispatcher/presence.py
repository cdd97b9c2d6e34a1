"""Whether somebody is at work on a unit right now, looked at from outside a run. For showing alone."""

from dispatcher.context import Context
from dispatcher.unattended.detached import is_held

__all__ = ["is_at_work"]


def is_at_work(here: Context, unit: str, attempt: int) -> bool:
    """Tell whether an attempt is being worked on. The journal alone does not know: a run may have been killed.

    Workers on a broker of their own go on without a run: they hold the session's lock. Those of another host are not
    seen then.
    """
    facts = here.ledger.units.get(unit)
    if facts is None or not facts.in_flight or facts.attempt != attempt:
        return False
    session = here.home.session(here.state.night, unit, attempt)
    return is_held(here.home.writer_lock) or is_held(session.with_suffix(".lock"))
