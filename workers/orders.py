"""What travels between the dispatcher and a worker: orders out, reports back. Nothing else does."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "AgentOrder",
    "Answered",
    "ForkPoint",
    "Release",
    "ReleaseReason",
    "Report",
    "Rule",
    "Told",
    "UnitOrder",
    "UnitReport",
    "Verdict",
    "VerifyOrder",
]

Verdict = Literal["pass", "fail", "block"]
ReleaseReason = Literal["stopped", "busy", "disk", "shutdown", "model", "key", "spend", "session", "budget"]


class Wire(BaseModel):
    """Frozen and closed: a field that this version does not know is an error, not a guess."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Rates(Wire):
    """Dollars per million tokens. `cache_write` is for five minutes; `cache_write_1h` None: twice the input price."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal | None = None


class LongPrompt(Rates):
    """The rates of calls whose whole prompt, cached or not, has more than `tokens` tokens."""

    tokens: int = Field(ge=1)


class Price(Rates):
    """A model's rates, and others for long prompts where it has such (`above`)."""

    above: LongPrompt | None = None


class Rule(Wire):
    """One line of a policy: `tool`, or `tool: pattern` matched against its command or path, and what becomes of it."""

    what: str
    then: Literal["allow", "ask", "deny"]


class AgentOrder(Wire):
    """Which agent works, on which model, and how hard. `policy`: the first rule that matches decides; none: allow.

    The context is compacted when the next call would fill `compact_at` of the model's window, or `context_cap` tokens
    (spec A14). `region` and `project` are for bedrock and vertex; `background` is a cheaper model of the same endpoint,
    for summaries. `window` (tokens) and `thinking` are a person's word where the endpoint does not say or says it
    wrongly. `effort_from` says whose word the effort is: the config's gives way to an agent's file, a unit's does not.
    """

    name: str = "coder"
    model: str
    provider: Literal["anthropic", "bedrock", "vertex"] = "anthropic"
    base_url: str | None = None
    key_command: str | None = None
    region: str | None = None
    project: str | None = None
    background: str | None = None
    background_price: Price | None = None
    window: int | None = None
    thinking: Literal["adaptive", "budget", "none"] | None = None
    effort: Literal["off", "low", "medium", "high"] = "medium"
    effort_from: Literal["config", "unit"] = "config"
    max_output_tokens: int | None = None
    price: Price | None = None
    policy: tuple[Rule, ...] = ()
    compact_at: float = 0.85
    context_cap: int = 400_000


class VerifyOrder(Wire):
    """The commands that decide; times in seconds."""

    run: str
    timeout: float
    setup: str | None = None
    setup_timeout: float = 900.0
    protect: tuple[str, ...] = ()
    may_edit: tuple[str, ...] = ()


class Answered(Wire):
    """What a person said to the question or approval that suspended the turn; `seq` is the pause's.

    `approved` is None for an answer to a question; for a denial `text` is the reason, which may be empty. `call` is the
    id of the call that the person was shown ("": a version before told none): a session that was begun anew, on another
    host, may hold another call at the same place.
    """

    text: str
    seq: int
    call: str = ""
    approved: bool | None = None


class Told(Wire):
    """What a person said to a unit at work (spec A22); `id` is the request's, so that it is heard once.

    `effort` is how hard the agent is to think for the rest of the turn that hears it (spec A19).
    """

    id: str
    text: str
    effort: Literal["off", "low", "medium", "high"] | None = None


class ForkPoint(Wire):
    """Where an attempt goes on from: the first `at` events of another attempt of the unit (spec L11)."""

    attempt: int = Field(ge=1)
    at: int = Field(ge=1)


class _HandOut(Wire):
    """What names one hand-out, on the way out and on the way back."""

    night: str
    unit: str
    attempt: int
    epoch: int

    @property
    def token(self) -> str:
        """`attempt.epoch`, what the lease record is compared with."""
        return f"{self.attempt}.{self.epoch}"

    @property
    def task_id(self) -> str:
        """`<night>.<unit>.<attempt>.<epoch>`, so that Flower's table reads like the night."""
        return f"{self.night}.{self.unit}.{self.token}"

    @property
    def ref(self) -> str:
        """The only ref that this hand-out may move (protocol rule 16)."""
        return f"refs/overnight/{self.night}/{self.unit}/{self.token}"


class UnitOrder(_HandOut):
    """One hand-out of one unit. `attempt` and `epoch` come from the journal alone (protocol rule 1).

    `budget_of` says whose limit `budget` is: the end of a run's or a night's money is no failure of the unit.
    """

    version: Literal[1] = 1
    attempt: int = Field(ge=1)
    epoch: int = Field(ge=1)
    run_id: str
    goal: str
    base: str
    digest: str
    repository: str
    home: str
    agent: AgentOrder
    verify: VerifyOrder
    rounds: int
    budget: Decimal | None
    budget_of: Literal["unit", "run", "night"] = "unit"
    seconds: float
    fence: float = 5.0
    notes: tuple[str, ...] = ()
    answers: tuple[Answered, ...] = ()
    told: tuple[Told, ...] = ()
    attach: tuple[str, ...] = ()
    fork: ForkPoint | None = None


class _Report(_HandOut):
    version: Literal[1] = 1
    cost: Decimal | None = None
    turns: int = 0
    steps: int = 0
    seconds: float = 0.0


class UnitReport(_Report):
    """A verdict: the session's flushed terminal event (protocol rule 14).

    `commit` and `tree` are the checkpoint that verify said yes to, present exactly when the verdict is `pass`;
    `note` is one line for people; `summary` is the agent's final text, `output` the tail of the last verify.
    `pause_seq` and `pause_call` say where the session waits for a person, and with which call.
    `approval` is the call that waits for a person's yes, as people read it (None: no approval, or a question);
    `unsupported` are claims of the summary that no evidence of the session supports (spec A22).
    """

    kind: Literal["verdict"] = "verdict"
    verdict: Verdict
    note: str = ""
    commit: str | None = None
    tree: str | None = None
    digest: str = ""
    summary: str = ""
    output: str = ""
    question: str | None = None
    pause_seq: int | None = None
    pause_call: str = ""
    approval: str | None = None
    unsupported: tuple[str, ...] = ()


class Release(_Report):
    """The unit goes back as it was: no verdict, no attempt spent (protocol rule 13).

    With the reason `session` it waits for a person: its log cannot be read, and so holds no verdict either (rule 14).
    """

    kind: Literal["release"] = "release"
    reason: ReleaseReason
    detail: str = ""
    commit: str | None = None


Report = Annotated[UnitReport | Release, Field(discriminator="kind")]
"""What ends a hand-out: a verdict or a release, the only two things that a worker can say."""
