"""Verify: the command that alone can make a unit pass, run in a clean tree at exactly one commit.

The tree is made for the run and thrown away, so that nothing an agent left behind can speak in it (spec S11).
"""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from worktrees.process import Command, Finished, base_environment, run
from worktrees.worktree import Worktrees

from .blocking import blocking
from .orders import VerifyOrder
from .tools.bash import describe

__all__ = ["CANNOT_START", "VerifyOutcome", "headline", "run_stage", "verify"]

# What a shell says of a command that is not there, or cannot be executed.
CANNOT_START = frozenset({126, 127})
_OUTPUT_LIMIT = 30_000
# What says most comes first: a test by name, the error itself, then whatever calls itself a failure.
_TELLING = tuple(
    re.compile(pattern)
    for pattern in (
        r"^(FAILED|ERROR) \S+::",
        r"^(E +)?[\w.]*(Error|Exception|Failure)\b",
        r"^(FAIL|ERROR|error|fatal)",
        r"[Ee]rror: ",
    )
)


@dataclass(frozen=True, slots=True)
class VerifyOutcome:
    """What verify said. `command` is the one that spoke last: a setup that failed, else verify; seconds cover both."""

    passed: bool
    command: str
    exit_code: int | None
    output: str
    seconds: float


async def verify(worktrees: Worktrees, name: str, commit: str, order: VerifyOrder, *, tag: str) -> VerifyOutcome:
    """Run setup and verify on a clean tree of the commit. The tree `name` is removed again on every way out."""
    started = time.monotonic()
    try:
        tree = await blocking(worktrees.create, name, commit, replace=True)
        command, seconds = order.setup, order.setup_timeout
        done = None if command is None else await run_stage(command, seconds, tree.path, tag)
        if done is None or done.ok:
            command, seconds = order.run, order.timeout
            done = await run_stage(command, seconds, tree.path, tag)
        assert command is not None
        output = describe(done, seconds)
        return VerifyOutcome(done.ok, command, done.exit_code, output, time.monotonic() - started)
    finally:
        await blocking(worktrees.remove, name, kept=commit)


async def run_stage(command: str, seconds: float, path: Path, tag: str) -> Finished:
    """Run a trusted command (setup, verify) in a tree. It is killed after `seconds`."""
    env = base_environment()
    return await run(Command(script=command, cwd=path, env=env, timeout=seconds, output_limit=_OUTPUT_LIMIT, tag=tag))


def headline(output: str, limit: int = 100) -> str:
    """Return the one line of a failed command's output that says most, for a note."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("[exit code ", "[killed "))] or lines
    found = (line for pattern in _TELLING for line in reversed(lines) if pattern.search(line))
    line = next(found, (lines or ["no output"])[-1])
    return line if len(line) <= limit else line[: limit - 1] + "…"
