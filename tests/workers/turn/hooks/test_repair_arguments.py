"""Arguments of the wrong type: repaired where there is no doubt, and the model is told."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_stand import GOAL, LoopStand

from workers.orders import Answered, Rule
from workers.session import events as ev
from workers.tools import Bash, Outcome
from workers.turn.hooks.repair import Repair, repaired

Stand = Callable[..., Awaitable[LoopStand]]
SCHEMA: dict[str, Any] = {
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "b": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "integer"}},
        "o": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "s": {"type": "string"},
        "u": {"type": ["integer", "string"]},
    }
}


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("n", "60", 60),
        ("n", " -3 ", -3),
        ("n", 5.0, 5),
        ("x", "0.5", 0.5),
        ("x", "2", 2),
        ("b", "true", True),
        ("b", "false", False),
        ("l", "[1, 2]", [1, 2]),
        ("l", '["1", 2.0]', [1, 2]),
        ("l", ["1", 2], [1, 2]),
        ("o", '{"n": "1", "k": "1"}', {"n": 1, "k": "1"}),
    ],
)
def test_what_is_plain(name: str, before: Any, after: Any) -> None:
    """A string that is nothing but what the schema wants becomes that, within arrays and objects too."""
    made, notes = repaired(SCHEMA, {name: before, "extra": "7"})
    assert made == {name: after, "extra": "7"}
    assert [type(value) for value in made.values()] == [type(after), str]
    (note,) = notes
    assert note.startswith(f"`{name}` was ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[
            ("n", value)
            for value in ("", "five", "5.5", "1e3", "٣", "0x10", "05", "9" * 5_000, 5.5, True, None, [5], 1e300)
        ],
        *[("x", value) for value in ("NaN", "inf", "1e5", "")],
        *[("b", value) for value in ("True", "yes", "1", 1, "")],
        *[("l", value) for value in ("1, 2", "[1, 2", '{"a": 1}', "[" * 50_000, "[NaN]", 5, [1, 2])],
        *[("o", value) for value in ("[]", "{", '{"n": NaN}')],
        *[("s", value) for value in ("5", "[1]", "true", 5, {"a": 1})],
        *[("u", value) for value in ("5", 5.0)],
        ("other", "[1]"),
    ],
)
def test_where_there_is_a_doubt(name: str, value: Any) -> None:
    """Everything else stays as the model wrote it, strings that are wanted as strings above all."""
    made, notes = repaired(SCHEMA, {name: value})
    assert made[name] is value
    assert notes == ()


@given(
    st.dictionaries(st.text(max_size=3), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
)
def test_any_arguments(arguments: dict[str, Any]) -> None:
    """Keys are never added, dropped or renamed, and a repaired call needs no second repair."""
    made, _ = repaired(SCHEMA, arguments)
    assert list(made) == list(arguments)
    assert repaired(SCHEMA, made) == (made, ())


async def test_in_the_loop(stand: Stand) -> None:
    """The call runs as repaired; the log says with what, and the model what was read; the answer stays as it came."""
    given = {"command": "view", "path": "f", "view_range": "[2, 3]"}
    at = await stand(
        {"blocks": [{"tool": "str_replace_based_edit_tool", "input": given}]},
        {"blocks": [{"tool": "bash", "input": {"command": "true", "timeout": "60"}}]},
        {"blocks": [{"tool": "bash", "input": {"command": "echo 5", "timeout": 60}}]},
        {"blocks": [{"text": "Done."}]},
    )
    (at.tree / "f").write_text("1\n2\n3\n")
    at.hooks = (Repair(),)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    calls = [event.repaired for event in at.durable() if isinstance(event, ev.ToolCall)]
    assert calls == [{**given, "view_range": [2, 3]}, {"command": "true", "timeout": 60}, None]
    first, second, third = at.results()
    note = "[arguments repaired: `view_range` was a string, read as an array of 2]\n"
    assert first.content == f"{note}     2\t2\n     3\t3"
    assert second.content == "[arguments repaired: `timeout` was a string, read as an integer]\n"
    assert third.content == "5"
    assert at.asked(3)[1]["content"][0]["input"] == given


async def test_an_approved_call(stand: Stand) -> None:
    """What a person approves is what the policy judged: repaired like any other call, with the same note."""
    given = {"command": "touch made", "timeout": "60"}
    rules = (Rule(what="bash: touch *", then="ask"),)
    at = await stand({"blocks": [{"tool": "bash", "input": given}]}, {"blocks": [{"text": "Done."}]}, policy=rules)
    at.hooks = (Repair(),)
    asked = await at.loop().run_turn(GOAL)
    assert asked.pause is not None
    yes = Answered(text="", seq=asked.pause_seq or 0, approved=True)
    assert (await at.loop().resume(asked.pause, yes)).reason == "completed"
    assert (at.tree / "made").exists()
    assert [event.repaired for event in at.durable() if isinstance(event, ev.ToolCall)] == [{**given, "timeout": 60}]
    assert at.results()[0].content.startswith("[arguments repaired: `timeout` was a string, read as an integer]")


async def test_only_the_repaired_call_says_so() -> None:
    """A call that was repaired and then never came to a result leaves no note in the result of another one."""
    hook = Repair()
    given = {"command": "true", "timeout": "60"}
    assert hook.arguments(Bash(), given) == {"command": "true", "timeout": 60}
    other = {"id": "b", "name": "bash", "input": {"command": "true"}}
    assert await hook.outcome(other, Outcome("said")) == Outcome("said")
