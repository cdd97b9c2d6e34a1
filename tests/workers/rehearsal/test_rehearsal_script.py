"""Scripts from files: what is read, and what is said about what cannot be."""

from pathlib import Path
from typing import Any

import pytest

from workers.rehearsal import Fault, RehearsalError, Script, ScriptError, Step, TextBlock, ToolBlock, UnitScript
from workers.rehearsal.script import Scene

WHOLE = """
latency: 0.2
units:
  round-totals:
    steps:
      - blocks:
          - thinking: look first
          - tool: bash
            input: {command: pytest}
        fault: {status: 429, headers: {retry-after: "2"}}
      - blocks: [{text: done}]
    attempts:
      2:
        - blocks: [{text: second try}]
          stop: null
default:
  - blocks: [{text: hello}]
"""


def written(folder: Path, content: str) -> Path:
    path = folder / "night.yaml"
    path.write_text(content, encoding="utf-8")
    return path


def test_whole_script_is_read(tmp_path: Path) -> None:
    """YAML and models built in Python are the same script."""
    loaded = Script.load(written(tmp_path, WHOLE))
    first = loaded.units["round-totals"].steps[0]
    assert loaded.latency == 0.2
    assert first.blocks[1] == ToolBlock(tool="bash", input={"command": "pytest"})
    assert first.fault == (Fault(status=429, headers={"retry-after": "2"}),)
    assert first.stop_reason == "tool_use"
    assert loaded.units["round-totals"].attempts[2] == (Step(blocks=(TextBlock(text="second try"),), stop=None),)
    assert loaded.default == (Step(blocks=(TextBlock(text="hello"),)),)


@pytest.mark.parametrize(
    ("content", "field", "problem"),
    [
        ("units: [", "line 1", "YAML"),
        ("- 1", "", "mapping"),
        ("", "", "mapping"),
        ("unit: {}", "unit", "no such key"),
        ("units: {a: {steps: [{blocks: [{txt: x}]}]}}", "units.a.steps.0.blocks.0", "text, thinking, tool"),
        ("units: {a: {steps: [{blocks: [{text: ''}]}]}}", "units.a.steps.0.blocks.0.text.text", "at least 1"),
        ("default: [{blocks: [{tool: b, input: {}, raw: x}]}]", "default.0.blocks.0.tool", "not both"),
        ("default: [{fault: {status: 429, cut: mid_block}}]", "default.0.fault.0", "exactly one of"),
        ("default: [{fault: {}}]", "default.0.fault.0", "found none"),
        ("default: [{fault: {cut: somewhere}}]", "default.0.fault.0.cut", "mid_block"),
        ("default: [{repeat: 0}]", "default.0.repeat", "greater than or equal to 1"),
        ("default: [{latency: -1}]", "default.0.latency", "greater than or equal to 0"),
        ("default: [{latency: .inf}]", "default.0.latency", "finite"),
        ("models: {x: {like: nothing}}", "models.x", "claude-sonnet-5-5"),
        ("cues: [{last: '('  , answer: {}}]", "cues.0", "regular expression"),
        ("cues: [{answer: {}}]", "cues.0", "at least one of"),
        ("cues: [{last: x}]", "cues.0", "`answer` or `steps`"),
        ("units: {a: {attempts: {0: []}}}", "units.a.attempts.0", "greater than or equal to 1"),
    ],
)
def test_wrong_script_names_file_and_field(tmp_path: Path, content: str, field: str, problem: str) -> None:
    """A script that cannot be played says which file, which field and what is wrong."""
    path = written(tmp_path, content)
    with pytest.raises(ScriptError, match=r"night\.yaml") as caught:
        Script.load(path)
    assert caught.value.path == path
    assert caught.value.field.startswith(field)
    assert problem in str(caught.value)
    assert isinstance(caught.value, RehearsalError)


def test_missing_and_binary_files(tmp_path: Path) -> None:
    """A file that is not there, or no text, is a ScriptError too."""
    with pytest.raises(ScriptError, match="cannot be read"):
        Script.load(tmp_path / "none.yaml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(ScriptError, match="cannot be read"):
        Script.load(tmp_path / "binary")


def test_step_is_found_through_repeats() -> None:
    """Repeats are counted, not written out: a step a million calls long costs nothing."""
    long, last = Step(repeat=1_000_000), Step(blocks=(TextBlock(text="last"),))
    played = Script(units={"a": UnitScript(steps=(long, last))})
    assert played.step_for(Scene("a", 1, 999_999)) is long
    assert played.step_for(Scene("a", 1, 1_000_000)) is last
    ended = played.step_for(Scene("a", 1, 1_000_001))
    assert ended is not None
    assert ended.blocks == (TextBlock(text="(script ended)"),)


@pytest.mark.parametrize(("played", "expected"), [(0, 429), (1, 429), (2, 500), (3, None)])
def test_faults_are_played_in_order(played: int, expected: int | None) -> None:
    """Each fault of a list is played its number of times, and then none."""
    step = Step(fault=(Fault(status=429, times=2), Fault(status=500)))
    fault = step.fault_for(played)
    assert (fault.status if fault else None) == expected


def test_cues_of_the_unit_come_first() -> None:
    """A unit's cue is looked at before the script's, and all expressions of one must be found."""

    def cue(words: str, **when: Any) -> dict[str, Any]:
        return {**when, "answer": {"blocks": [{"text": words}]}}

    data = {
        "units": {"a": {"cues": [cue("unit", first="go", last="now")]}},
        "cues": [cue("script", first="go")],
        "default": [{"blocks": [{"text": "step"}]}],
    }
    played = Script.parse(data)

    def said(unit: str, first: str, last: str) -> Any:
        step = played.step_for(Scene(unit, 1, 0, first=first, last=last))
        assert step is not None
        return step.blocks[0].text if step.blocks else ""

    assert said("a", "go", "now") == "unit"
    assert said("a", "go", "later") == "script"
    assert said("b", "stay", "now") == "step"
