"""Evidence: what a session shows was done, and which claims of a final text nothing of it supports (spec A22). Pure.

It is for people, who read the claims in the morning, so it keeps silent wherever there is a doubt: a claim counts only
in plain words, about one thing in backticks or about the tests, in a sentence that denies and excepts nothing.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from .session import events as ev
from .session.transcript import harmless

__all__ = ["Evidence", "Run", "collect", "unsupported"]

_MOST = 10  # lines: who claims more than that without support is known well enough
_EDITOR = "str_replace_based_edit_tool"
_CHANGED = (
    r"(?:added|changed|updated|created|wrote|fixed|edited|modified|removed|deleted|renamed|refactored|rewrote|"
    r"implemented|documented|extended|adjusted|corrected)"
)
_CHANGES = re.compile(rf"\b{_CHANGED}\b", re.IGNORECASE)
# The last word before a path that is itself what was changed: "fixed the crash in `a.py`", not "to read `a.py`".
_LEADS_TO_A_PATH = re.compile(
    rf"(?:\b(?:in|to|into|inside|within|file|files|module|both|and)|{_CHANGED})[\s,]*(?:the\s+)?\Z", re.IGNORECASE
)
_LISTED = re.compile(rf"\s*(?:[-*]|\d+\.)\s+\**`([^`\n]+)`\**\s*[:\u2013\u2014\u2192-]\s*{_CHANGED}\b", re.IGNORECASE)
_DOUBT = re.compile(
    r"\b(?:not|never|no|nor|neither|none|without|unchanged|untouched|cannot|except|but|only|unless|if|would|could|should|"
    r"might|may|will|todo|before|previously|originally|already|instead|skip(?:s|ped)?|fail(?:s|ed|ing|ures?)?|pre-existing|"
    r"expected)\b|n['\u2019]t\b|\?",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+(?=[^a-z])|\n+")
_QUOTED = re.compile(r"`([^`\n]+)`")
_FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"[\w.@+-]+(?:/[\w.@+-]+)*/?")
_SUFFIX = re.compile(
    "bash|c|cc|cfg|cpp|cs|css|csv|go|h|hpp|html|ini|java|jsx?|json|kt|lock|lua|md|mjs|php|pl|proto|pyi?|rb|rs|rst|scala|"
    "scss|sh|sql|svelte|svg|swift|tf|toml|tsx?|txt|vue|xml|ya?ml"
)
_NAMES = frozenset({"Makefile", "Dockerfile", "Justfile", "Procfile", "Gemfile", "Rakefile", ".gitignore", "LICENSE"})
_NO_FILES = frozenset({"node.js", "vue.js", "next.js", "nuxt.js", "express.js", "three.js", "d3.js", "asp.net"})
_RAN = re.compile(r"\b(?:ran|re-ran|reran|executed)\s+(?:the\s+)?(?:command\s+)?\Z", re.IGNORECASE)
_WORKED = re.compile(
    r"\s*(?:now\s+)?(?:passes|passed|succeeds|succeeded|is green|is clean|runs clean|exits 0|exited 0|completes)"
    r"(?:\s+(?:now|cleanly|successfully|again))?\s*(?:$|[.,;:)!]|\band\b|\bwith\b)",
    re.IGNORECASE,
)
_PROGRAM = re.compile(
    r"bash|bun|bundle|cargo|cmake|composer|ctest|deno|docker|dotnet|eslint|flake8|git|go|gradle|gulp|hatch|jest|just|make|"
    r"mocha|mvn|mypy|nox|npm|npx|phpunit|pip|pipenv|pnpm|poetry|pre-commit|pyright|pytest|python3?|rake|rspec|ruff|sh|tox|"
    r"tsc|uv|vitest|yarn|\./.*"
)
_TESTS_PASS = re.compile(
    r"\b(?:tests?|test suite|suite|unit tests|specs)\s+(?:now\s+|all\s+|still\s+)*(?:pass(?:es|ed)?|succeed(?:s|ed)?|"
    r"(?:are|is) (?:all )?(?:green|passing))\b",
    re.IGNORECASE,
)
# A program that runs tests, where a shell would start one.
_RUNS_TESTS = re.compile(
    r"(?:^|[;&|(]\s*|\s-m\s+|\b(?:run|exec|time|env)\s+|/bin/|\b\w+=\S*\s+)(?:pytest|unittest|tox|nox|jest|vitest|mocha|rspec|"
    r"phpunit|ctest|(?:npm|yarn|pnpm|bun|cargo|go|make|mvn|gradle|dotnet|mix|rake|just)\s+(?:run\s+)?(?:test|check))\b",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Run:
    """A command that was run, and how it ended; `ending` says so in words. Verify `is_test`, whatever it runs."""

    command: str
    ok: bool
    ending: str
    is_test: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a session shows: commands in order, those of verify among them, and the paths that edits touched."""

    runs: tuple[Run, ...]
    touched: frozenset[str]


