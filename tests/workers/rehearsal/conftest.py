"""Servers and clients that are closed when a test ends."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import anthropic
import pytest
from rehearsal_stand import Raise, Stand, script

from workers.rehearsal import RehearsalServer, Script


@pytest.fixture
async def stand() -> AsyncIterator[Raise]:
    """Start servers: `await stand(script)` or `await stand(step, step, latency=...)`."""
    async with AsyncExitStack() as stack:

        async def start(*steps: Any, patience: float = 10, record_bodies: bool = True, **more: Any) -> Stand:
            played = steps[0] if steps and isinstance(steps[0], Script) else script(*steps, **more)
            server = RehearsalServer(played, record_bodies=record_bodies)
            await server.start()
            stack.push_async_callback(server.stop)
            client = anthropic.AsyncAnthropic(base_url=server.url, api_key="rehearsal", max_retries=0, timeout=patience)
            stack.push_async_callback(client.close)
            return Stand(server, client)

        yield start
