"""`.overnight/config.toml`: how nights run in this repository. Every key is optional; no key is guessed at.

A key never belongs in this file, so nothing here can print one: messages name keys, not their values.
"""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import time, timedelta
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from dispatcher.errors import ConfigError
from dispatcher.faults import worded
from workers.agents.agent_file import policy_rule
from workers.orders import Rule

__all__ = [
    "CONFIG_PATH",
    "DEFAULT_PROTECT",
    "AgentConfig",
    "Command",
    "Config",
    "ContextConfig",
    "Days",
    "Effort",
    "EngineConfig",
    "Glob",
    "KeepConfig",
    "LimitsConfig",
    "MergeConfig",
    "ModelConfig",
    "Money",
    "PolicyConfig",
    "Prices",
    "Provider",
    "Seconds",
    "SetupConfig",
    "VerifyConfig",
    "days",
    "load",
    "money",
    "parse",
    "rates",
    "seconds",
    "template",
]

CONFIG_PATH = Path(".overnight/config.toml")
"""Relative to the checkout."""

OURS = ".overnight/**"
"""Always protected: a unit must not rewrite the rules that it is judged by."""

DEFAULT_PROTECT = (
    "tests/**",
    "test/**",
    "**/conftest.py",
    "**/test_*.py",
    "**/*_test.py",
    "**/pytest.ini",
    "**/tox.ini",
    "**/sitecustomize.py",
    "**/usercustomize.py",
    OURS,
)
"""Paths that decide what a verify says, in the layouts that Python projects have."""

LONGEST = 7 * 24 * 3600.0
"""Seconds. No step of a night takes a week; more is a typing error."""


def money(value: object) -> Decimal:
    """Read an amount in dollars: "$5", "5", "2.50", 5 or 2.5. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError('an amount of money looks like "$5" or "2.50"')  # noqa: TRY004 - pydantic collects these
    text = str(value).strip().removeprefix("$").strip()
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ValueError('an amount of money looks like "$5" or "2.50", in dollars') from None
    if not amount.is_finite() or not 0 < amount <= 1_000_000:
        raise ValueError("an amount of money is more than 0 and at most 1000000 dollars")
    return amount


def seconds(value: object) -> float:
    """Read a duration: "90s", "15m", "1h30m", or a bare number of seconds. Raises ValueError."""
    amount = _seconds_of(value)
    if not math.isfinite(amount) or not 0 < amount <= LONGEST:
        raise ValueError("a duration is more than 0 and at most a week")
    return amount


def _seconds_of(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    number = r"([0-9]{1,9}(?:\.[0-9]{1,6})?)"
    found = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s)?", value) if isinstance(value, str) else None
    if found is None or not value:
        raise ValueError('a duration looks like "90s", "15m" or "1h30m"')
    hours, minutes, rest = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + rest


def rates(value: str) -> "Prices":
    """Read what `--price` says: "3/15", dollars per million tokens in and out. Raises ValueError."""
    found = re.fullmatch(r"\$?([0-9]{1,6}(?:\.[0-9]{1,6})?)/\$?([0-9]{1,6}(?:\.[0-9]{1,6})?)", value.strip())
    if found is None:
        raise ValueError('a price looks like "3/15": dollars per million tokens in and out')
    return Prices(input=Decimal(found[1]), output=Decimal(found[2]))


def days(value: object) -> timedelta:
    """Read a period for keeping: "30d", "8w" or 0. Raises ValueError."""
    found = re.fullmatch(r"([0-9]{1,5})([dw])", value) if isinstance(value, str) else None
    if found is not None:
        return timedelta(days=int(found[1]) * (7 if found[2] == "w" else 1))
    if value == 0 and not isinstance(value, bool):
        return timedelta(0)
    raise ValueError('a period looks like "30d" or "8w"')


def _clock(value: object) -> object:
    """Read "07:00"; TOML's own 07:00:00 is a time already."""
    if isinstance(value, str):
        found = re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", value.strip())
        if found is None:
            raise ValueError('a time of day looks like "07:00"')
        return time(int(found[1]), int(found[2]))
    if not isinstance(value, time):
        raise ValueError('a time of day looks like "07:00"')  # noqa: TRY004 - pydantic collects these
    return value


