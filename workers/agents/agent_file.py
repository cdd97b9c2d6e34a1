"""Agents' files, `.overnight/agents/<name>.md`: the shape of Claude Code's agents, with effort, skills and a policy.

What Claude Code knows and we do not have is passed over with a note; what nobody knows is an error.
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from workers.errors import BundleFileError
from workers.orders import Rule

from .front_matter import FrontMatter, read_front_matter

__all__ = [
    "AGENTS_PATH",
    "BUILT_IN",
    "EDITOR",
    "AgentFile",
    "agent_names",
    "load_agent",
    "parse_agent",
    "path_of",
    "policy_rule",
]

AGENTS_PATH = Path(".overnight/agents")
"""Relative to the checkout."""

BUILT_IN = ("coder",)
"""Agents that need no file; a file of the same name takes its place."""

EDITOR = "str_replace_based_edit_tool"

_MOST_BYTES = 256 * 1024  # instructions go out with every call: more is a file that got here by mistake
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"

# What an agent may be given, by the names that people use: ours, the API's and Claude Code's.
_POWERS: Mapping[str, str] = {
    **{name: name for name in ("bash", "edit", "view", "ask", "update_tasks", "skill", EDITOR)},
    "Bash": "bash",
    "Edit": "edit",
    "Write": "edit",
    "MultiEdit": "edit",
    "Read": "view",
    "AskUserQuestion": "ask",
    "TodoWrite": "update_tasks",
    "Skill": "skill",
}
_BOTH = frozenset({"view", "edit"})  # of the one editor that the API has
_ELSEWHERE = re.compile(
    r"Glob|Grep|LS|NotebookRead|NotebookEdit|WebFetch|WebSearch|Task\w*|Agent|BashOutput|KillShell|KillBash|Monitor"
    r"|ExitPlanMode|EnterPlanMode|SlashCommand|ListMcpResourcesTool|ReadMcpResourceTool|mcp__\S+"
)
_CLAUDE_KEYS = frozenset(
    {
        *("color", "permissionMode", "maxTurns", "mcpServers", "hooks", "memory", "background", "isolation"),
        "initialPrompt",
    }
)
# Claude Code's short names of models.
_SHORT = {"sonnet": "claude-sonnet-5-5", "opus": "claude-opus-5-5", "haiku": "claude-haiku-5-5"}


@dataclass(frozen=True, slots=True)
class AgentFile:
    """An agent as its file says. None means: all tools, all skills, and the config's model and effort.

    `tools` are names of the API; `rules` are the agent's own policy. `path` is relative to the checkout, None for the
    built-in one; `notes` say what was passed over.
    """

    name: str
    path: Path | None
    description: str = ""
    model: str | None = None
    tools: frozenset[str] | None = None
    effort: Literal["off", "low", "medium", "high"] | None = None
    skills: tuple[str, ...] | None = None
    rules: tuple[Rule, ...] = ()
    instructions: str = ""
    notes: tuple[str, ...] = ()
    lines: Mapping[str, int] | None = None

    def fault(self, message: str, field: str) -> BundleFileError:
        """Return an error about one field of the file."""
        assert self.path is not None
        return BundleFileError(message, path=self.path, line=(self.lines or {}).get(field), field=field)


# -- reading ----------------------------------------------------------------------------------------------------------


def path_of(name: str) -> Path:
    """Return where an agent's file would be, relative to the checkout."""
    return AGENTS_PATH / f"{name}.md"


def agent_names(root: Path) -> list[str]:
    """Return the agents of the checkout at `root`, whatever their files hold, and the built-in ones, sorted."""
    try:
        found = [path.stem for path in (root / AGENTS_PATH).iterdir() if path.suffix == ".md" and path.name[0] != "."]
    except (FileNotFoundError, NotADirectoryError):
        found = []
    except OSError as error:
        raise BundleFileError(f"cannot be read: {error.strerror}", path=AGENTS_PATH) from error
    return sorted({*found, *BUILT_IN})


