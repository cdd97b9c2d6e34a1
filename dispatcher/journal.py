"""The journal: the dispatcher's append-only log of orders, reports, moves and merges (protocol rules 1, 3).

History and evidence, while the state file says what is. Intent is flushed here before every publish, ref update and
state write. Entries are typed; those of a newer version load as `Unknown`.
"""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dispatcher.errors import EngineError
from dispatcher.revisions import Splice
from workers.errors import LogCorrupt, LogError
from workers.log import Log, Record, offset_of, read
from workers.orders import ForkPoint, Report

__all__ = [
    "Archived",
    "Asked",
    "Edited",
    "Entry",
    "Journal",
    "Lost",
    "MergeDone",
    "MergeDropped",
    "MergeFailed",
    "MergeIntent",
    "NightStarted",
    "Ordered",
    "Reported",
    "RunEnded",
    "RunStarted",
    "Spent",
    "StateCommitted",
    "Unknown",
    "Verified",
    "Written",
    "load_entry",
    "read_journal",
]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    type: ClassVar[str]


class NightStarted(_Entry):
    """First entry: the night's identity, minted once (rule 1), and the commit that all units start from.

    `notes` are what the state file that it began with said of units that had been tried, or were blocked; `checkout`
    is whose state file that is ("": an older journal, which does not say).
    """

    type: ClassVar[str] = "night/start"
    kind: Literal["night/start"] = "night/start"
    version: Literal[1] = 1
    night: str
    title: str
    base: str
    base_name: str
    notes: dict[str, list[str]] = Field(default_factory=dict)
    checkout: str = ""


class RunStarted(_Entry):
    """One `overnight run` process. `embedded` workers of earlier runs are dead by then (rule 2)."""

    type: ClassVar[str] = "run/start"
    kind: Literal["run/start"] = "run/start"
    run: int
    pid: int
    host: str
    slots: int
    embedded: bool


class RunEnded(_Entry):
    """How a run ended: `reason` is one of done, limit, stopped, engine.

    `untouched` are the units that were ready and that it never handed out (spec S8); empty where a person or the
    machinery cut the run short.
    """

    type: ClassVar[str] = "run/end"
    kind: Literal["run/end"] = "run/end"
    run: int
    reason: str
    detail: str = ""
    untouched: list[str] = Field(default_factory=list)


class Verified(_Entry):
    """A verify in a clean tree: evidence for exactly this tree and command (rule 17), behind the setup that it names.

    `stage`: base (preflight), merge (a merged tree), final (the tip at the end).
    """

    type: ClassVar[str] = "verify"
    kind: Literal["verify"] = "verify"
    stage: Literal["base", "merge", "final"]
    tree: str
    commit: str
    command: str
    passed: bool
    seconds: float
    exit_code: int | None = None
    output: str = ""
    unit: str = ""
    setup: str = ""  # the command that it ran behind; older journals do not say


class Ordered(_Entry):
    """A hand-out, before it is published (rule 4). `reserve` in dollars, None without a money limit.

    `fork`: the attempt goes on from a prefix of another one.
    """

    type: ClassVar[str] = "order"
    kind: Literal["order"] = "order"
    unit: str
    attempt: int
    epoch: int
    base: str
    digest: str
    reserve: Decimal | None = None
    fork: ForkPoint | None = None


class Spent(_Entry):
    """What an attempt has spent by its own log, in dollars, where nobody reported it: its dispatcher was killed."""

    type: ClassVar[str] = "spent"
    kind: Literal["spent"] = "spent"
    unit: str
    attempt: int
    cost: Decimal


class Lost(_Entry):
    """A hand-out whose holder stands still (rule 10). `claimed` False: nobody ever took it; that costs nothing.

    `step`, `done` (steps that came to their end) and `cost` (dollars) are the last that the holder told of: a loss with
    more steps done than the one before was progress, and what was spent is booked.
    """

    type: ClassVar[str] = "lost"
    kind: Literal["lost"] = "lost"
    unit: str
    attempt: int
    epoch: int
    claimed: bool
    step: int = 0
    done: int = 0
    cost: Decimal | None = None


class Reported(_Entry):
    """A report, accepted or refused; acknowledged only after this is flushed (rule 15)."""

    type: ClassVar[str] = "report"
    kind: Literal["report"] = "report"
    report: Report
    accepted: bool
    reason: str = ""


class MergeIntent(_Entry):
    """The merged branch is about to move from `old` to `new` (rule 18)."""

    type: ClassVar[str] = "merge/intent"
    kind: Literal["merge/intent"] = "merge/intent"
    unit: str
    attempt: int
    ref: str
    old: str | None
    new: str
    tree: str


class MergeDone(_Entry):
    """The merged branch holds the unit: from now on it is `passed`, for good."""

    type: ClassVar[str] = "merge/done"
    kind: Literal["merge/done"] = "merge/done"
    unit: str
    attempt: int
    commit: str


