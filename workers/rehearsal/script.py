"""What a rehearsal plays: for each unit and attempt a list of steps, read from YAML or built in Python.

A script is data only. Which step comes next is decided by the request (see `identity.py`), so a
server that is restarted goes on where the worker is; nothing here remembers anything.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from workers.rehearsal.errors import ScriptError
from workers.rehearsal.models import BUILT_IN_MODELS, Model

__all__ = [
    "Block",
    "Cue",
    "Fault",
    "ModelEntry",
    "RateLimit",
    "RedactedBlock",
    "Scene",
    "Script",
    "Step",
    "TextBlock",
    "ThinkingBlock",
    "ToolBlock",
    "UnitScript",
    "UsageOverride",
]

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TextBlock(_Frozen):
    """Text that people see."""

    text: Annotated[str, Field(min_length=1)]


class ThinkingBlock(_Frozen):
    """Thinking; the server signs it. Left out where the request or the model has thinking off."""

    thinking: str


class RedactedBlock(_Frozen):
    """A `redacted_thinking` block; the server fills in its opaque data."""

    redacted: Literal[True]


class ToolBlock(_Frozen):
    """A tool call: `input` as an object, or `raw`: the argument text exactly as it goes over the wire."""

    tool: Annotated[str, Field(min_length=1)]
    input: dict[str, Any] | None = None
    raw: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.input is not None and self.raw is not None:
            raise ValueError("give `input` or `raw`, not both")
        return self


_BLOCK_KEYS = ("text", "thinking", "tool", "redacted")


def _block_tag(value: object) -> str | None:
    """Name the kind of a block by the one key that only this kind has."""
    if isinstance(value, Mapping):
        return next((key for key in _BLOCK_KEYS if key in value), None)
    return next((key for key in _BLOCK_KEYS if hasattr(value, key)), None)


Block = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[ToolBlock, Tag("tool")]
    | Annotated[RedactedBlock, Tag("redacted")],
    Discriminator(
        _block_tag,
        custom_error_type="block_kind",
        custom_error_message="a block has one of the keys text, thinking, tool, redacted",
    ),
]

CutPoint = Literal["before_response", "after_start", "mid_block"]
_FAULT_KINDS = ("status", "cut", "error_event", "stall", "pings", "empty", "bad_json", "eof")


class Fault(_Frozen):
    """One thing that goes wrong `times` times at a step (counted per session and step); then the step plays.

    Exactly one of the kinds:
    `status` an HTTP error; `cut` the connection dies (`how`: rst or fin); `error_event` an SSE error after the start;
    `stall` seconds of silence, `pings` seconds of nothing but pings (the step plays on afterwards);
    `empty` 200 without a byte; `bad_json` a frame that is no JSON; `eof` a clean end without `message_stop`.
    """

    status: Annotated[int, Field(ge=400, le=599)] | None = None
    headers: dict[str, str] = {}
    type: str | None = None
    message: str | None = None
    code: str | None = None
    html: bool = False
    cut: CutPoint | None = None
    how: Literal["rst", "fin"] = "rst"
    error_event: str | None = None
    stall: Seconds | None = None
    pings: Seconds | None = None
    empty: Literal[True] | None = None
    bad_json: Literal[True] | None = None
    eof: Literal["after_start", "mid_block"] | None = None
    times: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind for kind in _FAULT_KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            found = ", ".join(kinds) or "none"
            raise ValueError(f"a fault has exactly one of {', '.join(_FAULT_KINDS)}; found {found}")
        return self

    @property
    def kind(self) -> str:
        """Which of the kinds this fault is."""
        return next(kind for kind in _FAULT_KINDS if getattr(self, kind) is not None)


class UsageOverride(_Frozen):
    """Token counts to report instead of the counted ones."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


class Step(_Frozen):
    """One answer of the model. Times are seconds; `chunk` is characters per delta."""

    blocks: tuple[Block, ...] = ()
    stop: str | None = "default"
    usage: UsageOverride = UsageOverride()
    latency: Seconds | None = None
    think_time: Seconds | None = None
    pace: Seconds | None = None
    chunk: Annotated[int, Field(ge=1)] = 64
    repeat: Annotated[int, Field(ge=1)] = 1
    fault: tuple[Fault, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _one_fault_or_many(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(value.get("fault"), Mapping | Fault):
            return {**value, "fault": [value["fault"]]}
        return value

    @property
    def stop_reason(self) -> str | None:
        """What `message_delta` says: `stop`, or by default `tool_use` where a tool is called, else `end_turn`."""
        if self.stop != "default":
            return self.stop
        return "tool_use" if any(isinstance(block, ToolBlock) for block in self.blocks) else "end_turn"

    def fault_for(self, played: int) -> Fault | None:
        """Return the fault to play when `played` faults were played at this step already; None: play the step."""
        for fault in self.fault:
            if played < fault.times:
                return fault
            played -= fault.times
        return None


SCRIPT_ENDED = Step(blocks=(TextBlock(text="(script ended)"),))


def step_at(steps: Iterable[Step], number: int) -> Step:
    """Return the step with that number (from 0), counting a repeated step as many; past the end, "(script ended)"."""
    for step in steps:
        if number < step.repeat:
            return step
        number -= step.repeat
    return SCRIPT_ENDED


class Cue(_Frozen):
    """Other answers for requests that look different: a summary, a judge, a context after compaction.

    `system`, `first` and `last` are regular expressions searched in the system prompt, the first and the last user
    message; all that are given must be found. `answer` is given whatever the step; `steps` go by the step number.
    """

    system: str | None = None
    first: str | None = None
    last: str | None = None
    model: str | None = None
    answer: Step | None = None
    steps: tuple[Step, ...] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.answer is None) == (self.steps is None):
            raise ValueError("a cue has either `answer` or `steps`")
        for name, pattern in self._patterns().items():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"`{name}` is no regular expression: {error}") from error
        if not self._patterns():
            raise ValueError("a cue needs at least one of system, first, last, model")
        return self

    def _patterns(self) -> dict[str, str]:
        named = {"system": self.system, "first": self.first, "last": self.last, "model": self.model}
        return {name: pattern for name, pattern in named.items() if pattern is not None}

    def matches(self, scene: "Scene") -> bool:
        """Say whether every expression that is given is found in its part of the request."""
        return all(re.search(pattern, getattr(scene, name)) for name, pattern in self._patterns().items())

    def step(self, number: int) -> Step:
        """Return what this cue answers at that step."""
        return self.answer or step_at(self.steps or (), number)