def _glob(value: str) -> str:
    if value.startswith("/") or ".." in value.split("/") or "\0" in value or "\\" in value:
        raise ValueError("a pattern is relative to the repository's top, with '/' between parts and no '..'")
    return value


def _command(value: str) -> str:
    if "\0" in value:
        raise ValueError("a command cannot contain a NUL character")
    return value


Money = Annotated[Decimal, BeforeValidator(money)]
"""Dollars, more than 0."""

Seconds = Annotated[float, BeforeValidator(seconds)]
"""Seconds, more than 0."""

Days = Annotated[timedelta, BeforeValidator(days)]
"""A period of whole days."""

Glob = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True), AfterValidator(_glob)]
"""A path pattern relative to the repository's top; `**` crosses folders."""

Command = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True), AfterValidator(_command)]
"""A shell command."""

Effort = Literal["off", "low", "medium", "high"]
"""How much a model thinks (spec A19)."""

Provider = Literal["anthropic", "bedrock", "vertex"]
"""Who serves the model: the vendor (or whatever speaks its API, by `base_url`), or one of the clouds."""

PolicyRule = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True), AfterValidator(policy_rule)]
"""A tool (`*` and `?` stand for anything), or a tool and a pattern: `bash: git push*`."""

Price = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]
Line = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class _Section(BaseModel):
    """A table of the file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Prices(_Section):
    """Dollars per million tokens, instead of the built-in prices of the model."""

    input: Price
    output: Price
    cache_read: Price | None = None
    cache_write_5m: Price | None = None
    cache_write_1h: Price | None = None


class ModelConfig(_Section):
    """Which model, where, and what opens the door.

    `background` is a cheaper model of the same endpoint, for summaries. `region` and `project` are for bedrock and
    vertex (else their own variables). `window` (tokens) and `thinking` override what the endpoint or the table says.
    """

    name: Line = "claude-sonnet-5-5"
    provider: Provider = "anthropic"
    base_url: Line | None = None
    key_command: Command | None = None
    region: Line | None = None
    project: Line | None = None
    price: Prices | None = None
    background: Line | None = None
    background_price: Prices | None = None
    window: Annotated[int, Field(ge=1000, strict=True)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, strict=True)] | None = None
    thinking: Literal["adaptive", "budget", "none"] | None = None
    effort: Effort = "medium"

    @field_validator("provider", mode="before")
    @classmethod
    def _known_provider(cls, provider: object) -> object:
        if provider not in get_args(Provider):
            raise ValueError('is "anthropic", "bedrock" or "vertex"; base_url reaches what speaks the same API')
        return provider

    @field_validator("base_url")
    @classmethod
    def _is_http(cls, url: str | None) -> str | None:
        if url is not None and (urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname):
            raise ValueError("looks like https://host or http://host:port")
        return url


class AgentConfig(_Section):
    """Who works on units that name no agent: the built-in `coder`, or a file of `.overnight/agents`."""

    default: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")] = "coder"


class SetupConfig(_Section):
    """What makes a fresh worktree ready; `timeout` in seconds."""

    run: Command | None = None
    timeout: Seconds = 900.0


class VerifyConfig(_Section):
    """The command that makes a unit pass, unless the unit names its own; `timeout` in seconds."""

    run: Command | None = None
    timeout: Seconds = 900.0
    protect: tuple[Glob, ...] = DEFAULT_PROTECT

    @field_validator("protect")
    @classmethod
    def _with_ours(cls, protect: tuple[str, ...]) -> tuple[str, ...]:
        return protect if OURS in protect else (*protect, OURS)


class MergeConfig(_Section):
    """What a merged tree must pass on top of the unit's own verify; `timeout` in seconds."""

    verify: Command | None = None
    timeout: Seconds = 1800.0


