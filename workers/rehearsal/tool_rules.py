"""Rules about the `tools` of a request."""

import re
from collections.abc import Iterator

from workers.rehearsal.breakpoint_rules import cache_control
from workers.rehearsal.refusal import EXTRA, MISSING, Body, Refusal

__all__ = ["TOOL_NAME", "tools"]

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
# Types that the API defines itself, with the one name each goes by; they bring their own schema.
_OWN_TOOLS = {
    "bash_20250124": "bash",
    "text_editor_20250728": "str_replace_based_edit_tool",
}
_TOOL_FIELDS = {
    "custom": frozenset(
        {
            "allowed_callers",
            "cache_control",
            "defer_loading",
            "description",
            "eager_input_streaming",
            "input_examples",
            "input_schema",
            "name",
            "strict",
            "type",
        }
    ),
    "bash_20250124": frozenset(
        {"allowed_callers", "cache_control", "defer_loading", "input_examples", "name", "strict", "type"}
    ),
    "text_editor_20250728": frozenset(
        {
            "allowed_callers",
            "cache_control",
            "defer_loading",
            "input_examples",
            "max_characters",
            "name",
            "strict",
            "type",
        }
    ),
}


def tools(body: Body) -> Iterator[Refusal]:
    """Each tool on its own, and that no two have the same name."""
    listed = body.get("tools")
    if listed is None:
        return
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed):
        yield Refusal("tools: Input should be a valid list of tools")
        return
    for index, tool in enumerate(listed):
        yield from _tool(tool, index)
    names = [tool.get("name") for tool in listed]
    if len(set(names)) < len(names):
        yield Refusal("tools: Tool names must be unique.")


def _tool(tool: Body, index: int) -> Iterator[Refusal]:
    kind = tool.get("type") or "custom"
    if not isinstance(kind, str) or kind not in _TOOL_FIELDS:
        known = ", ".join(repr(name) for name in _TOOL_FIELDS)
        yield Refusal(f"tools.{index}: Input tag {kind!r} found using 'type' does not match any of: {known}")
        return
    where = f"tools.{index}.{kind}"
    yield from (Refusal(f"{where}.{field}: {EXTRA}") for field in tool if field not in _TOOL_FIELDS[kind])
    yield from _tool_name(tool.get("name"), kind, where)
    if kind == "custom":
        yield from _schema(tool, where)
    yield from cache_control(tool, f"{where}.cache_control")


def _tool_name(name: object, kind: str, where: str) -> Iterator[Refusal]:
    if not isinstance(name, str):
        yield Refusal(f"{where}.name: {MISSING}")
    elif kind in _OWN_TOOLS and name != _OWN_TOOLS[kind]:
        yield Refusal(f"{where}.name: Input should be {_OWN_TOOLS[kind]!r}")
    elif not TOOL_NAME.fullmatch(name):
        yield Refusal(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")


def _schema(tool: Body, where: str) -> Iterator[Refusal]:
    schema = tool.get("input_schema")
    if schema is None:
        yield Refusal(f"{where}.input_schema: {MISSING}")
    elif not isinstance(schema, dict) or schema.get("type") != "object":
        yield Refusal(f"{where}.input_schema.type: Input should be 'object'")
