"""Preflight: what would fail for every unit is found before a model is asked anything, at the cost of no tokens.

Setup and every distinct verify run once on the base: a setup that fails, or a verify that cannot even start, is bad
input. A red verify is what one expects of work that has not been done.
"""

import asyncio
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dispatcher import dropbox
from dispatcher.agents import check_agents, faults_of
from dispatcher.config import CONFIG_PATH, Config
from dispatcher.engine import redis_executable
from dispatcher.errors import BadInput, ConfigError, EngineError, UnitFileError
from dispatcher.home import Home
from dispatcher.journal import Verified, read_journal
from dispatcher.ledger import Ledger
from dispatcher.opening import look
from dispatcher.orders import agent_of, distinct_verifies
from dispatcher.roster import Roster
from dispatcher.state import Bucket, State
from dispatcher.units import UNITS_PATH, UnitFile
from workers.agents.agent_file import AgentFile
from workers.errors import ModelError
from workers.model.catalog import price_of
from workers.model.client import ModelClient
from workers.tools.bash import describe
from workers.verify import CANNOT_START, headline, run_stage
from worktrees.process import Finished, syntax_fault
from worktrees.repository import Repository
from worktrees.worktree import Worktree, Worktrees

__all__ = [
    "Findings",
    "OnTheBase",
    "check_before_waiting",
    "check_model",
    "check_prices",
    "check_refs",
    "check_work",
    "check_written",
]

_TREE = "preflight"
_MOST_NAMED = 5  # units in a line
_NO_PRICE = (
    "the price of {name!r} is unknown, so the money limits would mean nothing; give `{field} = {{ input = …, "
    "output = … }}` in dollars per million tokens"
)
_KEY_FIELDS = {"anthropic": "ANTHROPIC_API_KEY", "bedrock": "model.provider", "vertex": "model.provider"}


@dataclass(frozen=True, slots=True)
class Findings:
    """What preflight saw: seconds of the setup (None: there is none), and each verify on the base.

    `green` are units whose verify passes before anybody has worked: that it passes afterwards will prove little.
    """

    setup_seconds: float | None
    verifies: tuple[Verified, ...]
    green: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """What people read of it; there is at least one verify."""
        setup = "" if self.setup_seconds is None else f"setup {self.setup_seconds:.0f} s ✔   "
        red = sum(not one.passed for one in self.verifies)
        expected = ", as work not done is" if red else ""
        said = f"{setup}verify {len(self.verifies)} run on {self.verifies[0].commit[:6]}: {red} red{expected}"
        if not self.green:
            return said
        names = ", ".join(self.green[:_MOST_NAMED])
        more = f" and {len(self.green) - _MOST_NAMED} more" if len(self.green) > _MOST_NAMED else ""
        return f"{said}; green already, so that a pass proves little: {names}{more}"


async def check_before_waiting(repository: Repository, home: Home, config: Config) -> None:
    """Check all that a run checks at its start and that changes nothing: nobody may be there when its time has come.

    The model is asked for also where there is nothing to do yet: somebody may write it down meanwhile. Raises
    BadInput, EngineError.
    """
    roster = Roster(repository.root, config)
    check_written(roster, repository)
    state = look(repository, home, config)
    journal = read_journal(home.journal(state.night)) if state.night else []
    ledger = Ledger().extend(entry for _, entry in journal)
    waiting = {one.unit for one in dropbox.peek(home.dropbox) if isinstance(one, dropbox.Cancel)}
    faults = [fault for unit, fault in roster.unworkable(state, ledger).items() if unit not in waiting]
    if faults:
        raise BadInput.all_of(faults)
    if config.engine.broker is None:
        redis_executable()
    await check_work(repository, roster, state, config)


def check_written(roster: Roster, repository: Repository) -> None:
    """Load the unit files, and look at the branches. Raises BadInput."""
    roster.load()
    check_refs(repository)


async def check_work(repository: Repository, roster: Roster, state: State, config: Config) -> None:
    """Check what working takes: the agents of whatever has not passed, prices, key and models.

    Raises BadInput, EngineError.
    """
    unfinished = [one for one in roster.units.values() if state.bucket_of(one.id) is not Bucket.passed]
    agents = check_agents(repository.root, unfinished, config)
    check_prices(config)
    await check_model(config, agents)


def check_refs(repository: Repository) -> None:
    """Raise BadInput when a branch stands in the way of ours."""
    found = repository.branch_collision("overnight")
    if found is not None:
        raise BadInput(
            f"a branch named {found!r} stands in the way of the branches overnight/…; rename it with "
            f"`git branch -m {shlex.quote(found)} <new name>`"
        )


def check_prices(config: Config) -> None:
    """Raise ConfigError when a money limit would mean nothing because a model's price is unknown."""
    agent = agent_of(config)
    for name, field in ((agent.model, "price"), (agent.background, "background_price")):
        if name is not None and price_of(agent, name) is None:
            message = _NO_PRICE.format(name=name, field=field)
            message += ", or run with `--price IN/OUT`" if field == "price" else ""
            raise ConfigError(message, path=CONFIG_PATH, field=f"model.{field}")