class StateConfig(_Section):
    """What becomes of the state file. `commit`: it goes onto the merged branch, with the archive (spec S13)."""

    commit: Annotated[bool, Field(strict=True)] = False


class LimitsConfig(_Section):
    """Where a night, a run, a unit and an attempt end. `minutes` and `rounds` are per attempt.

    `turns` are a unit's over all its attempts; `run_turns` and `night_turns` are everybody's together. `hours` are a
    run's. A unit that was ready in `stale_after` runs in a row and never handed out is raised to `blocked`; 0: never.
    """

    night: Money = Decimal(50)
    run: Money | None = None
    unit: Money = Decimal(5)
    attempts: Annotated[int, Field(ge=1, le=100, strict=True)] = 3
    rounds: Annotated[int, Field(ge=1, le=1000, strict=True)] = 5
    minutes: Annotated[float, Field(gt=0, le=10080, allow_inf_nan=False)] = 60.0
    turns: Annotated[int, Field(ge=1, strict=True)] | None = None
    run_turns: Annotated[int, Field(ge=1, strict=True)] | None = None
    night_turns: Annotated[int, Field(ge=1, strict=True)] | None = None
    hours: Annotated[float, Field(gt=0, le=168, allow_inf_nan=False)] | None = None
    until: Annotated[time, BeforeValidator(_clock)] | None = None
    stale_after: Annotated[int, Field(ge=0, le=1000, strict=True)] = 3
    slots: Annotated[int, Field(ge=1, le=512, strict=True)] = 4


class PolicyConfig(_Section):
    """What becomes of tool calls before they run (spec A4): `tool`, or `tool: pattern` for its command or path."""

    allow: tuple[PolicyRule, ...] = ()
    ask: tuple[PolicyRule, ...] = ()
    deny: tuple[PolicyRule, ...] = ()

    def rules(self) -> tuple[Rule, ...]:
        """Return the lists as an order carries them."""
        return (
            *(Rule(what=what, then="deny") for what in self.deny),
            *(Rule(what=what, then="ask") for what in self.ask),
            *(Rule(what=what, then="allow") for what in self.allow),
        )


class EngineConfig(_Section):
    """Redis, worker processes (None: about one a core), and the pace of the leases (protocol, rules 8-10).

    `beat` and `fence` in seconds, `lost_after` in beats.
    """

    broker: str | None = None
    processes: Annotated[int, Field(ge=1, le=64, strict=True)] | None = None
    beat: Seconds = 1.0
    lost_after: Annotated[int, Field(ge=3, le=10_000, strict=True)] = 10
    fence: Seconds = 5.0

    @field_validator("broker")
    @classmethod
    def _is_redis(cls, url: str | None) -> str | None:
        if url is None:
            return url
        parts = urlsplit(url)
        tcp = parts.scheme in {"redis", "rediss"} and parts.hostname
        if not tcp and not (parts.scheme == "redis+socket" and parts.path.startswith("/")):
            raise ValueError("looks like redis://host:6379/0, rediss://… or redis+socket:///path/to/socket")
        return url

    @model_validator(mode="after")
    def _fence_inside_loss(self) -> Self:
        loss = self.beat * self.lost_after
        if not 2 * self.beat <= self.fence <= loss / 2:
            wanted = f"between {2 * self.beat:g} (2 beats) and {loss / 2:g} (half of beat * lost_after) seconds"
            raise ValueError(f"fence must be {wanted}: a worker has to stop well before it is given up")
        return self


class ContextConfig(_Section):
    """When a session's history gives way to a summary: a share of the model's window, or tokens, if that is less."""

    compact_at: Annotated[float, Field(ge=0.1, le=0.95, allow_inf_nan=False)] = 0.85
    cap: Annotated[int, Field(ge=10_000, strict=True)] = 400_000


class KeepConfig(_Section):
    """How long finished nights are kept before `overnight prune` would delete what is left of them."""

    sessions: Days = timedelta(days=30)
    journals: Days = timedelta(days=180)

    @model_validator(mode="after")
    def _journals_outlive_sessions(self) -> Self:
        if self.journals < self.sessions:
            raise ValueError("journals must be kept at least as long as sessions: they say what the sessions are")
        return self


