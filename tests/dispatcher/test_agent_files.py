"""The agents that units name, looked at before anybody works, and what an order says of them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dispatcher import preflight
from dispatcher.agents import check_agents, names_of
from dispatcher.config import Config, parse
from dispatcher.errors import BadInput, ConfigError
from dispatcher.orders import agent_of
from dispatcher.units import UnitFile


def unit(name: str = "a", goal: str = "Do it.", **more: Any) -> UnitFile:
    return UnitFile(id=name, goal=goal, **more)


def write(root: Path, name: str, front: str = "") -> None:
    path = root / ".overnight/agents" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{front}\n---\nWork.\n")


def test_who_works_on_a_unit() -> None:
    """One agent an attempt, else the unit's own, else the config's, else the built-in one."""
    config = parse('[agent]\ndefault = "other"\n')
    assert names_of(unit(attempts=("coder", "reviewer")), config) == ("coder", "reviewer")
    assert names_of(unit(agent="reviewer"), config) == ("reviewer",)
    assert names_of(unit(), config) == ("other",)
    assert names_of(unit(), Config()) == ("coder",)


def test_an_order_says_who_works_and_whose_word_the_effort_is() -> None:
    """The config's default goes into the order; an effort of the unit's is marked as one."""
    config = parse('[agent]\ndefault = "other"\n[model]\neffort = "low"\n')
    plain, own = agent_of(config, unit()), agent_of(config, unit(effort="high"))
    assert (plain.name, plain.effort, plain.effort_from) == ("other", "low", "config")
    assert (own.name, own.effort, own.effort_from) == ("other", "high", "unit")


@pytest.mark.parametrize("name", ["", "../x", "a b", "-x"])
def test_a_default_that_cannot_be_a_name(name: str) -> None:
    """What could lead elsewhere is refused where it is written."""
    with pytest.raises(ConfigError, match=r"agent\.default"):
        parse(f'[agent]\ndefault = "{name}"\n')


def test_each_agent_once(tmp_path: Path) -> None:
    """Many units of one agent read one file."""
    write(tmp_path, "reviewer", "effort: low")
    units = [unit("a", agent="reviewer"), unit("b", attempts=("reviewer", "coder")), unit("c")]
    assert [agent.name for agent in check_agents(tmp_path, units, Config())] == ["reviewer", "coder"]


def test_all_faults_at_once(tmp_path: Path) -> None:
    """Nobody starts a night three times to hear of three faults."""
    write(tmp_path, "broken", "tools: [bsh]\nquux: x")
    write(tmp_path, "dear", "model: claude-nobody")
    units = [unit("a", agent="broken"), unit("b", attempts=("coder", "gone")), unit("c", agent="dear")]
    with pytest.raises(BadInput) as caught:
        check_agents(tmp_path, units, Config())
    assert [(str(fault.path), fault.line, fault.field) for fault in caught.value.problems] == [
        (".overnight/agents/broken.md", 3, "quux"),
        (".overnight/units/b.md", None, "attempts"),
        (".overnight/agents/dear.md", 2, "model"),
    ]


def test_the_background_models_price_serves_an_agent_on_it(tmp_path: Path) -> None:
    """A price that a person told of the background model is known for an agent that works on it."""
    write(tmp_path, "small", "model: claude-nobody")
    told = 'background = "claude-nobody"\nbackground_price = { input = 1, output = 2 }\n'
    (agent,) = check_agents(tmp_path, [unit(agent="small")], parse(f"[model]\n{told}"))
    assert agent.model == "claude-nobody"
    assert agent_of(parse(f"[model]\n{told}")).background_price.input == Decimal(1)  # type: ignore[union-attr]


async def test_a_model_that_the_endpoint_does_not_have(tmp_path: Path, rehearse: Any) -> None:
    """The agent's file and line are named, not the config's."""
    config = parse(f'[model]\nbase_url = "{rehearse({"units": {}}).url}"\n')
    write(tmp_path, "good", "model: claude-haiku-5-5")
    write(tmp_path, "bad", "model: claude-fable-5-1")
    await preflight.check_model(config, check_agents(tmp_path, [unit(agent="good"), unit("b")], config))
    with pytest.raises(BadInput, match=r"agents/bad\.md:2: model: the endpoint has no model 'claude-fable-5-1'"):
        await preflight.check_model(config, check_agents(tmp_path, [unit(agent="bad")], config))
