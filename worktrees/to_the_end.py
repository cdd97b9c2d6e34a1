"""To the end: work that is always waited for, however often the task that waits is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

__all__ = ["to_the_end"]

T = TypeVar("T")


async def to_the_end(work: Coroutine[None, None, T]) -> T:
    """Finish `work` although the task is cancelled meanwhile; its error is raised, else the cancellation passed on."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result
