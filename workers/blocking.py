"""Blocking work beside the event loop, always waited for: nothing of a unit goes on once its task has ended."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from worktrees.to_the_end import to_the_end

__all__ = ["blocking"]

P = ParamSpec("P")
T = TypeVar("T")


async def blocking(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a thread and return its result; whoever is cancelled meanwhile hears of it when it has ended."""
    return await to_the_end(asyncio.to_thread(work, *args, **kwargs))
