"""Documents in a call's arguments give way to their first lines once the call ran well (spec A22).

What was written is in the file; the call that wrote it is sent with every later one. It is trimmed before the first
call that carries it, so nothing that was sent is rewritten. The log keeps the answer as it came.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from workers.session import events as ev
from workers.session.session import Session
from workers.tools import Outcome
from workers.tools.marks import trimmed_mark

from .hook import Hook

__all__ = ["MOST_CHARACTERS", "Trim", "trimmed"]

MOST_CHARACTERS = 2_000
"""A document above it is trimmed: below, the words that say so would save little."""

_HEAD = 600  # characters of it that stay, so that the model knows which document it was
_EDITOR = "str_replace_based_edit_tool"
_DOCUMENTS = {
    "create": {"file_text": "written to {path}"},
    "str_replace": {"old_str": "replaced in {path}", "new_str": "written to {path}"},
    "insert": {"insert_text": "written to {path}"},
}
_HEREDOC = re.compile(r"<<-?[ \t]*(?P<quote>['\"]?)(?P<word>\w+)(?P=quote)")
_TARGET = re.compile(r"""(?:>>?[ \t]*|\btee[ \t]+(?:-a[ \t]+)?)(?P<path>"[^"\n]+"|'[^'\n]+'|[^\s<>|&;"']+)""")


class Trim(Hook):
    """Shortens what a call carried, if it ran well."""

    def __init__(self) -> None:
        self._session: Session | None = None

    async def between(self, session: Session) -> tuple[Any, ...]:
        """Take note of the session, whose last answer says whether thinking is bound to a call; add nothing."""
        self._session = session
        return ()

    async def outcome(self, call: ev.Block, outcome: Outcome) -> Outcome:
        """Return the outcome with shorter arguments for the call, where it ran well and had long ones."""
        if outcome.is_error or self._session is None or _is_thought_about(self._session, call):
            return outcome
        arguments = trimmed(call["name"], call["input"])
        return outcome if arguments is None else replace(outcome, trimmed=arguments)


def _is_thought_about(session: Session, call: ev.Block) -> bool:
    """Tell whether thinking follows the call in its own answer: it is bound to the call as the model wrote it."""
    answer = session.last(ev.AssistantMessage)
    blocks = [] if answer is None else answer.content
    at = next((index for index, block in enumerate(blocks) if block.get("id") == call["id"]), len(blocks))
    return any("thinking" in block["type"] for block in blocks[at:])


def trimmed(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a call's arguments with their documents cut to a few lines, every value of the type it had.

    None where nothing is long enough. Pure.
    """
    if tool == "bash":
        changed = _shorter(arguments, "command", _without_heredocs)
    elif tool == _EDITOR:
        path = str(arguments.get("path", ""))
        changed = {}
        for name, words in _DOCUMENTS.get(str(arguments.get("command")), {}).items():
            changed |= _shorter(arguments, name, partial(_head, where=words.format(path=path)))
    else:
        changed = {}
    return {**arguments, **changed} if changed else None


def _shorter(arguments: Mapping[str, Any], name: str, cut: Callable[[str], str]) -> dict[str, str]:
    text = arguments.get(name)
    if not isinstance(text, str) or len(text) <= MOST_CHARACTERS:
        return {}
    after = cut(text)
    return {name: after} if len(after) < len(text) else {}


def _head(text: str, where: str) -> str:
    """Return the first lines of a document, with what became of the rest."""
    kept = text[: text.rfind("\n", 0, _HEAD) + 1] or text[: _HEAD // 2]
    return kept + trimmed_mark(len(text) - len(kept), where)


def _without_heredocs(command: str) -> str:
    """Return a command with the here-documents cut that go to a file: nothing would hold the text of another one."""
    lines = command.split("\n")
    bare = [line.lstrip("\t") for line in lines]
    done: list[str] = []
    at = 0
    while at < len(lines):
        started = _HEREDOC.search(lines[at])
        end = _find(bare, started["word"], at + 1) if started else None
        if end is None:
            done.append(lines[at])
            at += 1
        else:
            done += [lines[at], _cut(lines[at], "\n".join(lines[at + 1 : end])), lines[end]]
            at = end + 1
    return "\n".join(done)


def _find(lines: list[str], word: str, start: int) -> int | None:
    try:
        return lines.index(word, start)
    except ValueError:
        return None


def _cut(first: str, body: str) -> str:
    target = _TARGET.search(first)
    if target is None or len(body) <= MOST_CHARACTERS:
        return body
    return _head(body, f"written to {target['path'].strip(chr(34) + chr(39))}")
