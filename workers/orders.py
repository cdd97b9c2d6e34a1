"""What travels between the dispatcher and a worker: orders out, reports back. Nothing else does."""

from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "AgentOrder",
    "Answered",
    "ForkPoint",
    "Release",
    "ReleaseReason",
    "UnitOrder",
    "UnitReport",
    "Verdict",
    "VerifyOrder",
]

Verdict = Literal["pass", "fail", "block"]
ReleaseReason = Literal["stopped", "busy", "disk", "shutdown", "model", "key", "spend"]


class Wire(BaseModel):
    """Frozen and closed: a field that this version does not know is an error, not a guess."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Price(Wire):
    """Dollars per million tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal


class AgentOrder(Wire):
    """Which model works, and how hard."""

    model: str
    base_url: str | None = None
    key_command: str | None = None
    effort: Literal["off", "low", "medium", "high"] = "medium"
    max_output_tokens: int | None = None
    price: Price | None = None


class VerifyOrder(Wire):
    """The commands that decide; times in seconds."""

    run: str
    timeout: float
    setup: str | None = None
    setup_timeout: float = 900.0
    protect: tuple[str, ...] = ()
    may_edit: tuple[str, ...] = ()


class Answered(Wire):
    """What a person said to the question or approval that suspended the turn; `seq` is the pause's."""

    text: str
    seq: int


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
    """One hand-out of one unit. `attempt` and `epoch` come from the journal alone (protocol rule 1)."""

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
    seconds: float
    fence: float = 5.0
    notes: tuple[str, ...] = ()
    answers: tuple[Answered, ...] = ()
    fork: ForkPoint | None = None


class _Closing(_HandOut):
    version: Literal[1] = 1
    cost: Decimal | None = None
    turns: int = 0
    steps: int = 0
    seconds: float = 0.0


class UnitReport(_Closing):
    """A verdict: the session's flushed terminal event (protocol rule 14).

    `commit` and `tree` are the checkpoint that verify said yes to, present exactly when the verdict is `pass`;
    `note` is one line for people; `summary` is the agent's final text, `output` the tail of the last verify.
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


class Release(_Closing):
    """The unit goes back as it was: no verdict, no attempt spent (protocol rule 13)."""

    kind: Literal["release"] = "release"
    reason: ReleaseReason
    detail: str = ""
    commit: str | None = None
