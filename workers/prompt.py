"""The words that the harness itself says to the model: the runtime guide, the goal, and what it must be told later."""

from collections.abc import Sequence

from .orders import UnitOrder
from .session.events import Block, UserMessage, VerifyResult

__all__ = ["REBUILT", "RESUMED", "cut_short", "forked", "goal", "runtime", "system", "verify_failed"]

GUIDE = """\
You are a coding agent at work on one unit of a repository, unattended, in a git worktree of your own.

- You edit files; the harness owns git. It commits your worktree when your turn ends and merges it when verify passes. \
Reading git (status, diff, log) works; do not commit, branch, stash or push.
- Your turn ends with an answer that calls no tool. Then verify runs in a clean checkout of exactly your files; if it \
fails, its output is your next message.
- Changes to protected paths are taken back before verify. Do not try to satisfy verify by changing what it checks.
- Nobody watches. Decide what can be decided from the repository; use `ask` only where a person's answer changes what \
is delivered.
- `$OVERNIGHT_SCRATCH` names a folder outside the worktree that only you use. What the next attempt should know if \
this one does not pass (dead ends, what you found out) belongs in its `notes.md`: write it with bash.
- Finish with one short paragraph: what you changed and why."""

RESUMED = (
    "The harness was interrupted and has taken this session up again. Your worktree is as it was left. Calls marked as "
    "of unknown outcome may or may not have run: look at the files, then go on."
)
REBUILT = (
    "The harness was interrupted and has taken this session up again in a fresh worktree. Files are as of the last "
    "checkpoint {commit}; whatever was changed after it is gone. Look at the files, then go on."
)


def text(words: str) -> list[Block]:
    """Return words as a message's content."""
    return [{"type": "text", "text": words}]


def system() -> list[Block]:
    """Return the system prompt: the same for all units, so that they share its cache."""
    return text(GUIDE)


def goal(order: UnitOrder, noted: str = "") -> UserMessage:
    """Return the message that starts an attempt: who it is, what is wanted, what decides, what was tried.

    `noted` is what earlier attempts wrote down for this one.
    """
    parts = [
        f"unit: {order.unit}\nattempt: {order.attempt}\nnight: {order.night}",
        order.goal,
        f"Verify, which decides: `{order.verify.run}`",
    ]
    if protected := [path for path in order.verify.protect if path not in order.verify.may_edit]:
        parts.append("Protected paths: " + ", ".join(f"`{path}`" for path in protected))
    if order.notes:
        parts.append("Earlier attempts did not pass:\n" + "\n".join(f"- {note}" for note in order.notes))
    if noted:
        parts.append(f"From `$OVERNIGHT_SCRATCH/notes.md`, which earlier attempts wrote:\n\n{noted}")
    return UserMessage(source="goal", content=text("\n\n".join(parts)))


def runtime(words: str) -> UserMessage:
    """Return a message of the harness."""
    return UserMessage(source="runtime", content=text(words))


def _said(result: VerifyResult) -> str:
    ended = "could not finish" if result.exit_code is None else f"failed with exit code {result.exit_code}"
    return f"Verify {ended}: `{result.command}`\n\n{result.output}"


def verify_failed(result: VerifyResult, taken_back: Sequence[str]) -> UserMessage:
    """Return verify's output as the next turn's message, with what was taken back before it ran."""
    words = _said(result)
    if taken_back:
        words += "\n\nTaken back before it ran, because the paths are protected: " + ", ".join(taken_back)
    return UserMessage(source="verify", content=text(words))


def forked(words: str, failed: VerifyResult | None) -> UserMessage:
    """Return what an attempt is told that goes on from another one: `words`, and a verify it has not heard of."""
    return runtime(words) if failed is None else runtime(f"{_said(failed)}\n\n{words}")


def cut_short() -> UserMessage:
    """Return the reason that the turn after an overlong answer is told (spec A15)."""
    return runtime(
        "agent_output_limit_exceeded: your last answer hit the model's output limit and was cut short, so the turn "
        "ended. Go on in smaller pieces."
    )