class MergeDropped(_Entry):
    """An intent that came to nothing: somebody else moved the branch, so the unit is merged anew."""

    type: ClassVar[str] = "merge/dropped"
    kind: Literal["merge/dropped"] = "merge/dropped"
    unit: str


class MergeFailed(_Entry):
    """A unit that passed alone and not together with what was merged before it. `why`: conflict or verify."""

    type: ClassVar[str] = "merge/failed"
    kind: Literal["merge/failed"] = "merge/failed"
    unit: str
    attempt: int
    why: Literal["conflict", "verify", "voided"]
    note: str


class Asked(_Entry):
    """A request of the drop-box, and what became of it."""

    type: ClassVar[str] = "asked"
    kind: Literal["asked"] = "asked"
    request: dict[str, Any]
    obeyed: bool
    reason: str = ""
    unneeded: bool = False  # not obeyed, because all is as it asks for already


class Edited(_Entry):
    """A person's edit of the state file: what was obeyed and what was refused, in words, and whom it concerned."""

    type: ClassVar[str] = "edited"
    kind: Literal["edited"] = "edited"
    obeyed: list[str]
    refused: list[str]
    retried: list[str] = Field(default_factory=list)
    waived: list[str] = Field(default_factory=list)
    cancelled: list[str] = Field(default_factory=list)
    adopted: list[str] = Field(default_factory=list)


class Written(_Entry):
    """The state file's text, before it is written (rule 19), with the moves that led to it (`unit: from → to`).

    A long file's text is left out: `change` makes it of the text of `rev - 1`, and then `moves` are all there were.
    """

    type: ClassVar[str] = "state"
    kind: Literal["state"] = "state"
    rev: int
    text: str = ""
    moves: list[str] = Field(default_factory=list)
    change: tuple[Splice, ...] = ()


class Archived(_Entry):
    """The night is over: `text` goes to its archive file, the files of `units` go with it (spec S7).

    `left` is the state file that is left: no night yet, and the units that are carried over. Doing all of it twice
    changes nothing.
    """

    type: ClassVar[str] = "archived"
    kind: Literal["archived"] = "archived"
    text: str
    units: list[str]
    left: str


class StateCommitted(_Entry):
    """State file and archive are about to be committed on the merged branch, which moves from `old` to `new` (S13).

    `is_done` False: the intent; True: the branch holds it. A commit that a crash cut off is simply made again.
    """

    type: ClassVar[str] = "state/commit"
    kind: Literal["state/commit"] = "state/commit"
    ref: str
    old: str
    new: str
    is_done: bool


class Unknown(_Entry):
    """An entry of a newer version."""

    type: ClassVar[str] = "unknown"
    kind: Literal["unknown"] = "unknown"
    name: str


Entry = Annotated[
    NightStarted
    | RunStarted
    | RunEnded
    | Verified
    | Ordered
    | Lost
    | Spent
    | Reported
    | MergeIntent
    | MergeDone
    | MergeDropped
    | MergeFailed
    | Asked
    | Edited
    | Written
    | Archived
    | StateCommitted,
    Field(discriminator="kind"),
]
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Entry)
_KNOWN = frozenset(cls.type for cls in _Entry.__subclasses__() if cls is not Unknown)


def load_entry(path: Path, record: Record, before: Sequence[Record] = ()) -> Any:
    """Return the entry of a journal's record. Raises LogCorrupt; `path` and the records `before` it are for that."""
    if record.type not in _KNOWN:
        return Unknown(name=record.type)
    try:
        return _ADAPTER.validate_python({"kind": record.type, **record.data})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise LogCorrupt(
            path, line=record.seq + 1, offset=offset_of(before, record.seq), reason=f"{where}: {first['msg']}"
        ) from error


def read_journal(path: Path) -> list[tuple[str, Any]]:
    """Return (time, entry) pairs for a cold reader; an absent journal is empty. Raises EngineError."""
    try:
        records = read(path).records
        return [(record.time, load_entry(path, record, records)) for record in records]
    except LogError as error:
        raise EngineError(f"the journal cannot be read: {error}", component="journal") from error


class Journal:
    """The journal opened by its one writer."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.entries: list[Any] = [load_entry(log.path, record, log.records) for record in log.records]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Take the right to write. Raises EngineError."""
        try:
            log = Log.open(path, note="overnight run")
        except LogError as error:
            raise EngineError(f"the journal cannot be opened: {error}", component="journal") from error
        try:
            return cls(log)
        except LogError as error:
            log.close()
            raise EngineError(f"the journal cannot be read: {error}", component="journal") from error

    def write(self, *entries: Any) -> None:
        """Append and flush: when this returns, the entries survive a crash. Raises EngineError (disk)."""
        try:
            self._log.append([(entry.type, entry.model_dump(mode="json", exclude={"kind"})) for entry in entries])
            self._log.flush()
        except LogError as error:
            raise EngineError(str(error), component="disk") from error
        self.entries += entries

    def close(self) -> None:
        """Give up the right to write."""
        self._log.close()