class Config(_Section):
    """The whole file. `base` is the branch that units start from; "" means what is checked out."""

    base: str = ""
    model: ModelConfig = ModelConfig()
    agent: AgentConfig = AgentConfig()
    setup: SetupConfig = SetupConfig()
    verify: VerifyConfig = VerifyConfig()
    merge: MergeConfig = MergeConfig()
    state: StateConfig = StateConfig()
    limits: LimitsConfig = LimitsConfig()
    policy: PolicyConfig = PolicyConfig()
    engine: EngineConfig = EngineConfig()
    context: ContextConfig = ContextConfig()
    keep: KeepConfig = KeepConfig()

    @field_validator("base")
    @classmethod
    def _is_a_revision(cls, base: str) -> str:
        if base != base.strip() or base.startswith("-") or re.search(r"[\s\0]", base):
            raise ValueError("is the name of a branch or commit: no spaces, no '-' at the start")
        return base


def load(root: Path) -> Config:
    """Read the config of the checkout at `root`; no file means the defaults. Raises ConfigError with all faults."""
    path = root / CONFIG_PATH
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=path) from error
    try:
        return parse(data.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8; save it as UTF-8", path=path, line=line) from None


def parse(text: str, path: Path | None = None) -> Config:
    """Read the text of a config file; `path` is only for messages. Raises ConfigError with all faults."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r" \(at line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        message = re.sub(r" \(at .*\)$", "", str(error))
        raise ConfigError(f"is not TOML: {message}", path=path, line=line) from None
    except RecursionError:
        raise ConfigError("is nested too deeply to be a config", path=path) from None
    try:
        return Config.model_validate(table)
    except ValidationError as error:
        problems = [_problem(fault, text, path) for fault in error.errors()]
        raise ConfigError.all_of(sorted(problems, key=lambda problem: problem.line or 0)) from None


def _problem(fault: Mapping[str, Any], text: str, path: Path | None) -> ConfigError:
    """Turn one of pydantic's faults into one of ours: the key, its line, what to do. Never the value."""
    keys = tuple(str(part) for part in fault["loc"])
    named = [key for key in keys if not key.isdigit()]
    message = _unknown(keys) if fault["type"] == "extra_forbidden" else worded(fault)
    return ConfigError(message, path=path, line=_line_of(text, named), field=".".join(keys) or None)


def _unknown(keys: tuple[str, ...]) -> str:
    *section, key = keys
    if re.fullmatch(r"(api_?)?(key|token|secret)", key, re.IGNORECASE):
        return "a key does not belong in this file; set ANTHROPIC_API_KEY, or key_command to what prints it"
    paths = list(_paths(Config))
    siblings = [path[-1] for path in paths if path[:-1] == tuple(section)]
    if near := get_close_matches(key, siblings, n=1):
        return f'unknown key; did you mean "{near[0]}"?'
    if elsewhere := [path for path in paths if path[-1] == key and len(path) > 1]:
        return f"unknown key here; it belongs in [{'.'.join(elsewhere[0][:-1])}]"
    return f"unknown key; known here: {', '.join(siblings)}"


def _paths(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key that the file may have, tables included."""
    for name, field in model.model_fields.items():
        yield (*above, name)
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _paths(part, (*above, name))


def _line_of(text: str, keys: Sequence[str]) -> int | None:
    """Find the line of the key, else of its table's heading; None for a layout that is too clever."""
    section: list[str] = []
    heading = None
    for number, line in enumerate(text.split("\n"), 1):
        if found := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            section = [part.strip(" \"'") for part in found[1].split(".")]
            heading = number if section == list(keys[: len(section)]) else heading
        elif found := re.match(r"\s*([^=#]+?)\s*=", line):
            path = section + [part.strip(" \"'") for part in found[1].split(".")]
            if path == list(keys[: len(path)]):
                return number
    return heading


def template() -> str:
    """Return the file that `overnight init` writes: every key, commented out, at its default.

    Keys without a default show an example and say so. As it stands it means the defaults.
    """
    protect = "".join(f'#   "{glob}",\n' for glob in DEFAULT_PROTECT)
    return _TEMPLATE.replace("<protect>\n", protect)


_TEMPLATE = """\
# How nights run in this repository. Every key is optional; a commented key shows its default,
# or an example where it says so. Durations: "90s", "15m", "1h30m". Money: "$5".

# base = ""                       # the branch that units start from; "" is what is checked out

[model]
# name = "claude-sonnet-5-5"
# provider = "anthropic"          # or bedrock, vertex: `pip install 'overnight[bedrock]'`, `overnight[vertex]`
# effort = "medium"               # off, low, medium, high; a unit or an agent may say otherwise
# base_url = "https://gateway.example.com"     # example: anything that speaks the same API
# key_command = "pass show anthropic"          # example: prints the key; else ANTHROPIC_API_KEY
# region = "us-east-1"                         # example: for bedrock and vertex; else AWS_REGION, CLOUD_ML_REGION
# project = "my-project"                       # example: for vertex; else ANTHROPIC_VERTEX_PROJECT_ID
# background = "claude-haiku-4-5"              # example: a cheaper model of the same endpoint, for summaries
# window = 200000                              # example: tokens, where the endpoint does not say so itself
# thinking = "adaptive"                        # example: adaptive, budget or none, where the endpoint does not say
# max_output_tokens = 32000                    # example: below what the model can do
# price = { input = 3.00, output = 15.00, cache_read = 0.30, cache_write_5m = 3.75 }   # example: $ per million tokens
# background_price = { input = 0.10, output = 0.50 }     # example

[agent]
# default = "coder"               # who works on units that name no agent: built in, or .overnight/agents/<name>.md

[setup]
# run = "uv sync --frozen"        # example: makes a fresh worktree ready
# timeout = "15m"

[verify]
# run = "uv run pytest -q"        # example: what makes a unit pass; a unit may name its own
# timeout = "15m"
# What a unit may not change: its changes there are taken back before the verify. .overnight/** always is.
# protect = [
<protect>
# ]

[merge]
# verify = "make ci"              # example: what each merged tree must pass too
# timeout = "30m"

[state]
# commit = false                  # true: state file and archive are committed on the merged branch

[limits]
# night = "$50"
# run = "$20"                     # example: of one `overnight run`
# unit = "$5"
# attempts = 3                    # fresh starts for a unit
# rounds = 5                      # verifies within an attempt
# minutes = 60                    # for an attempt
# turns = 12                      # example: of a unit, over all its attempts
# run_turns = 200                 # example: of all units in a run
# night_turns = 600               # example: of all units in a night
# stale_after = 3                 # runs in which a ready unit was never handed out, until you are asked; 0: never
# slots = 4                       # units at work at once; -j says otherwise
# hours = 8                       # example: of a run
# until = "07:00"                 # example: nothing is handed out after this time of day

[policy]                          # "tool", or "tool: pattern" for its command or path; tools: bash, edit, view …
# deny = []                       # never run, and not offered at all without a pattern; a deny always wins
# ask = []                        # wait for `overnight approve`, such as ["bash: git push*", "edit: infra/**"]
# allow = []                      # exceptions from a less particular ask: ask = ["bash"], allow = ["bash: make *"]

[engine]
# broker = "redis://localhost:6379/0"          # example: else a private Redis is started
# processes = 2                                # example: that share the slots, else about one a core, at most 8
# beat = "1s"                     # how often a worker says that it lives
# lost_after = 10                 # beats without a sign of life
# fence = "5s"                    # a worker without a confirmed beat for so long pauses

[context]                         # when a summary takes the place of a session's history
# compact_at = 0.85               # of the model's window …
# cap = 400000                    # … or this many tokens, if that is less: what is sent is paid for at every step

[keep]                            # for `overnight prune`; nothing is ever deleted without it
# sessions = "30d"                # after a night has ended
# journals = "180d"
"""
