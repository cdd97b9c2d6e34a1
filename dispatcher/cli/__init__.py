"""The `overnight` command: one module a command, one boundary that maps errors to exit codes.

Exit codes: 0 all passed, 1 some need you or did not pass, 2 bad input, 3 stopped, 4 engine.
"""

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

import click

from dispatcher.errors import DispatcherError, EngineError
from workers.errors import WorkersError
from worktrees.errors import DiskError, WorktreesError

__all__ = ["main"]

_SECTIONS = {
    "In the evening": ("init", "doctor", "add", "import", "agents", "run", "schedule"),
    "While it goes on": ("status", "attach", "log", "tell", "pause", "resume", "stop"),
    "What needs you": ("inbox", "answer", "approve", "deny", "retry", "fork", "cancel", "block", "unblock"),
    "In the morning": ("report", "cost", "archive", "export"),
    "Looking closer": ("replay", "fsck", "prune"),
    "Without a model, and on a broker of your own": ("demo", "rehearse", "worker"),
}
"""Every command, in the order in which a person comes to need it."""

_COMMANDS = tuple(name for names in _SECTIONS.values() for name in names)


class _Commands(click.Group):
    """Imports a command's module only when it is asked for: `overnight status` should not wait for Celery."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"dispatcher.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        near = [] if name in _COMMANDS else get_close_matches(name, _COMMANDS, n=1)
        if near:
            ctx.fail(f"there is no command {name!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by what they are for, each with the whole first sentence of its help."""
        width = max(map(len, _COMMANDS))
        for heading, names in _SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), _sentence(self.get_command(ctx, name))) for name in names])


def _sentence(command: click.Command | None) -> str:
    words = " ".join(((command and command.help) or "").split())
    return words.partition(". ")[0].rstrip(".")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="overnight")
def overnight() -> None:
    """Write down units of work in the evening; find merged, verified branches in the morning.

    Exit codes: 0 all passed, 1 some need you or did not pass, 2 bad input, 3 stopped, 4 engine.
    """


def main() -> None:
    """Run the command line; every expected error becomes one message and its exit code."""
    try:
        code = overnight.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = 2
    except click.Abort:
        code = 3
    except DispatcherError as error:
        code = _say(error, error.exit_code)
    except (DiskError, WorkersError) as error:
        code = _say(error, 4)
    except WorktreesError as error:
        code = _say(error, 2)
    except BrokenPipeError:  # `overnight log | head`
        sys.stderr.close()
        code = 0
    except OSError as error:
        if not _is_mute():
            raise
        code = _say(EngineError(f"standard output cannot be written: {error.strerror}"), 4)
    sys.exit(code or 0)


def _is_mute() -> bool:
    """Tell whether standard output takes nothing more; what is left for it is dropped, else it would fail once more."""
    try:
        sys.stdout.write("\n")  # what failed may have been dropped
        sys.stdout.flush()
    except OSError:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        return True
    return False


def _say(error: Exception, code: int) -> int:
    click.echo(f"overnight: {error}", err=True)
    return code
