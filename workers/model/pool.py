"""What one worker process has of the model: a client an endpoint and key, each behind the fleet's one door to it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from workers.errors import ModelError
from workers.orders import AgentOrder
from workers.session.surface import Request

from .assembly import Answer, Broken
from .catalog import Parameters, card_of, is_learned, learn
from .client import ModelClient
from .limiter import Limiter
from .patience import Patience, Waits

__all__ = ["Pool"]

_Key = tuple[str | None, ...]


class Pool:
    """The clients of one process, made when they are first needed, with what their endpoints say of models."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._opened: dict[_Key, tuple[ModelClient, Patience]] = {}
        self._opening = threading.Lock()

    async def call(
        self,
        agent: AgentOrder,
        model: str,
        request: Request,
        parameters: Parameters,
        *,
        waits: Waits | None = None,
        ready: Callable[[], Awaitable[None]] | None = None,
        on_broken: Callable[[Broken], None] | None = None,
    ) -> Answer:
        """Return the answer of the agent's endpoint, tried again as long as that makes sense. Raises ModelError.

        `on_broken` hears of every try that was begun to be answered in vain.
        """
        client, patience = await self._open(agent)
        heed = patience.door.heed
        return await patience.call(
            lambda: client.call(model, request, parameters, on_headroom=heed, on_broken=on_broken),
            waits=waits,
            ready=ready,
        )

    async def learn(self, agent: AgentOrder) -> None:
        """Ask the endpoint once a process what the agent's models take; what cannot be asked stays as the table has it.

        Whatever is wrong (key, name, connection) is left to the call that meets it.
        """
        for model in filter(None, (agent.model, agent.background)):
            if is_learned(agent, model):
                continue
            try:
                client, _ = await self._open(agent)
                found = await client.describe(model)
            except ModelError:
                continue
            learn(agent, model, found or card_of(agent, model))

    async def _open(self, agent: AgentOrder) -> tuple[ModelClient, Patience]:
        opened = self._opened.get(_key(agent))
        if opened is not None:
            return opened
        return await asyncio.to_thread(self._make, agent)  # off the loop: `key_command` takes its time

    def _make(self, agent: AgentOrder) -> tuple[ModelClient, Patience]:
        with self._opening:
            if _key(agent) not in self._opened:
                client = ModelClient(agent)
                self._opened[_key(agent)] = client, Patience(self._limiter.door(client.fingerprint))
            return self._opened[_key(agent)]


def _key(agent: AgentOrder) -> _Key:
    return agent.provider, agent.base_url, agent.key_command, agent.region, agent.project