def collect(history: Sequence[Any]) -> Evidence:
    """Return what a session's events show was run and edited."""
    calls: dict[str, tuple[str, dict[str, Any]]] = {}
    runs: list[Run] = []
    touched: set[str] = set()
    for event in history:
        match event:
            case ev.AssistantMessage():
                blocks = (block for block in event.content if block["type"] == "tool_use")
                calls |= {block["id"]: (block["name"], block["input"]) for block in blocks}
            case ev.ToolCall() if event.repaired is not None:
                calls[event.call_id] = (event.name, event.repaired)
            case ev.ToolResult() if event.call_id in calls:
                name, given = calls[event.call_id]
                if name == "bash" and "exit_code" in event.facts:
                    command = str(given.get("command", ""))
                    is_test = _RUNS_TESTS.search(command) is not None
                    runs.append(Run(command, not event.is_error, _ending(event.facts), is_test))
                elif name == _EDITOR and not event.is_error and given.get("command") != "view":
                    touched.add(str(given.get("path", "")))
            case ev.VerifyResult():
                runs.append(Run(event.command, event.passed, _ending({"exit_code": event.exit_code}), is_test=True))
            case _:
                pass
    return Evidence(tuple(runs), frozenset(touched))


def _ending(facts: dict[str, Any]) -> str:
    if facts.get("timed_out"):
        return "was killed when its time was up"
    code = facts.get("exit_code")
    return "was killed" if code is None else f"ended with exit code {code}"


def unsupported(summary: str, history: Sequence[Any], changed_paths: Collection[str]) -> tuple[str, ...]:
    """Return the claims of a final text that nothing supports, each in a line: what is claimed and what was found.

    `changed_paths` are those of the checkpoint's diff against the base.
    """
    shown = collect(history)
    found = (line for sentence in _sentences(summary) for line in _of_sentence(sentence, shown, changed_paths))
    return tuple(dict.fromkeys(harmless(line).replace("\n", " ") for line in found))[:_MOST]


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences that deny, except and suppose nothing; what stands in backticks is not looked at for that."""
    for sentence in _SENTENCE.split(_FENCE.sub("\n", text)):
        if not _DOUBT.search(_QUOTED.sub("``", sentence)):
            yield sentence


def _of_sentence(sentence: str, shown: Evidence, changed: Collection[str]) -> Iterator[str]:
    for path in dict.fromkeys(_claimed_paths(sentence)):
        if not _is_touched(path, shown, changed):
            yield f"says that `{path}` was changed; neither the checkpoint nor any call shows it"
    for command, worked in _claimed_commands(sentence):
        last = next((run for run in reversed(shown.runs) if _is_same(command, run.command)), None)
        if last is None:
            yield f"says that `{command}` {'passes' if worked else 'was run'}; no such command was run"
        elif worked and not last.ok:
            yield f"says that `{command}` passes; its last run {last.ending}"
    if _TESTS_PASS.search(sentence) and (problem := _against_tests(shown)):
        yield f"says that tests pass; {problem}"


# -- files ------------------------------------------------------------------------------------------------------------


def _claimed_paths(sentence: str) -> Iterator[str]:
    """Yield the paths in backticks that a sentence says were changed."""
    if (listed := _LISTED.match(sentence)) and _is_path(listed[1]):
        yield listed[1]
    for quoted in _QUOTED.finditer(sentence):
        before = sentence[: quoted.start()]
        verb = next(reversed(list(_CHANGES.finditer(before))), None)
        if verb is None or not _is_path(quoted[1]):
            continue
        between = _QUOTED.sub("", before[verb.start() :])
        if len(between.split()) <= 10 and _LEADS_TO_A_PATH.search(between):
            yield quoted[1]


def _is_path(text: str) -> bool:
    if not _PATH.fullmatch(text) or text.lower() in _NO_FILES or text.startswith("-"):
        return False
    name = PurePosixPath(text).name
    stem, dot, suffix = name.rpartition(".")
    return name in _NAMES or bool(stem and dot and _SUFFIX.fullmatch(suffix))


def _is_touched(path: str, shown: Evidence, changed: Collection[str]) -> bool:
    """Tell whether anything names the path, or ends with it, or lies in it; a command that has its name counts too."""
    parts = PurePosixPath(path).parts
    for other in (*changed, *shown.touched):
        others = PurePosixPath(other).parts
        if others[-len(parts) :] == parts or others[: len(parts)] == parts or parts[-len(others) :] == others:
            return True
    return any(parts[-1] in run.command for run in shown.runs)


# -- commands ---------------------------------------------------------------------------------------------------------


def _claimed_commands(sentence: str) -> Iterator[tuple[str, bool]]:
    """Yield the commands in backticks that a sentence says were run, and whether it says that they worked."""
    for quoted in _QUOTED.finditer(sentence):
        command, after = quoted[1].strip(), sentence[quoted.end() :]
        if not _is_command(command):
            continue
        worked = _WORKED.match(after) is not None
        if worked or _RAN.search(sentence[: quoted.start()]):
            yield command, worked


def _is_command(text: str) -> bool:
    first = text.split(maxsplit=1)[0] if text else ""
    return _PROGRAM.fullmatch(first) is not None


def _is_same(claimed: str, run: str) -> bool:
    """Tell whether a command that was run may be the claimed one: it has all its words that are no options."""
    words = [word for word in re.split(r"[\s;&|]+", claimed) if word and not word.startswith("-") and "=" not in word]
    return all(word.removeprefix("./") in run for word in words)


def _against_tests(shown: Evidence) -> str:
    """Return what speaks against passing tests: their last run was red, or nothing was run at all; "" for nothing."""
    last = next((run for run in reversed(shown.runs) if run.is_test), None)
    if last is None:
        return "" if shown.runs else "nothing was run"
    first = last.command.strip().split("\n", 1)[0]
    return "" if last.ok else f"the last run of tests, `{first[:80]}`, {last.ending}"
