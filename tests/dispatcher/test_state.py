"""The state file: strict reading, exact writing, moves that keep a unit in one bucket."""

import random
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.errors import BadInput, StateFileError, UnknownUnitError
from dispatcher.state import (
    ID_PATTERN,
    NOTED,
    Bucket,
    Entry,
    State,
    mint_night,
    one_line,
    parse,
    read,
    render,
)

DESIGN = """\
# Loop State: Billing clean-up
# A unit lives in exactly one bucket. Read fresh each run; written each iteration. Night 1130-k3v, rev 41.

## tried
- flaky-retry  test_backoff timed out (2 of 3)

## passed
- round-invoice-totals

## open
- drop-py38

## blocked
- billing-api  Keep the v1 endpoint?
"""
HEAD = "# Loop State: x\n# comment\n"
EMPTY = HEAD + "## tried\n## passed\n## open\n## blocked\n"

ids = st.from_regex(ID_PATTERN, fullmatch=True)
notes = st.text(max_size=200)


@st.composite
def states(draw: st.DrawFn) -> State:
    """Draw any state: notes and goals are any text at all."""
    units = draw(st.lists(ids, unique=True, max_size=12))
    rev = draw(st.integers(0, 10**9))
    state = State(draw(st.text()) + "t", night=draw(ids), rev=rev)
    if draw(st.booleans()):
        state = state.stamped("", 0)
    for unit in units:
        goal = draw(st.one_of(st.just(""), notes))
        state = state.add(unit, draw(st.sampled_from(Bucket)), draw(notes), goal=goal)
    return state


@given(states())
def test_what_is_rendered_is_read_back(state: State) -> None:
    """Whatever the notes, titles and goals contain, parse(render(s)) is s, and rendering again changes no byte."""
    text = render(state)
    assert parse(text) == state
    assert render(parse(text)) == text


@given(states())
def test_no_text_forges_a_line(state: State) -> None:
    """There are as many entry lines as units and exactly four headings, whatever notes say."""
    lines = render(state).split("\n")
    assert sum(line.startswith("- ") for line in lines) == len(state.ids())
    assert [line[3:] for line in lines if line.startswith("##")] == [str(bucket) for bucket in Bucket]


@given(states(), st.data())
def test_a_moved_unit_is_in_exactly_one_bucket(state: State, data: st.DataObject) -> None:
    """A move changes the place of one unit and the order of no other."""
    if not state.ids():
        return
    unit = data.draw(st.sampled_from(state.ids()))
    bucket, first = data.draw(st.sampled_from(Bucket)), data.draw(st.booleans())
    moved = state.move(unit, bucket, data.draw(notes), first=first)
    assert sorted(moved.ids()) == sorted(state.ids())
    assert moved.bucket_of(unit) is bucket
    assert moved.ids(bucket)[0 if first else -1] == unit
    for other in Bucket:
        before = [one for one in state.ids(other) if one != unit]
        assert [one for one in moved.ids(other) if one != unit] == before
    assert moved.typed_goals == state.typed_goals


@given(notes, st.integers(1, 150))
def test_one_line_is_settled_after_one_time(text: str, limit: int) -> None:
    """A safe note is never longer than its limit, holds no hidden character, and stays as it is."""
    note = one_line(text, limit)
    assert len(note) <= limit
    assert one_line(note, limit) == note
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]|##|  ", note)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("a\n## open\n- forged", "a # open - forged"),
        ("\u202egnp.exe", "gnp.exe"),
        ("tab\tand\r\nnul\x00", "tab and nul"),
        ("\x1b[31mred", "[31mred"),
        ("\u200b", ""),
        ("x" * 130, "x" * 119 + "…"),
    ],
)
def test_one_line_examples(text: str, note: str) -> None:
    """Newlines, escapes and bidi characters become spaces; what is too long ends in an ellipsis."""
    assert one_line(text) == note


def test_the_format_is_the_one_of_the_design() -> None:
    """The file from the design page is read and written back to the byte."""
    state = parse(DESIGN)
    assert render(state) == DESIGN
    assert (state.title, state.night, state.rev) == ("Billing clean-up", "1130-k3v", 41)
    assert state.tried == (Entry("flaky-retry", "test_backoff timed out (2 of 3)"),)
    assert state.ready() == ("drop-py38", "flaky-retry")
    assert state.counts() == {"tried": 1, "passed": 1, "open": 1, "blocked": 1}


