"""Images that a person attached to a unit: read from its worktree at the base, shown with the goal, never dropped."""

from collections.abc import Sequence
from pathlib import Path

from workers import images
from workers.errors import ImageRefused, ToolError
from workers.session.events import Block
from workers.tools import beneath

__all__ = ["read"]


def read(root: Path, names: Sequence[str]) -> list[Block]:
    """Return the blocks that show the images at these paths, each behind a line with its name. Blocking.

    Raises ImageRefused, naming the file: without it the goal would not say what its author means.
    """
    return [block for name in names for block in _shown(root, name)]


def _shown(root: Path, name: str) -> list[Block]:
    try:
        data = beneath.read_bytes(root, beneath.relative(root, name))
        picture = images.prepared(data)
    except ImageRefused as error:
        raise ImageRefused(f"attached {name} cannot be shown: {error.reason}") from error
    except ToolError as error:
        raise ImageRefused(f"attached {name} cannot be read at the unit's base: {error}") from error
    return [{"type": "text", "text": f"Attached: `{name}` {picture.words}"}, picture.block]
