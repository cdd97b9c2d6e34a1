"""Blocking work beside the event loop, always waited for: nothing of a unit goes on once its task has ended."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

__all__ = ["blocking"]

P = ParamSpec("P")
T = TypeVar("T")


async def blocking(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a thread and return its result; whoever is cancelled meanwhile hears of it when it has ended."""
    future = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({future})
        future.exception()  # the cancellation is what the caller must hear of
        raise
