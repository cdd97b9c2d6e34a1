"""Claims of a final text that nothing supports: found where they are plain, and nowhere else."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.evidence import collect, unsupported
from workers.session import events as ev

EDITOR = "str_replace_based_edit_tool"


def ran(command: str, exit_code: int | None = 0, **facts: Any) -> list[Any]:
    result = ev.ToolResult(call_id="c", content="", is_error=exit_code != 0, facts={"exit_code": exit_code, **facts})
    return [_answer("bash", {"command": command}), ev.ToolCall(call_id="c", name="bash"), result]


def edited(path: str, *, is_error: bool = False, command: str = "create") -> list[Any]:
    result = ev.ToolResult(call_id="c", content="", is_error=is_error)
    return [_answer(EDITOR, {"command": command, "path": path}), ev.ToolCall(call_id="c", name=EDITOR), result]


def _answer(name: str, given: dict[str, Any]) -> ev.AssistantMessage:
    block = {"type": "tool_use", "id": "c", "name": name, "input": given}
    return ev.AssistantMessage(content=[block], stop_reason="tool_use")


def verified(command: str, *, passed: bool) -> list[Any]:
    return [
        ev.VerifyResult(
            commit="c", tree="t", command=command, digest="d", passed=passed, seconds=1, exit_code=0 if passed else 2
        )
    ]


def test_what_is_collected() -> None:
    """Commands with how they ended, verify among them, and what edits touched; looks and failed edits are none."""
    shown = collect(
        [
            *ran("pytest -q", 1),
            *ran("sleep 99", None, timed_out=True),
            *edited("a.py"),
            *edited("b.py", is_error=True),
            *edited("c.py", command="view"),
            *verified("make ci", passed=False),
        ]
    )
    assert [(run.command, run.ok, run.ending, run.is_test) for run in shown.runs] == [
        ("pytest -q", False, "ended with exit code 1", True),
        ("sleep 99", False, "was killed when its time was up", False),
        ("make ci", False, "ended with exit code 2", True),
    ]
    assert shown.touched == {"a.py"}


def test_what_ran_was_the_repaired_call() -> None:
    """A call counts as it ran, not as it was written."""
    first, started, result = edited("a.py")
    repaired = started.model_copy(update={"repaired": {"command": "create", "path": "b.py"}})
    assert collect([first, repaired, result]).touched == {"b.py"}


@pytest.mark.parametrize(
    "claim",
    [
        "I updated `src/billing.py` to round half-even.",
        "Added tests in `src/billing.py`.",
        "Fixed the crash in `src/billing.py` and cleaned up.",
        "Changed `src/tax.py` and `src/billing.py`.",
        "Created a new file `src/billing.py`.",
        "- `src/billing.py`: added rounding",
        "- **`src/billing.py`** — updated the totals",
        "Also documented it in the file `src/billing.py`",
        "Done.\n\nChanged:\nWrote `src/billing.py`.",
    ],
)
def test_a_file_that_nobody_changed(claim: str) -> None:
    """A path that is said to be changed, and is in no diff and no call, is named; once it is there, it is not."""
    line = "says that `src/billing.py` was changed; neither the checkpoint nor any call shows it"
    assert unsupported(claim, [], ["src/tax.py"]) == (line,)
    assert unsupported(claim, [], ["src/tax.py", "src/billing.py"]) == ()
    assert unsupported(claim, [], ["src/tax.py", "app/src/billing.py"]) == ()
    assert unsupported(claim, edited("/home/w/src/billing.py"), ["src/tax.py"]) == ()
    assert unsupported(claim, ran("sed -i s/a/b/ src/billing.py"), ["src/tax.py"]) == ()


@pytest.mark.parametrize(
    "words",
    [
        "Updated the loader to read `config.toml`.",
        "Changed the CLI so that it accepts `config.toml`.",
        "I did not change `config.toml`.",
        "Fixed it without touching `config.toml`.",
        "Updated the parser; `config.toml` stays as it is.",
        "`config.toml` could be updated in `config.toml` later.",
        "Fixed the rounding in `Invoice.total`.",
        "Added a call to `json.dumps` in `round_half_even()`.",
        "Added support for `node.js`.",
        "Renamed `old_name` to `new_name`.",
        "Added `--verbose` to `overnight run`.",
        "Should I have changed `config.toml`?",
        "```\nUpdated `config.toml`\n```",
        "The tests in `tests/test_a.py` cover it.",
        "Updated `*.toml` everywhere, see https://example.org/a.py",
        "",
    ],
)
def test_files_that_are_only_spoken_of(words: str) -> None:
    """What is read, denied, supposed, quoted or no file at all is no claim."""
    assert unsupported(words, [], []) == ()


@pytest.mark.parametrize(
    ("words", "history", "line"),
    [
        ("I ran `make test`.", [], "says that `make test` was run; no such command was run"),
        ("`pytest -q` passes.", ran("ls"), "says that `pytest -q` passes; no such command was run"),
        (
            "`pytest` passes and the docs are done.",
            [*ran("pytest -q"), *ran("cd w && python -m pytest tests 2>&1", 1)],
            "says that `pytest` passes; its last run ended with exit code 1",
        ),
        (
            "`make lint` is clean.",
            ran("make lint", None, timed_out=True),
            "says that `make lint` passes; its last run was killed when its time was up",
        ),
        (
            "All tests pass.",
            ran("uv run pytest -q", 1),
            "says that tests pass; the last run of tests, `uv run pytest -q`, ended with exit code 1",
        ),
        (
            "The test suite is green",
            [*ran("make test"), *verified("./ci.sh", passed=False)],
            "says that tests pass; the last run of tests, `./ci.sh`, ended with exit code 2",
        ),
        ("All tests pass now.", edited("a.py"), "says that tests pass; nothing was run"),
    ],
)
def test_commands_that_did_not_run_or_failed(words: str, history: list[Any], line: str) -> None:
    """A command that never ran, or whose last run was red, is named with what was found."""
    assert unsupported(words, history, []) == (line,)


@pytest.mark.parametrize(
    ("words", "history"),
    [
        ("I ran `pytest -q tests`.", ran(".venv/bin/python -m pytest tests -x 2>&1 | tail")),
        ("`make test` passes.", [*ran("make test", 1), *ran("make test")]),
        ("`make ci` passes.", verified("make ci", passed=True)),
        ("All tests pass.", [*ran("pytest", 1), *verified("sh check.sh", passed=True)]),
        ("All tests pass.", ran("./anything.sh")),
        ("All tests pass.", [*ran("pytest"), *ran("grep pytest setup.cfg", 1), *ran("git checkout x", 1)]),
        ("All tests pass except `test_b`.", ran("pytest", 1)),
        ("The new tests pass; two others fail as before.", ran("pytest", 1)),
        ("The tests do not pass.", ran("pytest", 1)),
        ("`render(x)` passes `x` on.", []),
        ("`python` passes the arguments through.", []),
        ("Run `make docs` to see it.", []),
        ("You can check it with `pytest`.", []),
        ("I ran `the_migration`.", []),
    ],
)
def test_commands_that_are_supported_or_no_claim(words: str, history: list[Any]) -> None:
    """Another spelling of the same command, a later run that was green, an exception, advice: no alarm."""
    assert unsupported(words, history, []) == ()


def test_lines_for_people() -> None:
    """Each claim once, at most ten, and nothing that could move a cursor."""
    many = " ".join(f"Updated `a{number}.py`." for number in range(30))
    assert len(unsupported(many, [], [])) == 10
    assert len(unsupported("Updated `a.py`. Updated `a.py`.", [], [])) == 1
    (line,) = unsupported("All tests pass.", ran("pytest \x1b[2J\u202e", 1), [])
    assert "\x1b" not in line
    assert "\u202e" not in line


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["Updated ", "`a.py`", "`make test`", " passes", "tests pass", ". ", "\n", "`", "not", "é", "- "]
        )
    )
)
def test_any_text(parts: list[str]) -> None:
    """No text breaks it, and every line is one line."""
    assert all("\n" not in line for line in unsupported("".join(parts), ran("x", 1), []))
