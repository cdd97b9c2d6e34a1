"""`overnight doctor`: what this machine has for a night, and what to do about what it has not."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import click
import redis

from dispatcher.agents import check_agents
from dispatcher.config import CONFIG_PATH
from dispatcher.context import Context
from dispatcher.engine import redis_executable
from dispatcher.errors import BadInput, ConfigError, DispatcherError, EngineError
from dispatcher.orders import agent_of, verify_of
from dispatcher.preflight import check_refs
from dispatcher.shown.counted import counted
from workers.host import connect
from workers.model.catalog import prices_as_of
from worktrees.containment import is_provable
from worktrees.errors import RepositoryError, WorktreesError
from worktrees.repository import Repository

__all__ = ["command"]


@click.command("doctor")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Check the repository, the config, agents, Redis, process isolation, the key and the price.

    Exit 2 when something is missing. The key is not tried out: a run does that, before it hands anything out.
    """
    is_well = _check("processes", _processes)
    if _check("repository", _repository) and _check("config", _config):
        checks = [("units", _units), ("redis", _redis), ("key", _key), ("price", _price)]
        is_well &= all([_check(name, look) for name, look in checks])  # noqa: C419  # run all of them
    else:
        is_well = False
        click.echo("  the rest can be looked at once this is put right")
    ctx.exit(0 if is_well else 2)


def _check(name: str, look: Callable[[], str]) -> bool:
    try:
        click.echo(f"✔ {name:<11} {look()}")
    except (DispatcherError, WorktreesError) as error:
        click.echo(f"✘ {name:<11} {error}")
        return False
    return True


def _repository() -> str:
    repository = Repository.discover(Path.cwd())
    check_refs(repository)
    return str(repository.root)


def _config() -> str:
    here = Context.here()
    try:
        here.repository.resolve(here.config.base or "HEAD")
    except RepositoryError as error:
        raise ConfigError(f"is no commit here: {error}", path=CONFIG_PATH, field="base") from error
    verify = here.config.verify.run or "none (each unit must name its own)"
    return f"verify: {verify}; home: {here.home.root}"


def _units() -> str:
    """Say how many units there are, once each can be read, has a verify, and has agents that can be loaded."""
    here = Context.here()
    for unit in here.units.values():
        verify_of(unit, here.config)
    if wrong := list(here.unworkable().values()):
        raise BadInput.all_of(wrong)
    agents = check_agents(here.repository.root, here.units.values(), here.config)
    if not here.units:
        return "none yet; `overnight add` writes one down"
    return f"{counted(len(here.units), 'unit file')}; agents: {', '.join(agent.name for agent in agents)}"


def _redis() -> str:
    broker = Context.here().config.engine.broker
    if broker is None:
        return " — ".join(reversed(redis_executable()))
    try:
        connect(broker).ping()
    except redis.RedisError as error:
        raise EngineError(f"the broker does not answer: {error}", component="redis") from error
    return "the broker answers"


def _processes() -> str:
    if shutil.which("setpriv") is None:
        raise DispatcherError("`setpriv` is missing; install util-linux")
    if is_provable():
        return "PID namespaces: whatever a unit starts is dead when its command returns"
    return "no PID namespaces here: process groups and tags are used; after a lost worker its tree is made anew"


def _key() -> str:
    here = Context.here()
    if here.config.model.key_command is not None:
        return "from key_command"
    if here.config.model.provider != "anthropic":
        return f"whatever {here.config.model.provider} finds in the environment; a run tells"
    if os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN"):
        return "from the environment"
    raise DispatcherError("no key: set ANTHROPIC_API_KEY, or key_command under [model]")


def _price() -> str:
    agent = agent_of(Context.here().config)
    if agent.price is None:
        raise DispatcherError(f"the price of {agent.model} is unknown; give [model] price")
    return (
        f"{agent.model}: ${agent.price.input} in, ${agent.price.output} out per million tokens (as of {prices_as_of()})"
    )
