"""A turn loop on a real session, talking to a rehearsal server through the real SDK, behind a gate of the tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from workers.agents.bundle import Bundle
from workers.log import read
from workers.model.client import Answer, ModelClient
from workers.orders import AgentOrder
from workers.rehearsal import RehearsalServer
from workers.session import events as ev
from workers.session.session import Session, load_events
from workers.tools import Workspace, built_in
from workers.turn.hooks import Hook
from workers.turn.loop import Progress, TurnLoop
from worktrees.process import base_environment

START = ev.SessionStart(
    night="n",
    unit="a",
    attempt=1,
    base="b",
    digest="d",
    model="claude-sonnet-5-5",
    system=[{"type": "text", "text": "You work."}],
    tools=[tool.schema for tool in built_in().values()],
)
GOAL = ev.UserMessage(source="goal", content=[{"type": "text", "text": "unit: a\nattempt: 1\n\nDo it."}])


@dataclass
class FakeGate:
    """Lets everything pass and keeps what it saw; `stop` is raised before the step with that number (from 1)."""

    path: Path
    stop: dict[int, Exception] = field(default_factory=dict)
    refuse_effects: Exception | None = None
    shown: list[Progress] = field(default_factory=list)
    costs_before_steps: list[Decimal | None] = field(default_factory=list)
    durable_at_effects: list[list[str]] = field(default_factory=list)
    steps: int = 0

    async def before_step(self) -> None:
        self.steps += 1
        self.costs_before_steps.append(self.shown[-1].cost if self.shown else None)
        if self.steps in self.stop:
            raise self.stop[self.steps]

    async def before_effect(self) -> None:
        self.durable_at_effects.append([record.type for record in read(self.path).records])
        if self.refuse_effects is not None:
            raise self.refuse_effects

    def progress(self, state: Progress) -> None:
        self.shown.append(state)


@dataclass
class FixedAgents:
    """Always the same bundle: the tests' agent with every built-in tool."""

    agent: AgentOrder

    async def fresh(self) -> Bundle:
        return Bundle(self.agent, START.system, built_in())

    def logged(self, _session: Session) -> Bundle:
        return Bundle(self.agent, START.system, built_in())


@dataclass
class LoopStand:
    """All that one session's loop needs."""

    server: RehearsalServer
    client: ModelClient
    session: Session
    gate: FakeGate
    tree: Path
    agent: AgentOrder
    hooks: Sequence[Hook] = ()

    def loop(self) -> TurnLoop:
        """A loop that takes the session up, as a new process would."""
        return TurnLoop(
            self.session,
            agents=FixedAgents(self.agent),
            call=self._call,
            workspace=Workspace(self.tree, base_environment(), f"test-{self.tree}"),
            gate=self.gate,
            hooks=self.hooks,
        )

    async def _call(self, model: str, request: Any, asked: Any, _ready: Any, on_broken: Any) -> Answer:
        return await self.client.call(model, request, asked, on_broken=on_broken)

    def durable(self) -> list[Any]:
        """The events that are on disk."""
        return load_events(self.session.path, read(self.session.path).records)

    def kinds(self) -> list[str]:
        """Types of the events on disk after the session's start."""
        return [event.type for event in self.durable()][1:]

    def results(self) -> list[ev.ToolResult]:
        """The tool results on disk."""
        return [event for event in self.durable() if isinstance(event, ev.ToolResult)]

    def asked(self, number: int) -> list[dict[str, Any]]:
        """The messages of a request, from 0."""
        body = self.server.requests[number].body
        assert body is not None
        return body["messages"]
