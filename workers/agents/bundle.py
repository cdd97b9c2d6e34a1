"""A bundle: the configuration that a turn runs under, loaded when it starts and fixed for it (spec A1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from workers.orders import AgentOrder, Rule
from workers.session import events as ev
from workers.session.session import Session
from workers.tools import Tool

__all__ = ["Bundle", "Loader"]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Which model works how hard, what it is told, and which tools it is offered, in the order in which it sees them.

    `agent.policy` is the policy in force, `rules` the agent's own part of it. `problem` says why the agent's file could
    not be read.
    """

    agent: AgentOrder
    system: list[ev.Block]
    tools: Mapping[str, Tool]
    problem: str = ""
    rules: tuple[Rule, ...] = ()

    def head(self) -> ev.AgentLoaded:
        """Return the event that puts this bundle in force."""
        return ev.AgentLoaded(
            name=self.agent.name,
            model=self.agent.model,
            effort=self.agent.effort,
            system=self.system,
            tools=[tool.schema for tool in self.tools.values()],
            problem=self.problem,
            rules=self.rules,
        )

    def key(self) -> tuple[object, ...]:
        """Return what tells two bundles with the same words and tools apart."""
        return self.agent.name, self.agent.model, self.agent.effort, self.problem, self.rules


class Loader(Protocol):
    """Where bundles come from."""

    async def fresh(self) -> Bundle:
        """Return the bundle as its file is now: for a turn that starts."""
        ...

    def logged(self, session: Session) -> Bundle:
        """Return the bundle that a session's log says is in force: for a turn that goes on."""
        ...