async def check_model(config: Config, agents: Iterable[AgentFile] = ()) -> None:
    """Ask the endpoint for each model by name: a refused key or an unknown model stops at once, no attempt spent.

    Those that `agents` name in their files are asked for, too. Raises BadInput; EngineError when the endpoint cannot be
    reached.
    """
    agent = agent_of(config)
    field = "model.name"
    wrong: AgentFile | None = None
    try:
        client = await asyncio.to_thread(ModelClient, agent)
        try:
            await client.describe(agent.model)
            if agent.background is not None:
                field = "model.background"
                await client.describe(agent.background)
            for wrong in (one for one in agents if one.model is not None):
                await client.describe(wrong.model or "")
        finally:
            await client.close()
    except ModelError as error:
        if error.kind in ("auth", "spend_limit"):
            message = f"the model's key was refused: {error}" if error.status else str(error)
            key = "model.key_command" if config.model.key_command is not None else _KEY_FIELDS[agent.provider]
            raise BadInput(message, field=key) from error
        if error.kind == "invalid" and wrong is not None:
            raise BadInput.all_of(list(faults_of(wrong.fault(str(error), "model")))) from error
        if error.kind == "invalid":
            raise ConfigError(str(error), path=CONFIG_PATH, field=field) from error
        raise EngineError(f"the model cannot be reached: {error}", component="model") from error


@dataclass(frozen=True)
class OnTheBase:
    """Setup and every distinct verify, run once on the base in one clean tree."""

    config: Config
    worktrees: Worktrees
    ledger: Ledger
    show: Callable[[str], None]

    async def run(self, units: Iterable[UnitFile], base: str) -> Findings:
        """Run what the journal does not know of yet.

        Raises ConfigError for a setup that fails, UnitFileError for verifies that cannot start.
        """
        tree = await asyncio.to_thread(self.worktrees.repository.tree, base)
        verifies = distinct_verifies(units, self.config)
        commands = {command: ids for command, ids in verifies.items() if not self._is_known(tree, command)}
        if not commands:
            return Findings(None, ())
        await asyncio.to_thread(_refuse_what_bash_cannot_read, commands)
        await asyncio.to_thread(self.worktrees.remove, _TREE)
        worktree = await asyncio.to_thread(self.worktrees.create, _TREE, base)
        try:
            setup_seconds = await self._setup(worktree)
            done = {command: await self._verify(command, worktree) for command in commands}
        finally:
            await asyncio.shield(asyncio.to_thread(self.worktrees.remove, _TREE))
        found = [self._entry(command, one, base, tree) for command, one in done.items()]
        _refuse_those_that_cannot_start(found, commands)
        green = (unit for one in found if one.passed for unit in commands[one.command])
        return Findings(setup_seconds, tuple(found), tuple(green))

    def _is_known(self, tree: str, command: str) -> bool:
        """Tell whether it ran on this tree already, behind the setup that is in force: another one may fail."""
        found = self.ledger.verified.get((tree, command))
        return found is not None and found.setup == (self.config.setup.run or "")

    async def _setup(self, worktree: Worktree) -> float | None:
        setup = self.config.setup
        if setup.run is None:
            return None
        self.show(f"setup: {setup.run}")
        done = await run_stage(setup.run, setup.timeout, worktree.path, _TREE)
        if not done.ok:
            output = describe(done, setup.timeout)
            message = f"setup failed on the base: {headline(output)}\n{output[-2000:]}"
            raise ConfigError(message, path=CONFIG_PATH, field="setup.run")
        return done.seconds

    async def _verify(self, command: str, worktree: Worktree) -> Finished:
        self.show(f"verify on the base: {command}")
        return await run_stage(command, self.config.verify.timeout, worktree.path, _TREE)

    def _entry(self, command: str, done: Finished, base: str, tree: str) -> Verified:
        return Verified(
            stage="base",
            tree=tree,
            commit=base,
            command=command,
            passed=done.ok,
            seconds=round(done.seconds, 3),
            exit_code=done.exit_code,
            output=describe(done, self.config.verify.timeout)[-4000:],
            setup=self.config.setup.run or "",
        )


def _refuse_what_bash_cannot_read(units: Mapping[str, list[str]]) -> None:
    """Raise UnitFileError for verifies with a syntax error: on the base they would look red, as work not done is."""
    faults = {command: syntax_fault(command) for command in units}
    problems = [
        UnitFileError(
            f"bash cannot read this verify, of the unit or of [verify] run in the config: {fault}",
            path=UNITS_PATH / f"{units[command][0]}.md",
            field="verify",
        )
        for command, fault in faults.items()
        if fault is not None
    ]
    if problems:
        raise UnitFileError.all_of(problems)


def _refuse_those_that_cannot_start(found: Iterable[Verified], units: Mapping[str, list[str]]) -> None:
    problems = [
        UnitFileError(
            f"verify cannot start on the base (exit {one.exit_code}): {headline(one.output)}",
            path=UNITS_PATH / f"{units[one.command][0]}.md",
            field="verify",
        )
        for one in found
        if one.exit_code in CANNOT_START
    ]
    if problems:
        raise UnitFileError.all_of(problems)
