"""`overnight doctor`: what this machine has for a night, and what to do about what it has not."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import click
import redis

from dispatcher.context import Context
from dispatcher.engine import redis_executable
from dispatcher.errors import DispatcherError, EngineError
from dispatcher.orders import agent_of
from dispatcher.preflight import check_refs
from workers.host import connect
from workers.model.catalog import prices_as_of
from worktrees.containment import is_provable
from worktrees.errors import WorktreesError
from worktrees.repository import Repository

__all__ = ["command"]


@click.command("doctor")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Check git, the repository, Redis, process isolation, the key and the price. Exit 2 when something is missing."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("repository", _repository),
        ("config", _config),
        ("redis", _redis),
        ("processes", _processes),
        ("key", _key),
        ("price", _price),
    ]
    ctx.exit(0 if all([_check(name, look) for name, look in checks]) else 2)  # noqa: C419  # run all of them


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
    verify = here.config.verify.run or "none (each unit must name its own)"
    return f"verify: {verify}; home: {here.home.root}"


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
