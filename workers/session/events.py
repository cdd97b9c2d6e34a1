"""The typed events of a session. The turn loop is their only writer; old logs must always load.

Every event says who writes it and when. Blocks (`Block`) are the Messages API's own JSON, kept exactly as it came.

A log outlives the version that wrote it. Whoever adds an event type after version 1 marks it `required` when a reader
that skips it would send another request, repair otherwise or go on at another point: its lines then carry
`"required": true`, and a version that does not know the type refuses them. Types without it load as `Unknown`.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from workers.orders import Price, Rule

__all__ = [
    "AgentLoaded",
    "AssistantMessage",
    "Block",
    "CallBroken",
    "Checkpoint",
    "Claim",
    "Compaction",
    "Event",
    "ImagesDropped",
    "Pause",
    "Report",
    "Resume",
    "SessionFork",
    "SessionStart",
    "SetupResult",
    "StepEnd",
    "StepStart",
    "TasksWritten",
    "ThinkingSummary",
    "ToolCall",
    "ToolResult",
    "Torn",
    "TurnEnd",
    "TurnStart",
    "Unknown",
    "Usage",
    "UserMessage",
    "VerifyResult",
    "WrittenByNewer",
    "load",
]

Block = dict[str, Any]


class WrittenByNewer(ValueError):
    """A newer version wrote this, and a reader that skips it would go wrong."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    type: ClassVar[str]
    required: ClassVar[bool] = False

    def data(self) -> dict[str, Any]:
        """Return the event's JSON without its type, with the marker where older versions must not skip it."""
        fields = self.model_dump(mode="json", exclude={"kind"})
        return {**fields, "required": True} if self.required else fields

    def stored(self) -> tuple[str, dict[str, Any]]:
        """Return the type and the data under which a log holds the event: a stranger's are those it came with."""
        return self.type, self.data()


class Usage(BaseModel):
    """Tokens of one call. The input of a call is the sum of the three input counts (facts of the Messages API)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_1h_input_tokens: int = 0  # of those created: written for an hour, which costs more


class SessionStart(_Event):
    """First event of every session, by the attempt: all that the surface's head is derived from."""

    type: ClassVar[str] = "session/start"
    kind: Literal["session/start"] = "session/start"
    version: Literal[1] = 1
    night: str
    unit: str
    attempt: int
    base: str
    digest: str
    agent: str = "coder"
    model: str
    effort: str = "medium"
    system: list[Block]
    tools: list[Block]


class Claim(_Event):
    """By the attempt, each time a worker takes the session up: an epoch must be newer than the last (rule 6)."""

    type: ClassVar[str] = "claim"
    kind: Literal["claim"] = "claim"
    epoch: int
    holder: str


class SetupResult(_Event):
    """By the attempt, after the setup command ran in the unit's worktree."""

    type: ClassVar[str] = "setup/result"
    kind: Literal["setup/result"] = "setup/result"
    ok: bool
    seconds: float
    output: str = ""


class AgentLoaded(_Event):
    """By the loop when a turn starts under another bundle than the last one: from here on the head is this.

    What was thought under other words, tools or another model is bound to them, so the surface drops it (facts:
    thinking). `problem` says why the agent's file could not be read; no optional tool is offered then (spec A24).
    `rules` are the agent's own policy; an agent without any is not logged when the session's start says all that
    there is.
    """

    type: ClassVar[str] = "agent"
    kind: Literal["agent"] = "agent"
    required: ClassVar[bool] = True
    name: str
    model: str
    effort: str
    system: list[Block]
    tools: list[Block]
    problem: str = ""
    rules: tuple[Rule, ...] = ()


class TurnStart(_Event):
    """By the loop, before the message that starts a turn. Turns count from 1.

    `price` is what the turn's model costs: a turn that is suspended goes on under it, whatever the config says by then.
    """

    type: ClassVar[str] = "turn/start"
    kind: Literal["turn/start"] = "turn/start"
    turn: int
    price: Price | None = None


class TurnEnd(_Event):
    """By the loop, or by the repair of an orphan (`interrupted`).

    `reason` is one of completed, aborted, blocked, error, max-tokens, interrupted, forked, or a stranger (spec L7,
    L8); `facts` are the structured facts of an ending that needs some.
    """

    type: ClassVar[str] = "turn/end"
    kind: Literal["turn/end"] = "turn/end"
    turn: int
    reason: str
    facts: dict[str, Any] = Field(default_factory=dict)