class UnitScript(_Frozen):
    """What one unit's worker is answered: `steps` for every attempt that `attempts` does not name."""

    steps: tuple[Step, ...] = ()
    attempts: dict[Annotated[int, Field(ge=1)], tuple[Step, ...]] = {}
    cues: tuple[Cue, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """The parts of a request that choose a step: who asks, at which step, and the texts that cues look at."""

    unit: str
    attempt: int
    step: int
    model: str = ""
    system: str = ""
    first: str = ""
    last: str = ""


class RateLimit(_Frozen):
    """A limit over all sessions: more than `requests` within `per` seconds is a 429 with `retry-after`."""

    requests: Annotated[int, Field(ge=1)]
    per: Annotated[float, Field(gt=0)] = 60.0


class ModelEntry(_Frozen):
    """A model of the script's own: like a built-in one, with other limits (tokens), thinking forms or efforts."""

    like: str = "claude-sonnet-5-5"
    max_input_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    thinking: tuple[Literal["adaptive", "between_tools", "disabled", "enabled"], ...] | None = None
    efforts: tuple[Literal["low", "medium", "high", "xhigh", "max"], ...] | None = None

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.like not in BUILT_IN_MODELS:
            raise ValueError(f"`like` must be one of {', '.join(BUILT_IN_MODELS)}")
        return self

    def model(self, name: str) -> Model:
        """Return the whole model under that name."""
        return BUILT_IN_MODELS[self.like].renamed(
            name,
            max_input_tokens=self.max_input_tokens,
            max_tokens=self.max_tokens,
            thinking=self.thinking,
            efforts=self.efforts,
        )


class Script(_Frozen):
    """A whole rehearsal. `latency`: seconds before the first byte; `think_time`: between start and first block."""

    units: dict[str, UnitScript] = {}
    default: tuple[Step, ...] | None = None
    cues: tuple[Cue, ...] = ()
    models: dict[str, ModelEntry] = {}
    latency: Seconds = 0.0
    think_time: Seconds = 0.0
    pace: Seconds = 0.0
    strict_prefix: bool = True
    rate_limit: RateLimit | None = None

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a YAML script. Raises ScriptError naming file and field."""
        path = Path(path)
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ScriptError(f"cannot be read: {error}", path=path) from error
        except yaml.YAMLError as error:
            raise ScriptError(f"is no YAML: {_yaml_problem(error)}", path=path, field=_yaml_place(error)) from error
        return cls.parse(data, path=path)

    @classmethod
    def parse(cls, data: object, *, path: Path | None = None) -> Self:
        """Build a script from plain data (dicts and lists). Raises ScriptError naming the first wrong field."""
        if not isinstance(data, Mapping):
            raise ScriptError("a script is a mapping with `units`, `default` or both", path=path)
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
            what = "there is no such key here" if first["type"] == "extra_forbidden" else first["msg"]
            raise ScriptError(f"{what}{more}", path=path, field=field) from error

    def is_aside(self, scene: Scene) -> bool:
        """Say whether the request asks something beside its session: the first cue that it meets has one answer."""
        unit = self.units.get(scene.unit)
        met = next((cue for cue in (*(unit.cues if unit else ()), *self.cues) if cue.matches(scene)), None)
        return met is not None and met.answer is not None

    def step_for(self, scene: Scene) -> Step | None:
        """Return the step to play; None when the script has no such unit and no default."""
        unit = self.units.get(scene.unit)
        for cue in (*(unit.cues if unit else ()), *self.cues):
            if cue.matches(scene):
                return cue.step(scene.step)
        if unit is not None:
            return step_at(unit.attempts.get(scene.attempt, unit.steps), scene.step)
        return None if self.default is None else step_at(self.default, scene.step)

    def model_table(self) -> dict[str, Model]:
        """Return every model that the rehearsal knows: the built-in ones and the script's own."""
        return BUILT_IN_MODELS | {name: entry.model(name) for name, entry in self.models.items()}


def _yaml_problem(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or error)


def _yaml_place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}" if mark is not None else ""
