"""Documents in arguments: trimmed once they were written, before the first call that would carry them."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from loop_stand import GOAL, LoopStand

from workers.session import events as ev
from workers.session.surface import surface
from workers.turn.hooks.trim import MOST_CHARACTERS, Trim, trimmed

Stand = Callable[..., Awaitable[LoopStand]]
EDITOR = "str_replace_based_edit_tool"
LONG = "".join(f"line {number}\n" for number in range(1_000))
LONGER = LONG * 20


def edit(**given: Any) -> dict[str, Any]:
    return {"tool": EDITOR, "input": given}


def step(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"blocks": list(blocks)}


DONE = step({"text": "Done."})


def inputs(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block["input"] for message in messages for block in message["content"] if block["type"] == "tool_use"]


async def test_a_written_file(stand: Stand) -> None:
    """The file is whole; no call ever carries it; the log has it; later thinking is bound to what was sent.

    The server is strict about prefixes and about what thinking is bound to.
    """
    at = await stand(
        step({"thinking": "first"}, edit(command="create", path="a.txt", file_text=LONG)),
        step({"thinking": "second"}, edit(command="str_replace", path="a.txt", old_str=LONG, new_str="x" * 3_000)),
        step({"thinking": "third"}, edit(command="insert", path="a.txt", insert_line=0, insert_text=LONG)),
        step(
            {"thinking": "fourth"},
            {"tool": "bash", "input": {"command": f"cat > b.txt <<'EOF'\n{LONG}EOF\nwc -l b.txt"}},
        ),
        DONE,
    )
    at.hooks = (Trim(),)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    assert (at.tree / "a.txt").read_text() == LONG + "x" * 3_000
    assert (at.tree / "b.txt").read_text() == LONG
    sent = inputs(at.asked(4))
    assert all(len(json.dumps(given)) < 2_000 for given in sent)
    assert sent[0]["file_text"].startswith("line 0\nline 1\n")
    assert "characters, written to a.txt; the harness trimmed" in sent[0]["file_text"]
    assert "replaced in a.txt" in sent[1]["old_str"]
    assert "written to a.txt" in sent[1]["new_str"]
    assert "written to a.txt" in sent[2]["insert_text"]
    assert sent[3]["command"].startswith("cat > b.txt <<'EOF'\nline 0\n")
    assert sent[3]["command"].endswith(
        "written to b.txt; the harness trimmed this call after it ran]\nEOF\nwc -l b.txt"
    )
    for number in range(4):  # each from its very first request on
        assert inputs(at.asked(number + 1))[number] == sent[number]
    answers = [event for event in at.durable() if isinstance(event, ev.AssistantMessage)]
    assert answers[0].content[1]["input"]["file_text"] == LONG
    assert surface(at.durable()).digest == at.session.surface.digest


async def test_a_call_that_failed(stand: Stand) -> None:
    """What did not run well keeps its arguments: the model needs them to correct it."""
    at = await stand(
        step(edit(command="str_replace", path="none", old_str=LONG, new_str=LONG)),
        step({"tool": "bash", "input": {"command": f"cat > b.txt <<EOF\n{LONG}EOF\nfalse"}}),
        DONE,
    )
    at.hooks = (Trim(),)
    await at.loop().run_turn(GOAL)
    assert inputs(at.asked(2)) == [
        {"command": "str_replace", "path": "none", "old_str": LONG, "new_str": LONG},
        {"command": f"cat > b.txt <<EOF\n{LONG}EOF\nfalse"},
    ]


async def test_thinking_behind_a_call(stand: Stand) -> None:
    """A call that thinking follows in the same answer stays: that thinking is bound to it."""
    create = edit(command="create", path="a.txt", file_text=LONG)
    at = await stand(
        step({"thinking": "a"}, create, {"thinking": "b"}, create), step({"thinking": "c"}, {"text": "Done."})
    )
    at.hooks = (Trim(),)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    first, second = inputs(at.asked(1))
    assert first["file_text"] == LONG
    assert "the harness trimmed" in second["file_text"]


async def test_a_model_that_imitates(stand: Stand) -> None:
    """The words that stand for trimmed text never get into a file."""
    seen = trimmed(EDITOR, {"command": "create", "path": "a", "file_text": LONG})
    assert seen is not None
    at = await stand(
        step(edit(**seen)),
        step(edit(command="insert", path="a", insert_line=0, insert_text=seen["file_text"])),
        DONE,
    )
    await at.loop().run_turn(GOAL)
    assert [result.is_error for result in at.results()] == [True, True]
    assert "stand for trimmed text" in at.results()[0].content
    assert not (at.tree / "a").exists()


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        (EDITOR, {"command": "create", "path": "a", "file_text": "x" * MOST_CHARACTERS}),
        (EDITOR, {"command": "create", "path": "a", "file_text": ["x"] * 5_000}),
        (EDITOR, {"command": "view", "path": "a", "file_text": LONG}),
        (EDITOR, {"command": ["create"], "path": "a", "file_text": LONG}),
        ("bash", {"command": f"python3 - <<EOF\n{LONG}EOF"}),
        ("bash", {"command": f"cat > a <<EOF\n{LONG}"}),
        ("bash", {"command": LONGER}),
        ("bash", {"command": f"echo $((1<<2)) > a\n{LONG}"}),
        ("bash", {}),
        ("note", {"text": LONG}),
    ],
    ids=["short", "no text", "view", "no command", "script", "open", "plain", "shift", "nothing", "other tool"],
)
def test_what_is_kept(tool: str, given: dict[str, Any]) -> None:
    """Only what a file holds now is cut: short texts, scripts that went to no file and other tools are not."""
    assert trimmed(tool, given) is None


@pytest.mark.parametrize(
    ("first", "last", "path"),
    [
        ("cat <<EOF >out.md", "EOF", "out.md"),
        ("cat >> 'a b.md' <<-'END'", "\tEND", "a b.md"),
        ('tee -a "x.md" <<"EOF" && true', "EOF", "x.md"),
        ("mkdir -p d && cat > d/x.md << 'EOF'", "EOF", "d/x.md"),
    ],
)
def test_here_documents(first: str, last: str, path: str) -> None:
    """The forms of a here-document that goes to a file; what stands around it is kept, and so is a second one."""
    after = trimmed("bash", {"command": f"set -e\n{first}\n{LONG}{last}\ncat <<X\nshort\nX\n", "timeout": 5})
    assert after is not None
    lines = after["command"].split("\n")
    assert lines[:3] == ["set -e", first, "line 0"]
    assert lines[-6:] == [lines[-6], last, "cat <<X", "short", "X", ""]
    assert f"written to {path}; the harness" in lines[-6]
    assert after["timeout"] == 5


def test_one_long_line() -> None:
    """A document without line ends keeps a piece of its beginning."""
    after = trimmed(EDITOR, {"command": "create", "path": "a", "file_text": "x" * 10_000})
    assert after is not None
    assert after["file_text"].startswith("x" * 300 + "[… 9,700 more characters")


def test_many_openings() -> None:
    """A long command with many shifts, none of which is closed, is looked at quickly."""
    assert trimmed("bash", {"command": "x = y << z\n" * 20_000}) is None
