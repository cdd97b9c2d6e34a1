"""The words that the harness itself says to the model: the runtime guide, the goal, and what it must be told later."""

from collections.abc import Collection, Sequence

from .orders import Told, UnitOrder
from .sendable import sendable
from .session.events import Block, UserMessage, VerifyResult

__all__ = ["REBUILT", "RESUMED", "cut_short", "forked", "goal", "guide", "runtime", "system", "told", "verify_failed"]

_GIT = """\
You work on one unit of a repository, unattended, in a git worktree of your own.

- The harness owns git. It commits your worktree when your turn ends and merges it when verify passes. Reading git \
(status, diff, log) works; do not commit, branch, stash or push.
- Your turn ends with an answer that calls no tool. Then verify runs in a clean checkout of exactly your files; if it \
fails, its output is your next message.
- Changes to protected paths are taken back before verify. Do not try to satisfy verify by changing what it checks."""
_ALONE = "- Nobody watches. Decide what can be decided from the repository."
_ASK = f"{_ALONE[:-1]}; use `ask` only where a person's answer changes what is delivered."
_SCRATCH = """\
- `$OVERNIGHT_SCRATCH` names a folder outside the worktree that only you use. What the next attempt should know if \
this one does not pass (dead ends, what you found out) belongs in its `notes.md`: write it with bash."""
_PLAN = "- Plan as the work is large. One or two look-ups: no plan. Three to five steps: a task list (`update_tasks`)."
_PLAN_LARGE = " Larger or vague: `spec.md`, then `plan.md`, both in `$OVERNIGHT_SCRATCH`, then the task list"
_PLAN_SKILLS = " (skills `brainstorming` and `writing-plans`)"
_PLAN_ON = " Nobody approves a plan: go on with the work."
_FINISH = "- Finish with one short paragraph: what you changed and why."
_PROBLEM = """\
The file of your agent cannot be used, so you have no tools that look at files or change any ({problem}). A person \
has to mend it. Say so in your answer, and end your turn."""
_MEMORY = """\
Project memory: what the project says to those who work on it, as of the commit that this unit starts from. Where it \
speaks of commits, branches or pushes, the harness does that.

"""
_SKILLS = """\
Skills are instructions for kinds of work. Load one with the tool `skill` before you do work that it is for:

"""

RESUMED = (
    "The harness was interrupted and has taken this session up again. Your worktree is as it was left. Calls marked as "
    "of unknown outcome may or may not have run: look at the files, then go on."
)
REBUILT = (
    "The harness was interrupted and has taken this session up again in a fresh worktree. Files are as of the last "
    "checkpoint {commit}; whatever was changed after it is gone. Look at the files, then go on."
)


def text(words: str) -> list[Block]:
    """Return words as a message's content, whatever names of files they quote."""
    return [{"type": "text", "text": sendable(words)}]


def system(
    tools: Collection[str],
    *,
    memory: str = "",
    skills: Sequence[tuple[str, str]] = (),
    instructions: str = "",
    problem: str = "",
) -> list[Block]:
    """Return the system prompt: what all units share first, so that they share its cache, the agent's own words last.

    `skills` are names and descriptions, `problem` says why the agent's file cannot be used.
    """
    names = {name.removeprefix("builtin:") for name, _ in skills}
    listed = "\n".join(f"- `{name}`: {description}" for name, description in skills)
    parts = [
        guide(tools, names),
        _MEMORY + memory if memory else "",
        _SKILLS + listed if listed else "",
        instructions,
        _PROBLEM.format(problem=problem) if problem else "",
    ]
    return [block for part in parts if part for block in text(part)]


def guide(tools: Collection[str], skills: Collection[str] = ()) -> str:
    """Return the runtime guide (spec A11, A21): how a unit is worked on here. It names only tools that are offered."""
    lines = [_GIT, _ASK if "ask" in tools else _ALONE]
    if "bash" in tools:
        lines.append(_SCRATCH)
    if "update_tasks" in tools:
        lines.append(_planning(tools, skills))
    return "\n".join([*lines, _FINISH])


def _planning(tools: Collection[str], skills: Collection[str]) -> str:
    if "bash" not in tools:  # nothing else writes to the scratch folder
        return _PLAN + _PLAN_ON
    has_skills = "skill" in tools and {"brainstorming", "writing-plans"} <= set(skills)
    return f"{_PLAN}{_PLAN_LARGE}{_PLAN_SKILLS if has_skills else ''}.{_PLAN_ON}"


def goal(
    order: UnitOrder, noted: str = "", skills: Sequence[tuple[str, str]] = (), attached: Sequence[Block] = ()
) -> UserMessage:
    """Return the message that starts an attempt: who it is, what is wanted, what decides, what was tried.

    `noted` is what earlier attempts wrote down for this one; `skills` are names and instructions of those that the
    goal calls for as `/slug`; `attached` shows the images that its author attached.
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
    parts += [f"Instructions of the skill `{name}`, which the goal calls for:\n\n{words}" for name, words in skills]
    return UserMessage(source="goal", content=[*text("\n\n".join(parts)), *attached])


def runtime(words: str) -> UserMessage:
    """Return a message of the harness."""
    return UserMessage(source="runtime", content=text(words))


def told(said: Told) -> UserMessage:
    """Return what a person says to a unit at work; its id in the message is how it is heard once."""
    words = f"A person says, while you are at work:\n\n{said.text.strip() or '(nothing)'}"
    return UserMessage(source="person", content=text(words), told=said.id, effort=said.effort)


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
