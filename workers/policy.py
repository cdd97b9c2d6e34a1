"""Policy: what becomes of a tool call before it runs (spec A4). Pure.

A rule is `tool` or `tool: pattern`. A deny always wins. Otherwise the rule that says more wins: one with a pattern over
one for a whole tool, a whole tool over a glob of names such as `*`; where two say as much, ask wins over allow. A call
that no rule matches is allowed. It is a fence against mistakes: a shell has more ways to say a thing than any pattern.
"""

import posixpath
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import dropwhile
from typing import Any, Literal

from workers.orders import Rule
from workers.session.transcript import harmless
from worktrees.globs import is_match

__all__ = ["WORDS_LIMIT", "Decision", "decide", "offered", "stricter", "words_of"]

WORDS_LIMIT = 200
"""Characters of a call as people read it; the whole of it is in the session log."""

_EDITOR = "str_replace_based_edit_tool"
_SEVERITY = {"allow": 0, "ask": 1, "deny": 2}
_GLOB = re.compile(r"[*?\[]")

# What a shell may begin another command behind. Quotes are not looked at: a part too many only asks more often.
_NEW_COMMAND = re.compile(r"[;&|\n()`]|(?<![\w$]){(?=\s)|(?<=\s)-(?:exec|ok)(?:dir)?(?=\s)")
# `2>&1` and `>/dev/null` change nothing; any other redirection writes somewhere, so what it names is a part of its own.
_HARMLESS_REDIRECTION = re.compile(r"(?<!\S)(?:[0-9]*>&[0-9](?!\S)|(?:[0-9]*|&)>>?\s*/dev/null(?!\S))")
_REDIRECTION = re.compile(r"[0-9]*>{1,2}\|?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_ASSIGNED = re.compile(r"""(?<!\S)[A-Za-z_]\w*\+?=(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\;&|()`])*\s""", re.DOTALL)
# Words behind which another command stands. Their options, numbers and assignments are passed over with them.
_WRAPPERS = frozenset(
    {
        *("!", "{", "if", "then", "elif", "else", "while", "until", "do", "time", "command", "builtin", "exec", "eval"),
        *("env", "sudo", "doas", "nohup", "nice", "ionice", "setsid", "stdbuf", "timeout", "xargs", "watch", "coproc"),
        *("bash", "sh", "dash", "zsh", "busybox"),
    }
)
_MOST_READINGS = 40  # of a simple command: who wraps it deeper makes no mistake, and must not hold everybody up
_PASSED_OVER = re.compile(r"-\S*|\{|[0-9]+(?:\.[0-9]+)?[smhd]?")


@dataclass(frozen=True, slots=True)
class Decision:
    """`rule` is the one that decided, as it was written; "" where none did."""

    then: Literal["allow", "ask", "deny"]
    rule: str = ""


def decide(rules: Sequence[Rule], tool: str, arguments: Mapping[str, Any]) -> Decision:
    """Return what becomes of a call. The order of `rules` does not matter.

    Of a shell command with several parts a deny or an ask needs only one; for an allow each part must be allowed.
    """
    found = [rule for rule in rules if _matches(rule, tool, arguments, rules)]
    if not found:
        return Decision("allow")
    rule = max(found, key=_weight)
    return Decision(rule.then, rule.what)


def stricter(*decisions: Decision) -> Decision:
    """Return the strictest of decisions, the first of equals: an agent's own policy never loosens the night's."""
    return max(decisions, key=lambda one: _SEVERITY[one.then])


def offered(rules: Iterable[Rule], names: Iterable[str]) -> list[str]:
    """Return the tools that are not denied altogether: those are not even offered (spec A24)."""
    denied = [rule.what for rule in rules if rule.then == "deny" and _split(rule.what)[1] is None]
    return [name for name in names if not all(_is_named(denied, alias) for alias in _aliases(name))]


def words_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return what people read of a call: one harmless line of at most WORDS_LIMIT characters.

    A line break shows as ⏎, and what was left out in the middle as its length: nobody approves what is hidden unawares.
    """
    text = re.sub(r"\s+", " ", harmless(_said(tool, arguments).strip().replace("\n", " ⏎ "))).strip()
    if len(text) <= WORDS_LIMIT:
        return text
    gap = f" … {len(text) - WORDS_LIMIT + 40:,} more characters … "
    room = WORDS_LIMIT - len(gap)
    return text[: room * 2 // 3] + gap + text[-(room // 3) :]


def _said(tool: str, arguments: Mapping[str, Any]) -> str:
    if tool == "bash":
        return f"bash: {arguments.get('command', '')}"
    if tool == _EDITOR:
        texts = (arguments.get(name) for name in ("file_text", "new_str", "insert_text"))
        size = sum(len(text) for text in texts if isinstance(text, str))
        new = f" ({size:,} characters)" if size else ""
        return f"{_aliases(tool, arguments)[1]}: {arguments.get('path', '')}, {arguments.get('command', '')}{new}"
    return f"{tool}: {'  '.join(f'{name}={value}' for name, value in arguments.items())}"


# -- rules ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1_000)
def _split(what: str) -> tuple[str, str | None]:
    """Return a rule's tool and its pattern; None: the whole tool."""
    tool, colon, pattern = what.partition(":")
    return tool.strip(), pattern.strip() if colon and pattern.strip() not in ("", "*") else None


def _weight(rule: Rule) -> tuple[bool, int, int]:
    tool, pattern = _split(rule.what)
    specific = 2 if pattern is not None else int(not _GLOB.search(tool))
    return rule.then == "deny", specific, _SEVERITY[rule.then]


def _aliases(tool: str, arguments: Mapping[str, Any] | None = None) -> list[str]:
    """Return the names that a rule may call a tool by: the editor's looks are `view`, its changes `edit`.

    Without arguments: one list per tool, whose names must all be denied until nothing of it is left.
    """
    if tool != _EDITOR:
        return [tool]
    if arguments is None:
        return ["view", "edit"]
    return [tool, "view" if arguments.get("command") == "view" else "edit"]


def _is_named(denied: Sequence[str], alias: str) -> bool:
    names = (alias, _EDITOR) if alias in ("view", "edit") else (alias,)
    return any(fnmatchcase(name, _split(what)[0]) for what in denied for name in names)


def _matches(rule: Rule, tool: str, arguments: Mapping[str, Any], others: Sequence[Rule]) -> bool:
    named, pattern = _split(rule.what)
    if tool == "ask" and rule.then == "ask":  # nobody is asked whether they may be asked
        return False
    if not any(fnmatchcase(name, named) for name in _aliases(tool, arguments)):
        return False
    if pattern is None:
        return True
    if tool == "bash" and rule.then == "allow":
        return _allows_command(pattern, _allowed_commands(others), arguments.get("command"))
    if tool == "bash":
        return _matches_command(pattern, arguments.get("command"))
    if tool == _EDITOR:
        return _matches_path(rule.then, pattern, arguments.get("path"))
    texts = [value for value in arguments.values() if isinstance(value, str)]
    return _enough(rule.then, [fnmatchcase(text, pattern) for text in texts])


def _enough(then: str, hits: Sequence[bool]) -> bool:
    return bool(hits) and (all(hits) if then == "allow" else any(hits))


# -- paths ------------------------------------------------------------------------------------------------------------


def _matches_path(then: str, pattern: str, path: object) -> bool:
    """Match a path as `[verify] protect` does.

    An absolute one may be meant by each of its ends, because where the worktree is, is not known here: that is enough
    to deny or to ask, never to allow.
    """
    if not isinstance(path, str) or not path:
        return False
    plain = posixpath.normpath(path)
    if not plain.startswith("/"):
        return is_match(plain, [pattern])
    parts = plain.strip("/").split("/")
    ends = ["/".join(parts[at:]) for at in range(len(parts))]
    return then != "allow" and any(is_match(end, [pattern]) for end in ends)


# -- shell commands ---------------------------------------------------------------------------------------------------


def _matches_command(pattern: str, command: object) -> bool:
    """Match a shell command, or a part of it: `*` stands for anything, also for slashes and spaces."""
    return isinstance(command, str) and any(_is_like(form, pattern) for form in _forms(command))


def _allowed_commands(rules: Iterable[Rule]) -> list[str]:
    split = (_split(rule.what) for rule in rules if rule.then == "allow")
    return [pattern for tool, pattern in split if pattern is not None and fnmatchcase("bash", tool)]


def _allows_command(pattern: str, patterns: Sequence[str], command: object) -> bool:
    """Tell whether each part of a command is allowed by some pattern, and one of them by this one."""
    parts = _parts(command) if isinstance(command, str) else []
    is_named = any(_is_like(part, pattern) for part in parts)
    return is_named and all(any(_is_like(part, one) for one in patterns) for part in parts)


def _is_like(words: str, pattern: str) -> bool:
    """Match words with a glob; `git push *` is also `git push` alone."""
    return fnmatchcase(words, pattern) or (pattern.endswith(" *") and fnmatchcase(words, pattern[:-2]))


def _parts(command: str) -> list[str]:
    """Return the simple commands that a command may consist of, and what it redirects to."""
    joined = command.replace("\\\n", " ")
    plain = _HARMLESS_REDIRECTION.sub(" ", joined)
    pieces = [piece for part in _NEW_COMMAND.split(plain) for piece in _redirected(part)]
    return [words for piece in pieces if (words := " ".join(piece.split())) not in ("", "$")]


def _redirected(part: str) -> Iterator[str]:
    """Yield a part, and each file it writes to as a part of its own that begins with `>`."""
    first, *targets = _REDIRECTION.split(part)
    yield first
    for target in targets:
        yield f"> {target}"


def _forms(command: str) -> Iterator[str]:
    """Yield every way to read a command that a deny or an ask should see through: parts, quotes, wrappers, paths."""
    yield command.strip()
    joined = command.replace("\\\n", " ")
    for text in (joined, _unquoted(joined), _unquoted(_ASSIGNED.sub("", joined))):
        yield " ".join(text.split())
        for part in _parts(text):
            yield part
            yield from _unwrapped(part.split())


def _unquoted(text: str) -> str:
    return re.sub(r"[\"'\\]", "", text)


def _unwrapped(words: list[str]) -> Iterator[str]:
    """Yield what is left of a simple command without assignments, wrappers, options and the folder of its program."""
    due = deque([words])
    for _ in range(_MOST_READINGS):
        if not due:
            return
        bare = list(dropwhile(_ASSIGNMENT.match, due.popleft()))
        if not bare:
            continue
        program = posixpath.basename(bare[0])
        yield " ".join([program, *bare[1:]])
        for behind in _behind(bare):
            if program in _WRAPPERS:
                due.append(behind)
            else:  # `git -C . push` is a `git push`
                yield " ".join([program, *behind])


def _behind(words: list[str]) -> Iterator[list[str]]:
    """Yield what may stand behind a program's first options, of which each may have the next word for its argument."""
    at = 1
    for _ in range(_MOST_READINGS):
        first = at
        at = next((at for at in range(first, len(words)) if not _is_passed_over(words[at])), len(words))
        yield words[at:]
        if not first < at < len(words) or not words[at - 1].startswith("-"):
            return
        at += 1


def _is_passed_over(word: str) -> bool:
    return bool(_PASSED_OVER.fullmatch(word) or _ASSIGNMENT.match(word))
