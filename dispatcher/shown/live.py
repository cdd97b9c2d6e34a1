"""What those at work say of themselves just now, looked at from outside the run: their leases' progress.

For showing alone; nobody decides by it. No Redis, no word.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import redis

from dispatcher.context import Context
from workers.lease import LeaseTable

__all__ = ["progress_here", "waiting_for_the_model"]

_SECONDS = 2.0


def progress_here(here: Context, units: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Return what the leases of these units say (turn, step, tool, cost, waiting), of those that have one."""
    broker = here.config.engine.broker
    if not units or (broker is None and not here.home.socket.exists()):
        return {}
    url = (broker or f"unix://{here.home.socket}").replace("redis+socket://", "unix://", 1)
    try:
        # Not the workers' own client: its module brings the SDK, which takes a second to load.
        with redis.Redis.from_url(url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS) as client:
            return {unit: record.progress for unit, record in LeaseTable(client, here.state.night).poll(units).items()}
    except redis.RedisError:
        return {}


def waiting_for_the_model(progress: Mapping[str, Any]) -> str:
    """Return what people read of a unit that waits for the model's limits; "" for one that does not."""
    seconds = progress.get("waiting")
    return f"waits for the model, {seconds:.0f} s more" if isinstance(seconds, int | float) else ""
