"""Images: when a call would carry more than twenty, those in all tool results but the newest give way (spec A23).

The surface does it, at one event of the log, and drops thinking with them; that one call pays the cache again.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from workers.session import events as ev
from workers.session.session import Session

from .hook import Hook

__all__ = ["MOST_IMAGES", "Images", "carried"]

MOST_IMAGES = 20
"""Above it the API takes none with more than 2000 pixels a side, and each of them is paid for with every call."""


class Images(Hook):
    """Counts only when something new has an image: a step costs its own events, not the whole history."""

    def __init__(self) -> None:
        self._seen = 0  # events of the session

    async def between(self, session: Session) -> Sequence[Any]:
        """Return the event that drops images, where the next call would carry too many and some can go."""
        new, self._seen = session.events[self._seen :], len(session.events)
        if not any(_has_images(event) for event in new):
            return ()
        attached, results = carried(session.surface.messages)
        if attached + sum(results) <= MOST_IMAGES or len(results) < 2:
            return ()
        return (ev.ImagesDropped(),)


def _has_images(event: Any) -> bool:
    return isinstance(event, ev.ToolResult) and bool(event.images)


def carried(messages: Iterable[dict[str, Any]]) -> tuple[int, list[int]]:
    """Return how many images people attached, and how many each tool result has that has some. Pure."""
    attached, results = 0, []
    for message in messages:
        for block in message["content"]:
            inner = block.get("content") if block["type"] == "tool_result" else None
            count = sum(part["type"] == "image" for part in inner) if isinstance(inner, list) else 0
            attached += block["type"] == "image"
            results += [count] if count else []
    return attached, results
