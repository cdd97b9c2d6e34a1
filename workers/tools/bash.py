"""The tool `bash`: one command in a fresh shell in the worktree; everything it started is dead when it returns."""

from collections.abc import Mapping
from typing import Any

from workers.errors import ToolError
from worktrees.errors import StartError
from worktrees.process import Command, Finished, run

from .tool import Outcome, Workspace, text_argument

__all__ = ["Bash"]

_DEFAULT_SECONDS = 120
_MOST_SECONDS = 600
# Of the output, its two ends; what the model is told is shortened further, and all this is kept for it on disk. A
# command that floods holds about three times as much in memory.
_KEPT_BYTES = 4 * 1024 * 1024


class Bash:
    """Runs what the model asks for, under the one module that starts commands."""

    name = "bash"
    schema: dict[str, Any] = {  # noqa: RUF012  # never changed after import
        "name": "bash",
        "description": (
            "Run a command with bash in the root of the worktree. Every call is a fresh shell: the working directory, "
            "variables and background processes of earlier calls are gone. There is no terminal and no input. Long "
            "output is shortened in the middle."
        ),
        "input_schema": {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command, as given to bash -c."},
                "timeout": {
                    "type": "integer",
                    "description": f"Seconds until it is killed; default {_DEFAULT_SECONDS}, at most {_MOST_SECONDS}.",
                },
            },
            "required": ["command"],
        },
    }

    def mutates(self, arguments: Mapping[str, Any]) -> bool:  # noqa: ARG002  # any command may
        """Every command can change something."""
        return True

    async def run(self, arguments: Mapping[str, Any], workspace: Workspace) -> Outcome:
        """Run one command; a non-zero exit is told to the model as an error result with its output."""
        seconds = arguments.get("timeout", _DEFAULT_SECONDS)
        if not isinstance(seconds, int) or not 0 < seconds <= _MOST_SECONDS:
            raise ToolError(f"`timeout` must be whole seconds from 1 to {_MOST_SECONDS}")
        command = Command(
            script=text_argument(arguments, "command"),
            cwd=workspace.root,
            env=workspace.env,
            timeout=seconds,
            output_limit=_KEPT_BYTES,
            tag=workspace.tag,
        )
        try:
            done = await run(command)
        except StartError as error:  # a NUL in the script, or the agent deleted the worktree's directory
            raise ToolError(str(error)) from error
        return Outcome(describe(done, seconds), is_error=not done.ok, facts=facts(done))


def describe(done: Finished, seconds: float) -> str:
    """Return a command's output with the line that says how it ended, where that was not well."""
    lines = [done.output.rstrip("\n")] if done.output else []
    if done.timed_out:
        lines.append(f"[killed after {seconds:g} s]")
    elif done.signal is not None:
        lines.append(f"[killed by signal {done.signal}]")
    elif done.exit_code:
        lines.append(f"[exit code {done.exit_code}]")
    return "\n".join(lines)


def facts(done: Finished) -> dict[str, Any]:
    """Return what people want to know of a command beside its output."""
    return {
        "exit_code": done.exit_code,
        "signal": done.signal,
        "timed_out": done.timed_out,
        "truncated": done.truncated,
        "bytes_total": done.bytes_total,
        "seconds": round(done.seconds, 3),
    }