def load_agent(root: Path, name: str) -> AgentFile:
    """Return an agent as its file is now, else the built-in one. Raises BundleFileError listing every fault."""
    if not re.fullmatch(_NAME, name):
        raise BundleFileError(f"{name!r} cannot be the name of an agent", path=AGENTS_PATH)
    path = path_of(name)
    try:
        data = _read(root / path)
    except FileNotFoundError as error:
        if name in BUILT_IN:
            return _built_in(name)
        raise BundleFileError(_missing(root, name), path=path) from error
    except OSError as error:
        raise BundleFileError(f"cannot be read: {error.strerror or error}", path=path) from error
    try:
        return parse_agent(data.decode("utf-8"), path)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BundleFileError("is not UTF-8; save it as UTF-8", path=path, line=line) from None


def _missing(root: Path, name: str) -> str:
    near = get_close_matches(name, agent_names(root), n=1)
    return f"there is no such agent; did you mean {near[0]!r}?" if near else "there is no such agent; write this file"


def _read(path: Path) -> bytes:
    """Read a file of the checkout; a FIFO in its place must not hold us. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(None, "it is not a plain file")
        if found.st_size > _MOST_BYTES:
            raise OSError(None, f"it has {found.st_size:,} bytes; instructions have at most {_MOST_BYTES:,}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_MOST_BYTES)
    finally:
        os.close(descriptor)


@cache
def _built_in(name: str) -> AgentFile:
    text = files("workers.agents").joinpath("builtin", f"{name}.md").read_text("utf-8")
    front = read_front_matter(text, path_of(name))
    return AgentFile(name, None, description=str(front.values["description"]), instructions=front.body)


# -- what a file says -------------------------------------------------------------------------------------------------


def _names(value: object) -> object:
    """Take a list, or names with commas between them; nothing at all could mean all or none."""
    if value == "":
        raise ValueError("names nothing: write [] for none, or delete the line for all")
    if isinstance(value, str):
        return tuple(name for part in value.split(",") if (name := part.strip()))
    return value


def _one_is_a_list(value: object) -> object:
    return (value,) if isinstance(value, str) and value else value or ()


def policy_rule(value: str) -> str:
    """Return a rule of a policy, with Claude Code's names made ours: a misspelt deny would deny nothing.

    Raises ValueError.
    """
    named, colon, pattern = value.partition(":")
    tool = named.strip()
    if colon and not pattern.strip():
        raise ValueError('a rule looks like "bash" or "bash: git push*": a tool, and a pattern for its command or path')
    if re.search(r"[*?\[]", tool):
        return value
    if tool not in _POWERS:
        raise ValueError(_unknown_tool(tool))
    return f"{_POWERS[tool]}:{pattern}" if colon else _POWERS[tool]


def _unknown_tool(name: str) -> str:
    near = get_close_matches(name, [*_POWERS], n=1)
    hint = f"did you mean {near[0]!r}?" if near else "there are bash, edit, view, ask, update_tasks and skill"
    return f"there is no tool {name!r}; {hint}"


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Rules = Annotated[tuple[Annotated[str, AfterValidator(policy_rule)], ...], BeforeValidator(_one_is_a_list)]


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Policy(_Closed):
    allow: Rules = ()
    ask: Rules = ()
    deny: Rules = ()


class _Front(_Closed):
    name: str | None = None
    description: str = ""
    model: Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)] = "inherit"
    tools: Names | None = None
    disallowed: Annotated[Names, Field(alias="disallowedTools")] = ()
    effort: Literal["off", "low", "medium", "high"] | None = None
    skills: Names | None = None
    policy: _Policy = _Policy()


def parse_agent(text: str, path: Path) -> AgentFile:
    """Read the text of the agent's file `path`, whose name is the agent's. Raises BundleFileError with all faults."""
    front = read_front_matter(text, path)
    if "\0" in front.body:
        raise BundleFileError("the instructions contain a NUL character; delete it", path=path, line=front.body_line)
    passed_over = [key for key in front.values if key in _CLAUDE_KEYS]
    try:
        said = _Front.model_validate({key: value for key, value in front.values.items() if key not in _CLAUDE_KEYS})
    except ValidationError as error:
        raise _all(front, [_fault(front, fault) for fault in error.errors()]) from None
    faults = [*_wrong_name(front, said), *_wrong_tools(front, "tools", said.tools or ())]
    faults += _wrong_tools(front, "disallowedTools", said.disallowed)
    if faults:
        raise _all(front, faults)
    notes = [f"{key} is Claude Code's; it means nothing here" for key in passed_over]
    notes += [f"there is no tool {name} here" for name in said.tools or () if _ELSEWHERE.fullmatch(name)]
    powers = _powers(said)
    return AgentFile(
        name=path.stem,
        path=path,
        description=" ".join(said.description.split()),
        model=None if said.model == "inherit" else _SHORT.get(said.model, said.model),
        tools=None if powers is None else frozenset(EDITOR if power in _BOTH else power for power in powers),
        effort=said.effort,
        skills=None if said.skills is None else tuple(name.removeprefix("builtin:") for name in said.skills),
        rules=(*_half_an_editor(powers), *_rules(said.policy)),
        instructions=front.body or _built_in("coder").instructions,
        notes=tuple(notes),
        lines={key: front.line(key) for key in front.values},
    )


def _powers(said: _Front) -> frozenset[str] | None:
    """Return what the agent may do; None: everything. Whoever may edit may look, too."""
    is_all = said.tools is None or "*" in said.tools
    if is_all and not said.disallowed:
        return None
    given = _meant(_POWERS) if is_all else _meant(said.tools or ())
    given |= _BOTH if "edit" in given else frozenset()
    return given - _meant(said.disallowed)


def _meant(names: Iterable[str]) -> frozenset[str]:
    found = {_POWERS[name] for name in names if name in _POWERS}
    return frozenset(found - {EDITOR} | (_BOTH if EDITOR in found else set()))


def _half_an_editor(powers: frozenset[str] | None) -> list[Rule]:
    """Return what keeps an agent that may only read from editing: both are one tool of the API."""
    if powers is None or not powers & _BOTH:
        return []
    return [Rule(what=half, then="deny") for half in sorted(_BOTH - powers)]


def _rules(given: _Policy) -> list[Rule]:
    return [
        *(Rule(what=what, then="allow") for what in given.allow),
        *(Rule(what=what, then="ask") for what in given.ask),
        *(Rule(what=what, then="deny") for what in given.deny),
    ]


# -- faults -----------------------------------------------------------------------------------------------------------


def _all(front: FrontMatter, faults: list[BundleFileError]) -> BundleFileError:
    """Return one error for all; it names the first."""
    first = min(faults, key=lambda fault: fault.line or 0)
    ordered = tuple(sorted(faults, key=lambda fault: fault.line or 0))
    return BundleFileError(first.message, path=front.path, line=first.line, field=first.field, problems=ordered)


def _fault(front: FrontMatter, fault: Mapping[str, Any]) -> BundleFileError:
    keys = tuple(str(part) for part in fault["loc"])
    message = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        known = ["allow", "ask", "deny"] if keys[0] == "policy" else _known_keys()
        near = get_close_matches(keys[-1], known, n=1)
        message = f'unknown key; did you mean "{near[0]}"?' if near else f"unknown key; known: {', '.join(known)}"
    return front.fault(message, *keys)


def _known_keys() -> list[str]:
    return [field.alias or name for name, field in _Front.model_fields.items()]


def _wrong_name(front: FrontMatter, said: _Front) -> list[BundleFileError]:
    if not re.fullmatch(_NAME, front.path.stem):
        message = (
            f"the file's name is the agent's, which {front.path.stem!r} cannot be: use letters, digits, '-' and '_'"
        )
        return [BundleFileError(message, path=front.path)]
    if said.name in (None, front.path.stem):
        return []
    return [front.fault(f"is {said.name!r}, but the file's name says {front.path.stem!r}: make them the same", "name")]


def _wrong_tools(front: FrontMatter, key: str, names: tuple[str, ...]) -> list[BundleFileError]:
    def where(number: int) -> tuple[str, ...]:
        return (key, str(number)) if isinstance(front.values.get(key), list) else (key,)

    return [
        front.fault(
            "patterns belong under `policy`; name the tool alone" if "(" in name else _unknown_tool(name),
            *where(number),
        )
        for number, name in enumerate(names)
        if name not in _POWERS and name != "*" and not _ELSEWHERE.fullmatch(name)
    ]
