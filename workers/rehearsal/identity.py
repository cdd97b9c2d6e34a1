"""Who is asking: the unit, attempt and step that a request belongs to, read from the request alone."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workers.rehearsal.history import bare, blocks_of, link
from workers.rehearsal.script import Scene

__all__ = ["Asker", "identify"]

_LINE = re.compile(r"^(unit|attempt|session|step):[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Asker:
    """A scene and the key of the session that it belongs to."""

    scene: Scene
    session: str


def _texts(content: Any) -> Iterator[str]:
    return (block["text"] for block in blocks_of(content) if block.get("type") == "text")


def _user_text(message: dict[str, Any]) -> str:
    return "\n".join(_texts(message["content"])) if message["role"] == "user" else ""


def _lines(*texts: str) -> dict[str, str]:
    """Return the first `unit:`, `attempt:`, `session:` and `step:` line that is found, earlier texts first."""
    found: dict[str, str] = {}
    for text in texts:
        for name, value in _LINE.findall(text):
            found.setdefault(name, value)
    return found


def identify(body: dict[str, Any]) -> Asker:
    """Read who asks from the system prompt or the first user message; a request without the lines is unit "".

    A context that starts anew after a compaction may say with `step: <n>` how many answers came before it: the script
    goes on there, and the prefix rule starts afresh.
    """
    messages = body["messages"]
    system, first = "\n".join(_texts(body.get("system"))), _user_text(messages[0])
    lines = _lines(system, first)
    done = _number(lines.get("step"), 0)
    scene = Scene(
        unit=lines.get("unit", ""),
        attempt=_number(lines.get("attempt"), 1),
        step=done + sum(message["role"] == "assistant" for message in messages),
        model=body["model"],
        system=system,
        first=first,
        last=_last_user_text(messages),
    )
    own = lines.get("session") or _fingerprint(messages[0]["content"])
    return Asker(scene, f"{scene.unit}\n{scene.attempt}\n{own}\n{done}")


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isdecimal() else otherwise


def _fingerprint(content: Any) -> str:
    return link(b"", "", [bare(block) for block in blocks_of(content)]).hex()


def _last_user_text(messages: list[dict[str, Any]]) -> str:
    return next((_user_text(message) for message in reversed(messages) if message["role"] == "user"), "")
