"""Raw reasoning leaves the runtime nowhere: a night of a model that shows its thinking, and every command's output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from night_stand import QUICK, Project, plays

MakeNight = Callable[..., Project]

MARKER = "xyzzy-4711"
BACKGROUND = "claude-haiku-5-5"
CONFIG = f"""{QUICK}
[model]
name = "claude-haiku-4-5"
background = "{BACKGROUND}"
[limits]
attempts = 1
rounds = 1
"""
UNITS = ("create-foo", "create-bar", "create-baz")
SUMMARY = "It compared two ways and took the shorter one."


def thinks(unit: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"blocks": [{"thinking": f"About {unit}: {MARKER} is the word, and it stays with me."}, *blocks]}


def bash(command: str) -> dict[str, Any]:
    return {"tool": "bash", "input": {"command": command}}


def script() -> dict[str, Any]:
    """One unit passes, one fails, one asks; the background model sums up the first and copies the second."""
    foo, bar, baz = UNITS
    ends = {"text": "Done."}
    asks = {"tool": "ask", "input": {"question": "Which?"}}
    said = {"model": BACKGROUND, "last": f"About {foo}", "answer": {"blocks": [{"text": SUMMARY}]}}
    copy = f"It thought that {MARKER} is the word, and it stays."
    copied = {"model": BACKGROUND, "answer": {"blocks": [{"text": copy}]}}
    return plays(
        {
            foo: [thinks(foo, bash("touch foo.txt")), thinks(foo, ends)],
            bar: [thinks(bar, bash("false")), thinks(bar, ends)],
            baz: [thinks(baz, bash("ls")), thinks(baz, asks)],
        },
        cues=[said, copied],
    )


def commands() -> list[list[str]]:
    """Every command that looks at a night, in every form that it has."""
    foo, bar, baz = UNITS
    whole = [["status"], ["report"], ["inbox"], ["fsck"], ["export"], ["doctor"], ["cost", "--by", "model"]]
    whole += [[name, "--json"] for name in ("status", "report", "inbox", "cost")]
    whole += [["log", foo], ["log", foo, "--json"], ["log", bar], ["log", bar, "--follow"], ["log", baz, "--json"]]
    whole += [["replay", foo], ["replay", foo, "--json"], ["replay", bar, "--step", "2"]]
    return whole


def test_the_reasoning_of_a_night_appears_nowhere(night: MakeNight) -> None:
    """Not in what a command prints, nor in journal, outbox, state file or progress; only the session log has it."""
    project = night(script(), config=CONFIG)
    for unit in UNITS:
        project.unit(unit)

    outputs = {"run": project.overnight("run", "-j", "3").text}
    outputs |= {" ".join(words): project.overnight(*words).text for words in commands()}

    assert project.ids("passed") == ["create-foo"]
    assert set(project.ids("blocked") + project.ids("tried")) == set(UNITS[1:])
    assert [name for name, text in outputs.items() if MARKER in text] == []
    assert SUMMARY in outputs["log create-foo"]
    assert SUMMARY in outputs["log create-foo --json"]
    assert BACKGROUND in outputs["cost --by model"]
    assert project.count("create-foo", "thinking/summary") == 1
    with_it = {path.name for path in files_of(project) if MARKER.encode() in path.read_bytes()}
    assert with_it == {"session.jsonl"}  # the check can fail: this is where it is


def files_of(project: Project) -> list[Path]:
    """Every file that a night leaves, in the home and in the checkout."""
    places = [path for place in (project.base, project.root) for path in place.rglob("*")]
    return [path for path in places if path.is_file() and not path.is_symlink()]
