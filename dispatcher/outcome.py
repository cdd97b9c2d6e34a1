"""How a run ends: the documented exit codes."""

from dataclasses import dataclass

__all__ = ["ALL_PASSED", "ENGINE", "NOT_ALL_PASSED", "STOPPED", "Outcome", "was_whole"]

ALL_PASSED, NOT_ALL_PASSED, STOPPED, ENGINE = 0, 1, 3, 4  # 2 is bad input, which is an error


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exit code, one word, and a line for people."""

    code: int
    reason: str
    detail: str = ""


def was_whole(outcome: Outcome, *, ran_out: bool) -> bool:
    """Tell whether a run came to its own end: what it did not reach was passed over (spec S8).

    `ran_out`: time or money were at an end. One that a person or the machinery cut short says nothing of any unit.
    """
    return ran_out or outcome.reason in ("done", "limit")
