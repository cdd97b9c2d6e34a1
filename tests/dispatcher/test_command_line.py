"""The command line as a whole: what help shows, and what a slip of the keyboard gets for an answer."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dispatcher.cli import main, overnight
from dispatcher.context import Context
from dispatcher.shown.display import safe


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Return the exit code and what went to standard error, of the real entry point."""
    monkeypatch.setattr("sys.argv", ["overnight", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    assert isinstance(code, int)
    return code, capsys.readouterr().err


def test_help_shows_each_command_once_with_a_whole_sentence() -> None:
    """Commands stand under what they are for, and no description is cut off."""
    told = CliRunner().invoke(overnight, ["--help"]).output
    firsts = [line.split()[0] for line in told.splitlines() if line.startswith("  ") and line[2].islower()]
    assert set(overnight.list_commands(None)) <= set(firsts)
    assert len(firsts) == len(set(firsts))
    assert "..." not in told.partition("In the evening:")[2]


@pytest.mark.parametrize(("typed", "meant"), [("statsu", "status"), ("aprove", "approve"), ("repot", "report")])
def test_a_misspelt_command_is_told_what_it_is_near_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, meant: str
) -> None:
    """Exit 2, and the name that was meant."""
    code, err = run(monkeypatch, capsys, typed, "--json")
    assert (code, f"did you mean {meant!r}?" in err) == (2, True)


def test_a_word_that_is_near_to_nothing_is_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 without a guess."""
    code, err = run(monkeypatch, capsys, "xyzzy")
    assert (code, "xyzzy" in err, "did you mean" in err) == (2, True, False)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("units: {a: {stepz: []}}\n", "units.a.stepz: there is no such key here"),
        ("units:\n  a: [\n", "line 3: is no YAML"),
        ("- a list\n", "a script is a mapping"),
    ],
)
def test_a_script_that_cannot_be_played_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, word: str
) -> None:
    """`overnight rehearse` names file and field, without a traceback."""
    script = tmp_path / "script.yaml"
    script.write_text(text, encoding="utf-8")
    code, err = run(monkeypatch, capsys, "rehearse", str(script))
    assert code == 2
    assert err.startswith(f"overnight: {script}: ")
    assert word in err
    assert len(err.splitlines()) == 1


@pytest.fixture
def checkout(make_repository: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A repository to be in, with a key and a home of its own."""
    made = make_repository()
    monkeypatch.chdir(made.path)
    monkeypatch.setenv("OVERNIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "some")
    return made


def doctor() -> tuple[int, str]:
    told = CliRunner().invoke(overnight, ["doctor"])
    return told.exit_code, told.output


def test_doctor_says_once_that_there_is_no_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever needs one is not looked at: the same sentence five times helps nobody."""
    monkeypatch.chdir(tmp_path)
    code, said = doctor()
    assert (code, said.count("not in a git repository"), said.count("✘")) == (2, 1, 1)


@pytest.mark.parametrize(
    ("config", "unit", "said"),
    [
        ('base = "nope"\n', "", "base: is no commit here"),
        ('[agent]\ndefault = "nobody"\n', "", "agent.default: there is no agent 'nobody'"),
        ("", "Do it.\n", "a.md: verify: the unit has no verify"),
        ("", "---\nverfy: x\n---\n\nDo it.\n", 'a.md:2: verfy: unknown key; did you mean "verify"?'),
    ],
)
def test_doctor_sees_what_a_run_would_stumble_over(checkout: Any, config: str, unit: str, said: str) -> None:
    """In the config, and in the unit files with their agents; exit 2."""
    units = checkout.path / ".overnight/units"
    units.mkdir(parents=True)
    (units.parent / "config.toml").write_text(config, encoding="utf-8")
    (units / "a.md").write_text(unit or "---\nverify: 'true'\n---\n\nDo it.\n", encoding="utf-8")
    code, told = doctor()
    assert (code, said in told) == (2, True), told


def test_doctor_is_content_with_a_good_place(checkout: Any) -> None:
    """Exit 0, a line for each thing."""
    code, told = doctor()
    assert (code, told.count("✔"), "none yet; `overnight add`" in told) == (0, 7, True), told


def test_a_unit_of_a_night_that_was_put_away_is_pointed_to(checkout: Any) -> None:
    """It is no unit of the state file, but its session is there; the command that shows it is said."""
    home = Context.here().home
    session = home.session("1130-abc", "old", 1)
    session.parent.mkdir(parents=True)
    session.write_bytes(b"")
    told = CliRunner().invoke(overnight, ["log", "old"])
    assert "`overnight log old --night 1130-abc` shows it" in str(told.exception)
    unknown = CliRunner().invoke(overnight, ["log", "new"])
    assert "there is no unit 'new'" in str(unknown.exception)


@pytest.mark.parametrize("words", [["status"], ["report"], ["--help"]])
def test_an_output_that_takes_nothing_is_said_in_a_line(checkout: Any, words: list[str]) -> None:
    """With the machinery's exit code, and no traceback."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "dispatcher.cli", *words]
        done = subprocess.run(
            command, cwd=checkout.path, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=30
        )
    assert (done.returncode, done.stderr) == (
        4,
        "overnight: standard output cannot be written: No space left on device\n",
    )


def test_a_verify_of_blanks_is_no_verify(checkout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said in words that name the option."""
    monkeypatch.chdir(checkout.path)
    told = CliRunner().invoke(overnight, ["add", "Do it", "--verify", "   "])
    assert str(told.exception) == "--verify: is empty: give the command that decides"


def test_a_verify_that_bash_cannot_read_is_refused(checkout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is written down, not when an attempt has been paid for; no unit is made."""
    monkeypatch.chdir(checkout.path)
    told = CliRunner().invoke(overnight, ["add", "Do it", "--verify", "if then ("])
    assert str(told.exception).startswith("--verify: bash cannot read this verify: line 1: syntax error near")
    assert not list(checkout.path.glob(".overnight/units/*.md"))


def test_a_message_on_a_heading_of_the_state_file_keeps_it_as_it_is_written() -> None:
    """It is shown, and forges nothing there; a line of another kind still cannot."""
    assert safe("expected '## open'\n\x1b[31mx") == "expected '## open' [31mx"
