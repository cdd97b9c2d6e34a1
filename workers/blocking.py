"""Blocking work beside the event loop, always waited for: nothing of a unit goes on once its task has ended."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["blocking"]

P = ParamSpec("P")
T = TypeVar("T")


async def blocking(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a thread and return its result; whoever is cancelled meanwhile hears of it when it has ended."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # the cancellation is what the caller must hear of
        raise cancelled
    return task.result()
