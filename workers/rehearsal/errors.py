"""What can go wrong with a rehearsal itself, as opposed to the faults that a script plays on purpose.

RehearsalError
├── ScriptError        the script cannot be read, or a field of it is wrong
└── ServerStartError   the address cannot be listened on
"""

from pathlib import Path

__all__ = ["RehearsalError", "ScriptError", "ServerStartError"]


class RehearsalError(Exception):
    """Base of everything that `workers.rehearsal` raises."""


class ScriptError(RehearsalError):
    """A script that cannot be played; names the file, the field and what is wrong with it."""

    def __init__(self, problem: str, *, path: Path | None = None, field: str = "") -> None:
        self.problem = problem
        self.path = path
        self.field = field
        where = ": ".join(str(part) for part in (path or "script", field) if part)
        super().__init__(f"{where}: {problem}")


class ServerStartError(RehearsalError):
    """The rehearsal server could not listen on its address."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        self.reason = reason
        super().__init__(
            f"the rehearsal server cannot listen on {host}:{port}: {reason}; choose another port, or 0 for any free one"
        )
