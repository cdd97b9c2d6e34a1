"""The tool `str_replace_based_edit_tool` (the API's `text_editor_20250728`): view, create, str_replace, insert.

`view` shows images too, as the model takes them.
"""

import io
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from workers import images
from workers.blocking import blocking
from workers.errors import ImageRefused, ToolError

from . import beneath
from .marks import is_marked
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
        return await blocking(handler, workspace, path, arguments)


Handler = Callable[[Workspace, PurePosixPath, Mapping[str, Any]], Outcome]


def _view(workspace: Workspace, path: PurePosixPath, arguments: Mapping[str, Any]) -> Outcome:
    if beneath.is_directory(workspace.root, path):
        return Outcome(_shortened(beneath.list_directory(workspace.root, path)) or "(empty directory)")
    data = beneath.read_bytes(workspace.root, path)
    if images.is_image(data):
        return _shown(path, data)
    text = _decoded(path, data)
    if not text:
        return Outcome("(empty file)")
    lines = text.removesuffix("\n").split("\n")
    first, last = _view_range(arguments.get("view_range"), len(lines))
    return Outcome(_shortened([f"{number:6}\t{lines[number - 1]}" for number in range(first, last + 1)]))


def _shown(path: PurePosixPath, data: bytes) -> Outcome:
    try:
        picture = images.prepared(data)
    except ImageRefused as error:
        raise ToolError(f"{path} cannot be shown: {error.reason}") from error
    return Outcome(picture.words, images=(picture.block,))


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


def _create(workspace: Workspace, path: PurePosixPath, arguments: Mapping[str, Any]) -> Outcome:
    _write(workspace, path, _new_text(arguments, "file_text", ""), new=True)
    return Outcome(f"Wrote {path}.")


def _str_replace(workspace: Workspace, path: PurePosixPath, arguments: Mapping[str, Any]) -> Outcome:
    old, new = text_argument(arguments, "old_str"), _new_text(arguments, "new_str", "")
    text = _read(workspace, path)
    found = text.count(old) if old else 0
    if found != 1:
        where = "does not stand in" if not found else f"stands {found} times in"
        raise ToolError(f"`old_str` {where} {path}; it must match exactly one place")
    _write(workspace, path, text.replace(old, new), new=False)
    return Outcome(f"Replaced in {path}, line {text[: text.index(old)].count(chr(10)) + 1}.")


def _insert(workspace: Workspace, path: PurePosixPath, arguments: Mapping[str, Any]) -> Outcome:
    line, text = arguments.get("insert_line"), _new_text(arguments, "insert_text")
    lines = io.StringIO(_read(workspace, path), newline="\n").readlines()  # only \n ends a line
    if not isinstance(line, int) or not 0 <= line <= len(lines):
        raise ToolError(f"`insert_line` must be a line number from 0 to {len(lines)}")
    if line and not lines[line - 1].endswith("\n"):
        lines[line - 1] += "\n"
    lines.insert(line, text if text.endswith("\n") else text + "\n")
    _write(workspace, path, "".join(lines), new=False)
    return Outcome(f"Inserted into {path} after line {line}.")


_COMMANDS: dict[str, Handler] = {
    "view": _view,
    "create": _create,
    "str_replace": _str_replace,
    "insert": _insert,
}


def _read(workspace: Workspace, path: PurePosixPath) -> str:
    return _decoded(path, beneath.read_bytes(workspace.root, path))


def _decoded(path: PurePosixPath, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ToolError(f"{path} is not UTF-8 text; use bash") from None


def _new_text(arguments: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return what is to be written. Raises ToolError where the model imitates a call that the harness has trimmed."""
    text = text_argument(arguments, name, default)
    if is_marked(text):
        raise ToolError(f"`{name}` holds the words that stand for trimmed text; write the text itself, or use bash")
    return text


def _write(workspace: Workspace, path: PurePosixPath, text: str, *, new: bool) -> None:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"the text cannot be written as UTF-8: {error.reason}") from None
    beneath.write_bytes(workspace.root, path, data, new=new)
