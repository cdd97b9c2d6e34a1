"""The tool `str_replace_based_edit_tool` (the API's `text_editor_20250728`): view, create, str_replace, insert."""

import io
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from workers.blocking import blocking
from workers.errors import ToolError

from . import beneath
from .tool import Outcome, Workspace, text_argument

__all__ = ["Editor"]

# Characters of one look: a larger one would fill the model's window. About what bash shows three times over.
_SHOWN = 100_000


class Editor:
    """Edits files beneath the worktree's root, never through a symbolic link."""

    name = "str_replace_based_edit_tool"
    schema: dict[str, Any] = {  # noqa: RUF012  # never changed after import
        "type": "text_editor_20250728",
        "name": "str_replace_based_edit_tool",
    }

    def mutates(self, arguments: Mapping[str, Any]) -> bool:
        """Tell a look from an edit."""
        return arguments.get("command") != "view"

    async def run(self, arguments: Mapping[str, Any], workspace: Workspace) -> Outcome:
        """Run one command off the event loop: a file may be large, or the disk slow."""
        command = text_argument(arguments, "command")
        handler = _COMMANDS.get(command)
        if handler is None:
            raise ToolError(f"unknown command {command!r}; use one of {', '.join(_COMMANDS)}")
        path = beneath.relative(workspace.root, text_argument(arguments, "path"))
        return Outcome(await blocking(handler, workspace, path, arguments))


Handler = Callable[[Workspace, PurePosixPath, Mapping[str, Any]], str]


def _view(workspace: Workspace, path: PurePosixPath, arguments: Mapping[str, Any]) -> str:
    if beneath.is_directory(workspace.root, path):
        return _shortened(beneath.list_directory(workspace.root, path)) or "(empty directory)"
    text = _read(workspace, path)
    if not text:
        return "(empty file)"
    lines = text.removesuffix("\n").split("\n")
    first, last = _view_range(arguments.get("view_range"), len(lines))
    return _shortened([f"{number:6}\t{lines[number - 1]}" for number in range(first, last + 1)])


def _shortened(lines: list[str]) -> str:
    """Return the lines, or the first of them that fit."""
    text = "\n".join(lines)
    if len(text) <= _SHOWN:
        return text
    head = text[:_SHOWN].rpartition("\n")[0] or text[:_SHOWN]
    left = len(lines) - head.count("\n") - 1
    return f"{head}\n[… too much to show at once; {left} more lines: use `view_range` or bash]"


def _view_range(value: Any, count: int) -> tuple[int, int]:
    if value is None:
        return 1, count
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(part, int) for part in value):
        raise ToolError("`view_range` must be two line numbers, [first, last]; last may be -1")
    first, last = value
    last = count if last == -1 else min(last, count)
    if not 1 <= first <= last:
        raise ToolError(f"`view_range` {value} does not fit a file of {count} lines")
    return first, last


def _create(workspace: Workspace, path: PurePosixPath, arguments: Mapping[str, Any]) -> str:
    _write(workspace, path, text_argument(arguments, "file_text", ""), new=True)
    return f"Wrote {path}."


def _str_replace(workspace: Workspace, path: PurePosixPath, arguments: Mapping[str, Any]) -> str:
    old, new = text_argument(arguments, "old_str"), text_argument(arguments, "new_str", "")
    text = _read(workspace, path)
    found = text.count(old) if old else 0
    if found != 1:
        where = "does not stand in" if not found else f"stands {found} times in"
        raise ToolError(f"`old_str` {where} {path}; it must match exactly one place")
    _write(workspace, path, text.replace(old, new), new=False)
    return f"Replaced in {path}, line {text[: text.index(old)].count(chr(10)) + 1}."


def _insert(workspace: Workspace, path: PurePosixPath, arguments: Mapping[str, Any]) -> str:
    line, text = arguments.get("insert_line"), text_argument(arguments, "insert_text")
    lines = io.StringIO(_read(workspace, path), newline="\n").readlines()  # only \n ends a line
    if not isinstance(line, int) or not 0 <= line <= len(lines):
        raise ToolError(f"`insert_line` must be a line number from 0 to {len(lines)}")
    if line and not lines[line - 1].endswith("\n"):
        lines[line - 1] += "\n"
    lines.insert(line, text if text.endswith("\n") else text + "\n")
    _write(workspace, path, "".join(lines), new=False)
    return f"Inserted into {path} after line {line}."


_COMMANDS: dict[str, Handler] = {
    "view": _view,
    "create": _create,
    "str_replace": _str_replace,
    "insert": _insert,
}


def _read(workspace: Workspace, path: PurePosixPath) -> str:
    try:
        return beneath.read_bytes(workspace.root, path).decode("utf-8")
    except UnicodeDecodeError:
        raise ToolError(f"{path} is not UTF-8 text; use bash") from None


def _write(workspace: Workspace, path: PurePosixPath, text: str, *, new: bool) -> None:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"the text cannot be written as UTF-8: {error.reason}") from None
    beneath.write_bytes(workspace.root, path, data, new=new)
