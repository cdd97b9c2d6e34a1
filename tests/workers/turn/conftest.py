"""Loops that are closed when a test ends."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from loop_stand import START, FakeGate, LoopStand

from workers.model.client import ModelClient
from workers.orders import AgentOrder
from workers.session.session import Session

Stand = Callable[..., Awaitable[LoopStand]]


@pytest.fixture
async def stand(rehearse: Any, tmp_path: Path) -> AsyncIterator[Stand]:
    """Make a loop's stand that plays these steps: `await stand(step, step, …)`."""
    async with AsyncExitStack() as opened:

        async def make(
            *steps: dict[str, Any],
            model: str = "claude-sonnet-5-5",
            script: dict[str, Any] | None = None,
            **agent_options: Any,
        ) -> LoopStand:
            server = rehearse({"units": {"a": {"steps": list(steps)}}, **(script or {})})
            agent = AgentOrder(model=model, base_url=server.url, **agent_options)
            client = ModelClient(agent)
            opened.push_async_callback(client.close)
            session = Session.open(tmp_path / "session.jsonl")
            opened.callback(session.close)
            session.append(START)
            tree = tmp_path / "tree"
            tree.mkdir()
            return LoopStand(server, client, session, FakeGate(session.path), tree, agent)

        yield make