class StepStart(_Event):
    """By the loop, flushed before the model call; `request` is the hash of system, tools and messages."""

    type: ClassVar[str] = "step/start"
    kind: Literal["step/start"] = "step/start"
    step: int
    model: str
    max_tokens: int
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    request: str


class StepEnd(_Event):
    """By the loop after the step's tools ran, or by the repair. `cost` in dollars; None where the price is unknown."""

    type: ClassVar[str] = "step/end"
    kind: Literal["step/end"] = "step/end"
    step: int
    stop_reason: str | None = None
    usage: Usage = Usage()
    cost: Decimal | None = None
    request_id: str = ""
    error: str = ""


class UserMessage(_Event):
    """By the loop: what starts or steers a turn. `source` says whose words they are.

    `effort` overrides the agent's for the turn that the message starts (spec A19); `told` is the id of the request
    by which a person said it, so that it is heard once.
    """

    type: ClassVar[str] = "user/message"
    kind: Literal["user/message"] = "user/message"
    source: Literal["goal", "verify", "person", "runtime"]
    content: list[Block]
    effort: str | None = None
    told: str = ""


class AssistantMessage(_Event):
    """By the loop, flushed before any of its tools runs. Usage and cost stand here: the call is paid for by now.

    `unreadable` has the raw arguments of tool calls whose JSON never became valid, by tool id; their block's input
    is empty.
    """

    type: ClassVar[str] = "assistant/message"
    kind: Literal["assistant/message"] = "assistant/message"
    content: list[Block]
    stop_reason: str
    usage: Usage = Usage()
    cost: Decimal | None = None
    request_id: str = ""
    unreadable: dict[str, str] = Field(default_factory=dict)


class ToolCall(_Event):
    """By the loop just before a tool runs; flushed when the tool can change something. No event: never started.

    `repaired` are the arguments that run instead of those that the model wrote (spec A22); None: exactly those.
    """

    type: ClassVar[str] = "tool/call"
    kind: Literal["tool/call"] = "tool/call"
    call_id: str
    name: str
    repaired: dict[str, Any] | None = None


class ToolResult(_Event):
    """By the loop after the tool, or by the repair for a call without one. `facts` are for people only.

    `images` are image blocks that follow the text. `trimmed` stands in for the call's arguments in what the model
    sees from the next call on, the first that carries them (spec A22): they were not sent before.
    """

    type: ClassVar[str] = "tool/result"
    kind: Literal["tool/result"] = "tool/result"
    call_id: str
    content: str
    is_error: bool = False
    facts: dict[str, Any] = Field(default_factory=dict)
    images: list[Block] = Field(default_factory=list)
    trimmed: dict[str, Any] | None = None


class Pause(_Event):
    """By the loop, flushed: a stored question or approval suspends the turn until a person decides (spec A3, A4).

    For an approval `question` says what wants to run, for people; what runs is the stored call of the answer.
    """

    type: ClassVar[str] = "pause"
    kind: Literal["pause"] = "pause"
    call_id: str
    question: str
    what: Literal["question", "approval"] = "question"


class Resume(_Event):
    """By the loop: what the person said, before it becomes the tool's result or lets the call run.

    `approved` is None for an answer. With True the `tool/call` follows in the same write: without it, it never ran.
    """

    type: ClassVar[str] = "resume"
    kind: Literal["resume"] = "resume"
    call_id: str
    text: str
    approved: bool | None = None


class TasksWritten(_Event):
    """By the loop when the tool `update_tasks` ran: the whole list, as it is now (spec A21)."""

    type: ClassVar[str] = "tasks/write"
    kind: Literal["tasks/write"] = "tasks/write"
    tasks: list[dict[str, str]]


class ThinkingSummary(_Event):
    """By the loop, once a turn at most: what people may know of the turn's thinking (spec A6); `model` wrote it."""

    type: ClassVar[str] = "thinking/summary"
    kind: Literal["thinking/summary"] = "thinking/summary"
    turn: int
    text: str
    model: str
    usage: Usage = Usage()
    cost: Decimal | None = None
    request_id: str = ""


class CallBroken(_Event):
    """By the loop: a model call began to answer, and failed or was cancelled before the answer was whole.

    `usage` and `cost` are what its stream had told by then: it is paid for like any other. `why` is for people.
    """

    type: ClassVar[str] = "call/broken"
    kind: Literal["call/broken"] = "call/broken"
    model: str
    usage: Usage = Usage()
    cost: Decimal | None = None
    request_id: str = ""
    why: str = ""


