"""Every error of the dispatcher, as one tree; the command line turns it into an exit code at one boundary.

DispatcherError            exit 2
├── BadInput               exit 2   something a person wrote cannot be used: path, line, field
│   ├── StateFileError              .overnight/state.md
│   ├── UnitFileError               .overnight/units/<id>.md
│   ├── ConfigError                 .overnight/config.toml
│   └── UnknownUnitError            a unit that no bucket holds
├── WriterLocked           exit 2   another run owns this repository's state file: path, holder
└── EngineError            exit 4   the machinery (Redis, workers, disk) failed: component
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

__all__ = [
    "BadInput",
    "ConfigError",
    "DispatcherError",
    "EngineError",
    "StateFileError",
    "UnitFileError",
    "UnknownUnitError",
    "WriterLocked",
]


class DispatcherError(Exception):
    """Whatever the dispatcher expects can go wrong. `exit_code` is what the process ends with."""

    exit_code: int = 2


class BadInput(DispatcherError):
    """Something that a person wrote cannot be used; shown as "path:line: field: message".

    `problems` holds the single errors when several were found in one reading; it is empty for a single one.
    """

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        line: int | None = None,
        field: str | None = None,
        problems: Sequence["BadInput"] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = line
        self.field = field
        self.problems = tuple(problems)

    def __str__(self) -> str:
        if self.problems:
            return "\n".join(str(problem) for problem in self.problems)
        where = "" if self.path is None else str(self.path)
        if self.line is not None:
            where += f":{self.line}" if where else f"line {self.line}"
        return ": ".join(part for part in (where, self.field, self.message) if part)

    @classmethod
    def all_of(cls, problems: Sequence["BadInput"]) -> Self:
        """One error that lists all of `problems` (at least one); its own fields are those of the first."""
        first = problems[0]
        kept = problems if len(problems) > 1 else ()
        return cls(first.message, path=first.path, line=first.line, field=first.field, problems=kept)


class StateFileError(BadInput):
    """The state file cannot be read as four buckets. Nothing is overwritten until it is mended."""


class UnitFileError(BadInput):
    """A unit file, or what unit files say of each other, cannot be used."""


class ConfigError(BadInput):
    """`.overnight/config.toml` cannot be used."""


class UnknownUnitError(BadInput):
    """A unit was named that no bucket holds."""


class WriterLocked(DispatcherError):
    """Another run is the one writer of this repository's state file (spec S6)."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(
            f"the state file is held by {holder or 'another run'}: one run at a time; `overnight attach` shows what it "
            "does, `overnight stop` ends it after the current steps"
        )
        self.path = path
        self.holder = holder


class EngineError(DispatcherError):
    """The machinery failed, not the work. `component` names which part (redis, worker, disk, home …)."""

    exit_code = 4

    def __init__(self, message: str, *, component: str = "engine") -> None:
        super().__init__(message)
        self.component = component
