"""Long results: two ends for the model, the whole on disk, and honest words where it is not."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_stand import GOAL, LoopStand

from workers.tools import Outcome
from workers.turn.hooks import kept
from workers.turn.hooks.kept import Kept, NotKept
from workers.turn.hooks.shorten import MOST_CHARACTERS, Shorten, shortened

Stand = Callable[..., Awaitable[LoopStand]]
CALL = {"type": "tool_use", "id": "c", "name": "bash", "input": {"command": "x"}}
NUMBERED = "".join(f"line {number}\n" for number in range(5_000))


async def told(scratch: Path, text: str, **given: Any) -> str:
    call = {**CALL, "input": {**CALL["input"], **given}}
    return (await Shorten(scratch).outcome(call, Outcome(text, is_error=True, facts={"exit_code": 1}))).content


async def test_short_ones_stay(tmp_path: Path) -> None:
    """Up to the limit nothing is touched, and no folder is made."""
    text = "x" * MOST_CHARACTERS
    assert await told(tmp_path, text) == text
    assert not (tmp_path / "results").exists()


async def test_long_ones(tmp_path: Path) -> None:
    """Whole lines of both ends, between them how much is missing and where the whole is; the rest of it as it was."""
    made = await Shorten(tmp_path).outcome(CALL, Outcome(NUMBERED, is_error=True, facts={"exit_code": 1}))
    assert (made.is_error, made.facts) == (True, {"exit_code": 1})
    head, _, rest = made.content.partition("\n[… ")
    note, _, tail = rest.partition("\n")
    assert NUMBERED.startswith(head + "\n")
    assert NUMBERED.endswith(tail)
    assert tail.startswith("line ")
    assert len(made.content) < MOST_CHARACTERS + 300
    assert note.startswith(f"{len(NUMBERED) - len(head) - len(tail):,} characters left out; ")
    assert "$OVERNIGHT_SCRATCH/results/1.txt" in note
    assert (tmp_path / "results" / "1.txt").read_text() == NUMBERED


async def test_a_look_is_left_alone(tmp_path: Path) -> None:
    """What `view` shows was asked for by its lines, and the file is the whole."""
    assert await told(tmp_path, NUMBERED, command="view") == NUMBERED


async def test_in_the_loop(stand: Stand, tmp_path: Path) -> None:
    """The request has the short form from the first, and the log too; the file has what the command said."""
    at = await stand({"blocks": [{"tool": "bash", "input": {"command": "seq 20000"}}]}, {"blocks": [{"text": "Done."}]})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    at.hooks = (Shorten(scratch),)
    assert (await at.loop().run_turn(GOAL)).reason == "completed"
    (said,) = at.results()
    assert at.asked(1)[-1]["content"][0]["content"] == said.content
    assert len(said.content) < MOST_CHARACTERS + 300
    whole = (scratch / "results" / "1.txt").read_text()
    assert whole.split() == [str(number) for number in range(1, 20_001)]


async def test_a_full_disk(tiny_disk: Path) -> None:
    """Without room the result is shortened all the same, and says that the whole is not there."""
    said = await told(tiny_disk, "x" * 200_000)
    assert "the whole could not be kept: No space left on device" in said
    assert len(said) < MOST_CHARACTERS + 300
    assert list((tiny_disk / "results").iterdir()) == []


async def test_a_folder_that_leads_elsewhere(tmp_path: Path) -> None:
    """An agent's link in the place of the folder or of a file is not followed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "results").symlink_to(outside)
    assert "could not be kept" in await told(scratch, NUMBERED)
    (scratch / "results").unlink()
    (scratch / "results").mkdir()
    (scratch / "results" / "1.txt").symlink_to(outside / "f")
    assert "results/2.txt" in await told(scratch, NUMBERED)
    assert list(outside.iterdir()) == []


def test_old_ones_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they stay within bounds: the oldest go, numbers are not used again, other files are left alone."""
    monkeypatch.setattr(kept, "MOST_BYTES", 100)
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "mine.txt").write_text("x" * 1_000)
    (folder / "7.txt").mkdir()
    store = Kept(tmp_path)
    assert [store.put("a" * 40) for _ in range(4)] == [f"$OVERNIGHT_SCRATCH/results/{n}.txt" for n in (1, 2, 3, 4)]
    assert sorted(path.name for path in folder.iterdir()) == ["3.txt", "4.txt", "7.txt", "mine.txt"]
    with pytest.raises(NotKept, match="too large to keep, 101 bytes"):
        store.put("a" * 101)


def test_what_is_no_text(tmp_path: Path) -> None:
    """Half a surrogate pair, which no file can hold, is replaced; control characters are kept."""
    Kept(tmp_path).put("a\ud800\x00\x1b[31m")
    assert (tmp_path / "results" / "1.txt").read_bytes() == b"a?\x00\x1b[31m"


@pytest.mark.parametrize(
    "unit",
    ["e\u0301\u0323", "👩\u200d👩\u200d👧", "👍🏽", "\x1b[1;31m", "\ud83d\udc4d", "\r\n"],
    ids=["marks", "joined", "skin", "escape", "surrogates", "crlf"],
)
def test_clusters_stay_whole(unit: str) -> None:
    """Where no line ends nearby, a cut still never goes through what a reader or a terminal takes for one thing."""
    for shift in range(len(unit) + 1):
        text = "x" * shift + unit * 400
        said = shortened(text, lambda _: "[…]", most=200)
        head, tail = said.split("\n[…]\n")
        assert head[shift:].replace(unit, "") in ("", unit.removesuffix("\n"))
        assert tail.replace(unit, "") == ""


@given(text=st.text(max_size=400), most=st.integers(20, 200))
def test_any_text(text: str, most: int) -> None:
    """Head, gap and tail are the text, whatever it is; neither end is longer than half and a cluster."""
    gaps: list[int] = []

    def note(left: int) -> str:
        gaps.append(left)
        return "\0NOTE\0"

    said = shortened(text, note, most=most)
    if len(text) <= most:
        assert said == text
        return
    head, tail = said.split("\n\0NOTE\0\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) + gaps[0] == len(text)
    assert len(head) <= most // 2
    assert len(tail) <= most // 2 + 64