class Checkpoint(_Event):
    """By the attempt after the harness committed the worktree; `taken_back` are protected paths it restored."""

    type: ClassVar[str] = "checkpoint"
    kind: Literal["checkpoint"] = "checkpoint"
    commit: str
    tree: str
    taken_back: list[str] = Field(default_factory=list)


class VerifyResult(_Event):
    """By the attempt: what verify said of exactly this commit in a clean tree."""

    type: ClassVar[str] = "verify/result"
    kind: Literal["verify/result"] = "verify/result"
    commit: str
    tree: str
    command: str
    digest: str
    passed: bool
    seconds: float
    exit_code: int | None = None
    output: str = ""


class Report(_Event):
    """By the attempt: the flushed terminal event of a hand-out (protocol rule 14). `report` is a UnitReport."""

    type: ClassVar[str] = "report"
    kind: Literal["report"] = "report"
    report: dict[str, Any]


class Compaction(_Event):
    """By the loop: from here on the model sees `summary` instead of everything before it but the first message.

    What was said since the last answer stays as well. `steps` is how many answers the model had given by then. Only
    between steps, when every call has its result. The summary alone is stored: the history stays where it is. The call
    that wrote it is priced here, also where its summary was `refused`, for that reason: the model sees no such one.
    """

    type: ClassVar[str] = "compaction"
    kind: Literal["compaction"] = "compaction"
    summary: str
    steps: int
    refused: str = ""
    model: str = ""
    usage: Usage = Usage()
    cost: Decimal | None = None
    request_id: str = ""


class ImagesDropped(_Event):
    """By the loop before a call that would carry too many images (spec A23).

    From here on a note stands in for those in all tool results but the newest, and thinking, which is bound to what
    stood before it, is dropped.
    """

    type: ClassVar[str] = "images/drop"
    kind: Literal["images/drop"] = "images/drop"
    required: ClassVar[bool] = True


class SessionFork(_Event):
    """By the fork, before its first flush: everything before it was copied from attempt `source`, up to `at` events.

    The closers of a turn that was open there follow it; after them the session is attempt `attempt`'s own.
    """

    type: ClassVar[str] = "session/fork"
    kind: Literal["session/fork"] = "session/fork"
    source: int
    at: int
    attempt: int


class Torn(_Event):
    """By the log itself: bytes of a torn tail were set aside into `file` before this event."""

    type: ClassVar[str] = "log/torn"
    kind: Literal["log/torn"] = "log/torn"
    offset: int
    bytes: int
    file: str


class Unknown(_Event):
    """A valid stranger: written by a newer version, not needed to go on."""

    type: ClassVar[str] = "unknown"
    kind: Literal["unknown"] = "unknown"
    name: str
    payload: dict[str, Any]

    def stored(self) -> tuple[str, dict[str, Any]]:
        """Return what the newer version wrote, unchanged: a fork copies it, and people see it, as it was."""
        return self.name, self.payload


Event = Annotated[
    SessionStart
    | Claim
    | SetupResult
    | TurnStart
    | TurnEnd
    | StepStart
    | StepEnd
    | UserMessage
    | AssistantMessage
    | ToolCall
    | ToolResult
    | Pause
    | Resume
    | Checkpoint
    | VerifyResult
    | Report
    | AgentLoaded
    | Compaction
    | ImagesDropped
    | TasksWritten
    | ThinkingSummary
    | CallBroken
    | SessionFork
    | Torn,
    Field(discriminator="kind"),
]

_TYPES: dict[str, type[_Event]] = {cls.type: cls for cls in get_args(get_args(Event)[0])}
_VALIDATE = {kind: TypeAdapter(cls).validator.validate_python for kind, cls in _TYPES.items()}


def load(kind: str, data: Mapping[str, Any]) -> Any:
    """Return the event of a record. Raises ValueError for data that no version wrote, WrittenByNewer for a newer's."""
    known = _TYPES.get(kind)
    if known is None:
        if data.get("required"):
            raise WrittenByNewer(f"event type {kind!r} is required to understand this session")
        return Unknown(name=kind, payload=dict(data))
    if known.required:
        data = {name: value for name, value in data.items() if name != "required"}
    try:
        return _VALIDATE[kind](data)
    except ValidationError as error:
        raise _refusal(kind, data, error) from error


def _refusal(kind: str, data: Mapping[str, Any], error: ValidationError) -> ValueError:
    version = data.get("version")
    if kind == SessionStart.type and isinstance(version, int) and version > 1:
        return WrittenByNewer(f"was written by version {version} of the format")
    first = error.errors()[0]
    return ValueError(f"event {kind}: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}")