def test_grep_tells_the_truth(tmp_path: Path) -> None:
    """The two greps of the seed see the queue and the counts, even with a note that tries to look like them."""
    path = tmp_path / "state.md"
    state = parse(DESIGN).move("drop-py38", Bucket.tried, "saw\n## open\n- fake").add("next-1").add("next-2")
    path.write_text(render(state))
    after = subprocess.run(["grep", "-A99", "## open", path], capture_output=True, text=True, check=True).stdout
    queue = after.split("\n\n", maxsplit=1)[0].splitlines()
    assert queue == ["## open", "- next-1", "- next-2"]
    count = subprocess.run(["grep", "-c", "^- ", path], capture_output=True, text=True, check=True).stdout
    assert int(count) == len(state.ids())


def test_what_a_person_writes_by_hand_is_read() -> None:
    """Other order, no blank lines or many, trailing spaces, CRLF, a byte order mark, no night: all the same state."""
    text = (
        "\ufeff# Loop State: By hand  \r\n\r\n# my notes\r\n## open \r\n\r\n- b\r\n- a   \r\n"
        "## blocked\r\n- c    why not?\r\n## passed\r\n\r\n\r\n## tried"
    )
    state = parse(text)
    assert state == State("By hand", open=(Entry("b"), Entry("a")), blocked=(Entry("c", "why not?"),))
    assert render(state).startswith("# Loop State: By hand\n# A unit lives in exactly one bucket.")
    assert "Night" not in render(state)


