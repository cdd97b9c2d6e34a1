"""How a run ends: the documented exit codes."""

from dataclasses import dataclass

__all__ = ["ALL_PASSED", "ENGINE", "NOT_ALL_PASSED", "STOPPED", "Outcome"]

ALL_PASSED, NOT_ALL_PASSED, STOPPED, ENGINE = 0, 1, 3, 4  # 2 is bad input, which is an error


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exit code, one word, and a line for people."""

    code: int
    reason: str
    detail: str = ""
