"""Front matter: lines of YAML between two `---`, then prose. Agents, skills and units are written so.

Every value is read as text, so that `effort: off` is "off". Lines are kept, so that a fault can be shown where it is.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from workers.errors import BundleFileError

__all__ = ["FrontMatter", "read_front_matter"]

_MARK = "---"
_LONGEST = 64 * 1024  # characters of front matter: a table of a few lines, which Python reads slowly
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A file in two: the table `values` and the prose `body`, which begins on line `body_line` (from 1)."""

    path: Path
    values: dict[str, Any]
    body: str
    body_line: int
    start: int
    node: yaml.MappingNode | None

    def line(self, *keys: str) -> int:
        """Return the file's line of the value at `keys`, as deep as there is one."""
        line, node = self.start, cast("yaml.Node | None", self.node)
        for key in keys:
            found = _find(node, key)
            if found is None:
                break
            line, node = self.start + found[0], found[1]
        return line

    def fault(self, message: str, *keys: str) -> BundleFileError:
        """Return an error that names the line of `keys`."""
        return BundleFileError(message, path=self.path, line=self.line(*keys), field=".".join(keys) or None)


def read_front_matter(text: str, path: Path, *, optional: bool = False) -> FrontMatter:
    """Take a file's text apart; `path` is for messages; `optional`: prose alone is fine. Raises BundleFileError."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _MARK:
        if optional:
            return FrontMatter(path, {}, "\n".join(lines).strip(), 1, 1, None)
        raise BundleFileError(f"begins with front matter: a line {_MARK!r}, keys, another {_MARK!r}", path=path, line=1)
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _MARK), None)
    if end is None:
        raise BundleFileError(f"the front matter never ends; close it with a line {_MARK!r}", path=path, line=1)
    matter = "\n".join(lines[1:end])
    if len(matter) > _LONGEST:
        raise BundleFileError(f"the front matter has more than {_LONGEST:,} characters", path=path, line=2)
    node, values = _table(matter, path)
    return FrontMatter(path, values, "\n".join(lines[end + 1 :]).strip(), end + 2, 2, node)


def _table(matter: str, path: Path) -> tuple[yaml.MappingNode | None, dict[str, Any]]:
    try:
        node = _read_yaml(matter)
        if node is None:
            return None, {}
        if not isinstance(node, yaml.MappingNode):
            raise BundleFileError("the front matter must be lines 'key: value'", path=path, line=2)
        for one in _nodes(node):
            _refuse(one, path)
        built = yaml.constructor.BaseConstructor().construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 2 + (mark.line if mark else 0)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        message = f"the front matter is not YAML: {what}; put values with ':' or '#' in quotes"
        raise BundleFileError(message, path=path, line=line) from None
    except RecursionError:
        raise BundleFileError("the front matter is nested too deeply", path=path, line=2) from None
    except (ValueError, OverflowError):  # what Python's reader stumbles over: "\\UFFFFFFFF"
        raise BundleFileError("the front matter names a character that there is not", path=path, line=2) from None
    return node, {str(key): value for key, value in cast("dict[object, Any]", built).items()}


def _read_yaml(text: str) -> yaml.Node | None:
    """Read with libyaml where there is one, many times as fast; what it cannot read is told of in Python's words."""
    if _FAST is not None:
        with suppress(yaml.YAMLError, UnicodeError):
            return yaml.compose(text, Loader=_FAST)
    return yaml.compose(text, Loader=yaml.BaseLoader)


_FAST = getattr(yaml, "CBaseLoader", None)


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Yield every node once, however often an alias names it: a few lines can stand for billions of values."""
    found, seen = [root], {id(root)}
    for node in found:  # grows while it is walked
        yield node
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        for part in parts:
            new = [one for one in (part if isinstance(part, tuple) else (part,)) if id(one) not in seen]
            seen.update(map(id, new))
            found += new


def _refuse(node: yaml.Node, path: Path) -> None:
    """Refuse a key that is there twice, of which YAML would keep the last, and what is no word or no text at all."""
    if isinstance(node, yaml.ScalarNode) and _HALF.search(node.value):
        line = 2 + node.start_mark.line
        raise BundleFileError("the front matter has half a character; write it whole", path=path, line=line)
    names: set[str] = set()
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        line = 2 + key.start_mark.line
        if not isinstance(key, yaml.ScalarNode):
            raise BundleFileError("a key must be a word", path=path, line=line)
        if key.value in names:
            raise BundleFileError("is there twice; delete one", path=path, line=line, field=key.value)
        names.add(key.value)


def _find(node: yaml.Node | None, key: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        pairs: Sequence[tuple[yaml.Node, yaml.Node]] = node.value
        return next(((one.start_mark.line, value) for one, value in pairs if str(one.value) == key), None)
    if isinstance(node, yaml.SequenceNode) and key.isdigit() and int(key) < len(node.value):
        item: yaml.Node = node.value[int(key)]
        return item.start_mark.line, item
    return None