def test_a_typed_goal_waits_for_adoption() -> None:
    """`- id: goal` is an entry whose goal stays in the file, through moves, until it is adopted."""
    text = EMPTY.replace("## open\n", "## open\n- fix-typo: Fix the typo in the README's ## Usage heading\n")
    state = parse(text)
    goal = "Fix the typo in the README's ## Usage heading"
    assert state.open == (Entry("fix-typo"),)
    assert state.typed_goals == {"fix-typo": goal}
    assert f"- fix-typo: {goal}\n" in render(state.move("fix-typo", Bucket.tried, "a note"))
    assert state.adopted("fix-typo").typed_goals == {}
    assert state.remove("fix-typo").typed_goals == {}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "overnight fsck --rebuild-state"),
        ("\n \n", 1, "overnight fsck --rebuild-state"),
        ("## open\n", 1, "'# Loop State: <name>'"),
        ("# Loop State:\n# c\n", 1, "'# Loop State: <name>'"),
        ("# Loop State: x\n", 1, "comment line is missing"),
        ("# Loop State: x\n\n## tried\n", 3, "comment line is missing"),
        (EMPTY.replace("# comment", "# c. Night 1130-k3v, rev x."), 2, "rev <number>"),
        (EMPTY.replace("# comment", "# c. Night 1130-k3v."), 2, "rev <number>"),
        (EMPTY.replace("## open\n", ""), 5, "'## open' missing"),
        (EMPTY + "## open\n", 7, "already on line 5"),
        (EMPTY + "## opne\n", 7, "did you mean '## open'"),
        (EMPTY + "## Open\n", 7, "did you mean '## open'"),
        (EMPTY + "##open\n", 7, "did you mean '## open'"),
        (EMPTY + "## waiting for godot\n", 7, "there are only '## tried'"),
        (EMPTY + "### sub\n", 7, "unknown heading"),
        (EMPTY + "some prose\n", 7, "neither an entry"),
        (HEAD + "- early\n", 3, "before the first section"),
        (EMPTY + "- a\n- b\n- a\n", 9, "on line 7 (in '## blocked') and on line 9 (in '## blocked')"),
        (EMPTY.replace("## passed\n", "## passed\n- a\n") + "- a\n", 8, "on line 5 (in '## passed') and on line 8"),
        (EMPTY + "- Bad_Id\n", 7, "'Bad_Id' cannot be"),
        (EMPTY + f"- {'a' * 61}\n", 7, "1 to 60"),
        (EMPTY + "- -a\n", 7, "cannot be a unit's id"),
        (EMPTY + "- a one space\n", 7, "two before a note"),
        (EMPTY + "- a:\n", 7, "goal behind the colon is missing"),
        (EMPTY + "- a:goal\n", 7, "not an entry"),
        (EMPTY + "-\n", 7, "without an id"),
        (EMPTY + "-a\n", 7, "not an entry"),
        (EMPTY + "* a\n", 7, "'- '"),
        (EMPTY + "- [ ] a\n", 7, "no checkbox"),
        (EMPTY + "  - a\n", 7, "delete the spaces"),
        (EMPTY.replace("## open\n", "## open\n- a  note\n"), 6, "units in '## open' have no note"),
        (EMPTY.replace("## passed\n", "## passed\n- a  note\n"), 5, "units in '## passed' have no note"),
        (EMPTY + "- a\tb\n", 7, "tab"),
        (EMPTY + "- a\x00\n", 7, "U+0000"),
        (EMPTY + "- a  \u202enote\n", 7, "RIGHT-TO-LEFT OVERRIDE"),
        (EMPTY + "- a\r- b\n", 7, "U+000D"),
        (EMPTY + "- a\u2028- b\n", 7, "LINE SEPARATOR"),
        (EMPTY + "<<<<<<< HEAD\n- a\n=======\n- b\n>>>>>>> x\n", 7, "merge conflict"),
    ],
)
def test_what_cannot_be_read_names_the_line_and_the_remedy(text: str, line: int, words: str) -> None:
    """Every mistake is a StateFileError with its line and what to do about it."""
    with pytest.raises(StateFileError) as caught:
        parse(text, Path("state.md"))
    assert caught.value.line == line
    assert words in caught.value.message
    assert str(caught.value).startswith(f"state.md:{line}: ")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text at all makes the parser fail in another way than with a StateFileError."""
    for candidate in (text, EMPTY + text, EMPTY + "- " + text):
        try:
            state = parse(candidate)
        except StateFileError:
            continue
        assert parse(render(state)) == state


def test_reading_says_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    """No file, a folder, bytes that are no UTF-8 and a file beyond all measure are named errors."""
    path = tmp_path / "state.md"
    with pytest.raises(StateFileError, match="overnight run"):
        read(path)
    with pytest.raises(StateFileError, match="cannot be read"):
        read(tmp_path)
    path.write_bytes(EMPTY.encode() + b"- caf\xe9\n")
    with pytest.raises(StateFileError, match=r"state.md:7: byte 0xe9 is not UTF-8"):
        read(path)
    with path.open("wb") as file:
        file.truncate(5 * 1024 * 1024)
    with pytest.raises(StateFileError, match="larger than"):
        read(path)


def test_reading_returns_the_very_text(tmp_path: Path) -> None:
    """The text comes back as it is on disk, line endings included, for the comparison after an exchange."""
    path = tmp_path / "state.md"
    text = EMPTY.replace("\n", "\r\n")
    path.write_bytes(text.encode())
    assert read(path) == (parse(EMPTY), text)


def test_moves_by_hand() -> None:
    """Notes are kept where a bucket has them, dropped where not; adding twice and unknown units are refused."""
    state = parse(DESIGN)
    assert state.move("drop-py38", Bucket.blocked, "why\n?").note_of("drop-py38") == "why ?"
    assert state.move("flaky-retry", Bucket.open, "again").note_of("flaky-retry") == ""
    assert state.renote("billing-api", "new").blocked == (Entry("billing-api", "new"),)
    assert state.renote("drop-py38", "new") == state
    with pytest.raises(ValueError, match="more than one place: drop-py38"):
        state.add("drop-py38")
    with pytest.raises(UnknownUnitError, match="did you mean 'drop-py38'"):
        state.move("drop-py3", Bucket.open)
    with pytest.raises(UnknownUnitError, match="overnight status"):
        state.remove("zzz")


def test_reordering_keeps_what_is_not_named_in_place() -> None:
    """Named units follow each other as asked, in the places they had together; unknown names are passed over."""
    state = State("t", open=tuple(Entry(unit) for unit in "abcde"))
    assert state.reorder(Bucket.open, ["d", "zzz", "b"]).ids() == ("a", "d", "c", "b", "e")


def test_a_state_that_contradicts_itself_cannot_be_made() -> None:
    """Ids, notes, goals, title and revision are checked when a state is made, not when it is written."""
    with pytest.raises(ValueError, match="not a unit id"):
        Entry("Bad")
    with pytest.raises(ValueError, match="only tried and blocked"):
        State("t", open=(Entry("a", "note"),))
    with pytest.raises(ValueError, match="has a title"):
        State("\n")
    with pytest.raises(ValueError, match="cannot be"):
        State("t", rev=3)
    with pytest.raises(ValueError, match="typed goal"):
        State("t", typed_goals={"a": "goal"})
    assert {Bucket.tried, Bucket.blocked} == NOTED


def test_only_a_night_of_passed_units_is_done() -> None:
    """All passed means at least one unit, and none anywhere else."""
    assert not State("t").all_passed()
    assert State("t", passed=(Entry("a"),)).all_passed()
    assert not State("t", passed=(Entry("a"),), blocked=(Entry("b"),)).all_passed()


def test_a_nights_id_is_its_date_and_chance() -> None:
    """The id is short, can stand in a ref and a path, and differs between nights of one date."""
    rng = random.Random(7)
    nights = {mint_night(datetime(2026, 11, 30, 23, tzinfo=UTC), rng) for _ in range(50)}
    assert len(nights) > 45
    assert all(re.fullmatch(r"1130-[2-9a-z]{3}", night) for night in nights)


def test_a_found_fault_is_bad_input() -> None:
    """The command line catches StateFileError as BadInput, with exit code 2."""
    assert issubclass(StateFileError, BadInput)
    assert StateFileError("x").exit_code == 2
