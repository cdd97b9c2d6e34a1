"""The agents that units name, looked at before anybody works: what is wrong with their files is bad input (spec A1)."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from dispatcher.config import CONFIG_PATH, Config
from dispatcher.errors import BadInput, ConfigError, UnitFileError
from dispatcher.orders import agent_of
from dispatcher.units import UNITS_PATH, UnitFile
from workers.agents.agent_file import AgentFile, load_agent, path_of
from workers.agents.loader import on_model
from workers.agents.skills import Skills, load_skills
from workers.errors import BundleFileError
from workers.model.catalog import price_of

__all__ = ["check_agents", "faults_of", "names_of"]


def names_of(unit: UnitFile, config: Config) -> tuple[str, ...]:
    """Return the agents that may work on a unit: one an attempt, its own, or the config's."""
    return unit.attempts or (unit.agent or config.agent.default,)


def check_agents(root: Path, units: Iterable[UnitFile], config: Config) -> list[AgentFile]:
    """Return the agents that may work on `units`, each once. Raises BadInput naming every fault: file, line, field."""
    units = list(units)
    skills = load_skills(root)
    named: dict[str, UnitFile] = {}
    for unit in units:
        for name in names_of(unit, config):
            named.setdefault(name, unit)
    found: list[AgentFile] = []
    faults: list[BadInput] = []
    for name, unit in named.items():
        try:
            found.append(agent := load_agent(root, name))
        except BundleFileError as error:
            is_missing = isinstance(error.__cause__, FileNotFoundError)
            faults += [_missing(unit, name, error)] if is_missing else faults_of(error)
        else:
            faults += [*_unknown_skills(agent, skills), *_unpriced(agent, config)]
    faults += [fault for unit in units for fault in _broken_skills(unit, skills)]
    if faults:
        raise BadInput.all_of(list({str(fault): fault for fault in faults}.values()))
    return found


def faults_of(error: BundleFileError) -> Iterator[BadInput]:
    """Yield what is wrong with a file as the dispatcher says such things."""
    for one in error.problems:
        yield BadInput(one.message, path=one.path, line=one.line, field=one.field)


def _missing(unit: UnitFile, name: str, error: BundleFileError) -> BadInput:
    """Return the fault of whoever names an agent that is not there."""
    hint = error.message.partition("; ")[2]
    message = f"there is no agent {name!r} ({path_of(name)}); {hint}"
    if not unit.attempts and unit.agent is None:
        return ConfigError(message, path=CONFIG_PATH, field="agent.default")
    return UnitFileError(message, path=UNITS_PATH / f"{unit.id}.md", field="attempts" if unit.attempts else "agent")


def _unknown_skills(agent: AgentFile, skills: Skills) -> Iterator[BadInput]:
    for slug in agent.skills or ():
        if slug in skills.problems:
            yield from faults_of(skills.problems[slug])
        elif slug not in skills.skills:
            there = ", ".join(skills.skills) or "none"
            yield from faults_of(agent.fault(f"there is no skill {slug!r}; there are: {there}", "skills"))


def _unpriced(agent: AgentFile, config: Config) -> Iterator[BadInput]:
    if agent.model is None or price_of(on_model(agent_of(config), agent.model)) is not None:
        return
    message = f"the price of {agent.model!r} is unknown, so the money limits would mean nothing; name another model"
    yield from faults_of(agent.fault(message, "model"))


def _broken_skills(unit: UnitFile, skills: Skills) -> Iterator[BadInput]:
    """Yield the faults of skills that a goal calls for as `/slug` and that cannot be loaded."""
    for slug in Skills.named(unit.goal):
        if slug in skills.problems:
            yield from faults_of(skills.problems[slug])
