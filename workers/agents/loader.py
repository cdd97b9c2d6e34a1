"""Where a turn's bundle comes from: the agent's file, skills and project memory, joined with the order.

The files are those of the repository's checkout, never of the unit's own worktree: no unit writes its own orders.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from workers import policy, prompt
from workers.blocking import blocking
from workers.errors import BundleFileError
from workers.model.catalog import price_of
from workers.orders import AgentOrder, Price, Rule, UnitOrder
from workers.session import events as ev
from workers.session.session import Session
from workers.tools import Tool, built_in
from worktrees.repository import Repository

from .agent_file import AgentFile, load_agent
from .bundle import Bundle
from .memory import project_memory
from .rules import joined
from .skills import Skills, load_skills

__all__ = ["ALWAYS", "Agents", "Learn", "bundle_of", "learn_nothing", "on_model"]

ALWAYS = ("update_tasks", "ask")
"""Tools that an agent keeps whose file cannot be read: all others are optional (spec A24)."""

_MOST_PROBLEMS = 5  # they go out with every call; `overnight agents` shows all

Learn = Callable[[AgentOrder], Awaitable[None]]


async def learn_nothing(_agent: AgentOrder) -> None:
    """Learn nothing of models: the table's word is good enough."""


class Agents:
    """Loads the bundle of one unit's agent. `learn` asks the endpoint what a bundle's own model takes."""

    def __init__(self, order: UnitOrder, repository: Repository, learn: Learn = learn_nothing) -> None:
        self._order = order
        self._repository = repository
        self._root = Path(order.repository)
        self._learn = learn

    async def fresh(self) -> Bundle:
        """Return the bundle as its files are now. Raises WorktreesError when the base cannot be read."""
        bundle = await blocking(self._load)
        if bundle.agent.model != self._order.agent.model:
            await self._learn(bundle.agent)
        return bundle

    def logged(self, session: Session) -> Bundle:
        """Return the bundle that the session's log says is in force: its words and tools, under the night's policy."""
        found = session.last(ev.AgentLoaded)
        start = session.events[0]
        name, model, effort = (start.agent, start.model, start.effort) if found is None else _named(found)
        rules, problem = ((), "") if found is None else (found.rules, found.problem)
        agent = on_model(self._order.agent, model)
        price = self._price_in_force(session, model)
        policy = joined(self._order.agent.policy, rules)
        agent = agent.model_copy(update={"name": name, "effort": effort, "policy": policy, "price": price})
        known = built_in(_Shelf(self._root, name))
        names = [tool["name"] for tool in session.surface.tools]
        tools = {name: known[name] for name in names if name in known}
        return Bundle(agent, session.surface.system, tools, problem, rules)

    def unpriced(self, session: Session) -> str:
        """Return the model of a session whose price nobody knows though money is limited; "" where there is none."""
        agent = self.logged(session).agent
        return agent.model if self._order.budget is not None and price_of(agent) is None else ""

    def _price_in_force(self, session: Session, model: str) -> Price | None:
        """Return what the model of the session's last turn costs: a person's newest word on it, else the turn's own."""
        order, turn = self._order.agent, session.last(ev.TurnStart)
        newest = order.price if model == order.model else None
        return newest or (None if turn is None else turn.price) or on_model(order, model).price

    def invoked(self, goal: str) -> list[tuple[str, str]]:
        """Return names and instructions of the skills that a goal calls for as `/slug` (spec A25). Blocks."""
        return [(skill.name, skill.instructions) for skill in load_skills(self._root).invoked(goal)]

    def _load(self) -> Bundle:
        memory = project_memory(self._repository, self._order.base)
        order = self._order
        try:
            agent = load_agent(self._root, order.agent.name)
            _refuse_unpriced(order, agent)
        except BundleFileError as error:
            problem = "; ".join(str(one) for one in error.problems[:_MOST_PROBLEMS])
            return bundle_of(order.agent, AgentFile(order.agent.name, None), Skills({}, {}), memory, problem)
        return bundle_of(order.agent, agent, load_skills(self._root), memory)


class _Shelf:
    """An agent's skills as they are when it asks: for a turn that goes on after its worker has gone."""

    def __init__(self, root: Path, agent: str) -> None:
        self._root = root
        self._agent = agent

    def instructions(self, name: str) -> str:
        """Return a skill's instructions. Raises ToolError."""
        return self._now().instructions(name)

    def file(self, name: str, path: str) -> str:
        """Return a skill's file. Raises ToolError."""
        return self._now().file(name, path)

    def _now(self) -> Skills:
        try:
            return load_skills(self._root).limited(load_agent(self._root, self._agent).skills)
        except BundleFileError:
            return Skills({}, {})


def bundle_of(order: AgentOrder, agent: AgentFile, skills: Skills, memory: str, problem: str = "") -> Bundle:
    """Return the bundle that an order, an agent and the skills make; with a problem it has no optional tool. Pure."""
    rules = joined(order.policy, agent.rules)
    shelf = skills.limited(agent.skills)
    tools = _offered(agent, rules, shelf, is_broken=bool(problem))
    listed = [(skill.name, skill.description) for skill in shelf.listed()] if "skill" in tools else []
    system = prompt.system(tools.keys(), memory=memory, skills=listed, instructions=agent.instructions, problem=problem)
    effort = order.effort if order.effort_from == "unit" else agent.effort or order.effort
    made = on_model(order, agent.model or order.model)
    made = made.model_copy(update={"name": agent.name, "effort": effort, "policy": rules})
    return Bundle(made, system, tools, problem, agent.rules)


def _offered(agent: AgentFile, rules: tuple[Rule, ...], shelf: Skills, *, is_broken: bool) -> dict[str, Tool]:
    """Return the tools that the agent names and no policy denies altogether (spec A24)."""
    known = built_in(shelf)
    named = frozenset(ALWAYS) if is_broken else frozenset(known) if agent.tools is None else agent.tools
    names = [name for name in known if name in named and (name != "skill" or shelf.listed())]
    return {name: known[name] for name in policy.offered(rules, names)}


def on_model(order: AgentOrder, model: str) -> AgentOrder:
    """Return an order for another model of the same endpoint: what people said of the config's does not hold for it."""
    if model == order.model:
        return order
    told = {"price": None, "max_output_tokens": None, "window": None, "thinking": None}
    price = order.background_price if model == order.background else None
    return order.model_copy(update={**told, "model": model, "price": price})


def _refuse_unpriced(order: UnitOrder, agent: AgentFile) -> None:
    """Refuse a model whose price nobody knows where money is limited. Raises BundleFileError."""
    if agent.model is None or order.budget is None:
        return
    if price_of(on_model(order.agent, agent.model)) is None:
        raise agent.fault(f"the price of {agent.model!r} is unknown, so the money limits would mean nothing", "model")


def _named(event: ev.AgentLoaded) -> tuple[str, str, str]:
    return event.name, event.model, event.effort
