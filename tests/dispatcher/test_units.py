"""Unit files: front matter read as text, faults with their lines, ids from goals, the graph, the digest."""

import contextlib
import os
import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dispatcher.errors import BadInput, UnitFileError
from dispatcher.state import ID_PATTERN, is_unit_id
from dispatcher.units import (
    MAX_BYTES,
    UnitFile,
    UnitFolder,
    UnitLimits,
    agent_of_attempt,
    check_graph,
    digest,
    dump,
    load,
    load_all,
    parse,
    slug,
)

PATH = Path("fix.md")
ids = st.from_regex(ID_PATTERN, fullmatch=True)
words = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=60)
globs = st.lists(st.from_regex(r"[a-z*]{1,8}(/[a-z*.#: ]{1,8}[a-z])?", fullmatch=True), max_size=3).map(tuple)


@st.composite
def units(draw: st.DrawFn) -> UnitFile:
    """Draw any unit."""
    money = st.decimals("0.01", 900, places=2)
    limits = UnitLimits(
        money=draw(st.none() | money),
        minutes=draw(st.none() | st.floats(0.1, 100)),
        rounds=draw(st.none() | st.integers(1, 9)),
        attempts=draw(st.none() | st.integers(1, 9)),
    )
    return UnitFile(
        id=draw(ids),
        goal="g" + draw(words) if draw(st.booleans()) else "---\n" + draw(words) + "g",
        verify=draw(st.none() | words.map(lambda text: f"true {text}".strip())),
        after=draw(st.lists(ids, max_size=3)),
        agent=draw(st.sampled_from([None, "reviewer", "Yes", "on"])),
        effort=draw(st.sampled_from([None, "off", "low", "medium", "high"])),
        may_edit=draw(globs),
        limits=limits,
    )


@given(units())
def test_what_is_dumped_is_read_back(unit: UnitFile) -> None:
    """Whatever goal, command and limits hold, parse(dump(unit)) is the unit."""
    assert parse(dump(unit), Path(f"{unit.id}.md")) == unit


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the reader fail in another way than with a UnitFileError."""
    for candidate in (text, f"---\n{text}\n---\ngoal", f"---\nverify: {text}\n---\ngoal"):
        with contextlib.suppress(UnitFileError):
            assert parse(candidate, PATH).goal


def test_a_whole_unit_file_is_read(tmp_path: Path) -> None:
    """Every key of the front matter arrives as what it means, the goal as it was written."""
    path = tmp_path / "round-totals.md"
    path.write_bytes(
        b"\xef\xbb\xbf---\r\nverify: uv run pytest -q\r\nafter: [drop-py38, other]\r\nagent: careful\r\neffort: off\r\n"
        b'may_edit: src/**\r\nlimits:\r\n  money: "$2.50"\r\n  minutes: 30\r\n  rounds: 2\r\n  attempts: 1\r\n'
        b"---\r\n\r\nRound totals.\r\n\r\n---\r\nHalf-even.\r\n"
    )
    assert load(path) == UnitFile(
        id="round-totals",
        goal="Round totals.\n\n---\nHalf-even.",
        verify="uv run pytest -q",
        after=("drop-py38", "other"),
        agent="careful",
        effort="off",
        may_edit=("src/**",),
        limits=UnitLimits(money=Decimal("2.5"), minutes=30, rounds=2, attempts=1),
    )


def test_values_are_text_not_yaml_guesses() -> None:
    """`true`, `off`, `1` and `no` are commands, efforts and ids, never booleans or numbers."""
    unit = parse("---\nverify: true\neffort: off\nafter: [1, no, 2026-11-30]\n---\nDo", PATH)
    assert (unit.verify, unit.effort, unit.after) == ("true", "off", ("1", "no", "2026-11-30"))


def test_a_bare_goal_and_empty_keys_are_enough() -> None:
    """No front matter, or keys with nothing behind them as in a copied template, mean the defaults."""
    bare = UnitFile(id="fix", goal="Fix the typo")
    assert parse("Fix the typo\n", PATH) == bare
    assert parse("---\n---\nFix the typo\n", PATH) == bare
    empty = "---\nverify:\nafter:\nagent:\neffort:\nmay_edit:\nlimits:\n---\nFix the typo"
    assert parse(empty, PATH) == bare
    assert dump(bare) == "Fix the typo\n"


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        ("---\nverfy: x\n---\ng", 2, "verfy", 'did you mean "verify"'),
        ("---\nzzz: x\n---\ng", 2, "zzz", "known: after"),
        ("---\nverify: x\nlimits:\n  rnds: 3\n---\ng", 4, "limits.rnds", 'did you mean "rounds"'),
        ("---\nlimits: {money: five}\n---\ng", 2, "limits.money", '"$5"'),
        ("---\nlimits: {minutes: inf}\n---\ng", 2, "limits.minutes", "finite"),
        ("---\neffort: max\n---\ng", 2, "effort", "'off', 'low', 'medium' or 'high'"),
        ("---\nafter:\n  - ok\n  - Not Ok\n---\ng", 4, "after.1", "'Not Ok'"),
        ("---\nmay_edit: ../secret\n---\ng", 2, "may_edit.0", "relative to the repository"),
        ("---\nverify: a\nverify: b\n---\ng", 3, "verify", "twice"),
        ("---\nlimits:\n  rounds: 1\n  rounds: 2\n---\ng", 4, "rounds", "twice"),
        ("---\nid: other\n---\ng", 2, "id", "file's name"),
        ("---\ngoal: other\n---\ng", 2, "goal", "below the front matter"),
        ("---\nverify: [a\n---\ng", 2, None, "not YAML"),
        ("---\nok: 1\nverify: a: b\n---\ng", 3, None, "in quotes"),
        ("---\nverify: *gone\n---\ng", 2, None, "not YAML"),
        ("---\n- a\n---\ng", 2, None, "lines 'key: value'"),
        ("---\nverify: x\n", 1, None, "never ends"),
        ("---\nverify: x\n---\n\n \n", 4, "goal", "the goal is missing"),
        ("", 1, "goal", "the goal is missing"),
        ("a\0b", 1, "goal", "NUL"),
        ("---\na: &a {x: *a}\n---\ng", 2, None, "recursive"),
        (f"---\na: {'[' * 3000}\n---\ng", 2, None, "nested too deeply"),
    ],
)
def test_a_fault_names_file_line_and_field(text: str, line: int, field: str | None, words: str) -> None:
    """Each fault says where it is and what to do."""
    with pytest.raises(UnitFileError) as caught:
        parse(text, PATH)
    assert (caught.value.path, caught.value.line, caught.value.field) == (PATH, line, field)
    assert words in caught.value.message


def test_all_faults_of_a_file_come_at_once() -> None:
    """Two mistakes need one look, in the order of the file."""
    with pytest.raises(UnitFileError) as caught:
        parse("---\neffort: max\nverfy: x\n---\n", PATH)
    assert [problem.line for problem in caught.value.problems] == [2, 3, 5]
    assert str(caught.value).count("fix.md:") == 3


def test_yaml_bombs_cost_nothing() -> None:
    """Aliases that multiply are refused at once instead of being walked out."""
    bomb = "".join(f"k{n}: &k{n} {{a: *k{n - 1}, b: *k{n - 1}}}\n" for n in range(1, 60))
    with pytest.raises(UnitFileError, match="unknown key"):
        parse(f"---\nk0: &k0 {{a: x}}\n{bomb}---\ng", PATH)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Missing, huge, not UTF-8, badly named: an error with the path."""
    with pytest.raises(UnitFileError, match="cannot be read"):
        load(tmp_path / "gone.md")
    (tmp_path / "latin.md").write_bytes(b"one\ncaf\xe9")
    with pytest.raises(UnitFileError, match=r"latin.md:2: is not UTF-8"):
        load(tmp_path / "latin.md")
    (tmp_path / "big.md").write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(UnitFileError, match="larger than"):
        load(tmp_path / "big.md")
    (tmp_path / "Bad Name.md").write_text("goal")
    with pytest.raises(UnitFileError, match="the file's name is the unit's id"):
        load(tmp_path / "Bad Name.md")


def test_loading_a_folder_lists_every_faulty_file(tmp_path: Path) -> None:
    """All units by id; hidden and other files are passed over; the faults of all files are in one error."""
    folder = tmp_path / "units"
    assert load_all(folder) == {}
    folder.mkdir()
    for name, text in {"b.md": "B", "a.md": "A", ".a.md.swp": "x", ".hidden.md": "", "note.txt": "x"}.items():
        (folder / name).write_text(text)
    assert {unit: one.goal for unit, one in load_all(folder).items()} == {"a": "A", "b": "B"}
    (folder / "c.md").write_text("---\nx: 1\n---\n")
    (folder / "README.md").write_text("hello")
    with pytest.raises(BadInput) as caught:
        load_all(folder)
    assert len(caught.value.problems) == 3
    assert {problem.path for problem in caught.value.problems} == {folder / "c.md", folder / "README.md"}


def test_a_unit_cannot_be_changed() -> None:
    """Units are frozen, also against unknown fields."""
    unit = UnitFile(id="a", goal="g")
    with pytest.raises(ValidationError):
        unit.goal = "other"
    with pytest.raises(ValidationError):
        UnitFile.model_validate({"id": "a", "goal": "g", "owner": "x"})


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        ("Drop py38", "drop-py38"),
        ("Sửa lỗi Đăng nhập", "sua-loi-dang-nhap"),
        ("Straße größer, naïve œuvre", "strasse-grosser-naive-oeuvre"),
        ("Don't panic!", "dont-panic"),
        ("修正", "unit"),
        ("", "unit"),
        ("--- /etc/passwd; rm -rf", "etc-passwd-rm-rf"),
        ("Round invoice totals half-even everywhere in billing", "round-invoice-totals-half-even-everywhere"[:30]),
        ("x" * 70, "x" * 40),
    ],
)
def test_a_slug_reads_like_the_goal(goal: str, expected: str) -> None:
    """Words in Latin letters, at most 40 characters, cut between words where that is possible."""
    assert slug(goal) == expected


def test_a_slug_is_unique() -> None:
    """A taken id gets -2, -3 …, still within the limit."""
    assert slug("Fix it", {"fix-it"}) == "fix-it-2"
    assert slug("Fix it", {"fix-it", "fix-it-2"}) == "fix-it-3"
    assert slug("x" * 50, {"x" * 40}) == "x" * 38 + "-2"


@given(st.text(), st.sets(ids, max_size=3))
def test_any_goal_has_an_id(goal: str, taken: set[str]) -> None:
    """Whatever the goal, its slug is an id, short and free, and taking it leads to another."""
    name = slug(goal, taken)
    assert is_unit_id(name)
    assert len(name) <= 40
    assert name not in taken
    assert slug(goal, taken | {name}) != name


def unit(name: str, *after: str) -> UnitFile:
    """Make a unit that waits for `after`."""
    return UnitFile(id=name, goal="g", after=after)


def graph(*units: UnitFile) -> dict[str, UnitFile]:
    """Index units by id."""
    return {one.id: one for one in units}


def test_a_graph_without_circles_is_fine() -> None:
    """Chains, diamonds, thousands of links and units known from elsewhere are accepted."""
    check_graph({})
    check_graph(graph(unit("a"), unit("b", "a"), unit("c", "a"), unit("d", "b", "c", "archived")), {"archived"})
    check_graph(graph(unit("n0"), *(unit(f"n{n}", f"n{n - 1}") for n in range(1, 3000))))


def test_unknown_and_circular_after_are_named() -> None:
    """Every unknown id is listed with its file, and a circle is written out."""
    with pytest.raises(UnitFileError) as caught:
        check_graph(graph(unit("fix-a", "fix-c"), unit("fix-b", "zzz")))
    assert [str(problem) for problem in caught.value.problems] == [
        ".overnight/units/fix-a.md: after: there is no unit 'fix-c'; did you mean 'fix-b'?",
        ".overnight/units/fix-b.md: after: there is no unit 'zzz'; add it, or take it out",
    ]
    with pytest.raises(UnitFileError) as caught:
        check_graph(graph(unit("a", "b"), unit("b", "c"), unit("c", "a"), unit("d")))
    circle = re.search(r"each other: ([a-c]) → ([a-c]) → ([a-c]) → ([a-c]);", str(caught.value))
    assert circle
    assert circle[1] == circle[4]
    assert f"{circle[1]}{circle[2]}" in {"ab", "bc", "ca"}, "the arrow points at what is waited for"
    with pytest.raises(UnitFileError, match="a → a"):
        check_graph(graph(unit("a", "a")))


def test_the_digest_holds_what_a_verdict_depends_on() -> None:
    """Goal, verify, protected and editable paths change it; limits, agent, effort and the order of paths do not."""
    base = UnitFile(id="a", goal="g", may_edit=("x", "y"))
    want = digest(base, "make", ["p", "q"])
    assert re.fullmatch("[0-9a-f]{64}", want)
    same = base.model_copy(update={"effort": "high", "agent": "z", "limits": UnitLimits(rounds=1), "after": ("b",)})
    assert digest(same, "make", ["q", "p", "p"]) == want
    others = [
        digest(base.model_copy(update={"goal": "h"}), "make", ["p", "q"]),
        digest(base.model_copy(update={"id": "b"}), "make", ["p", "q"]),
        digest(base.model_copy(update={"may_edit": ("x",)}), "make", ["p", "q"]),
        digest(base, "make ci", ["p", "q"]),
        digest(base, "make", ["p"]),
    ]
    assert want not in others
    assert len(set(others)) == 5


def test_a_unit_may_name_groups_and_an_agent_for_each_attempt() -> None:
    """One name is a list of one; the last agent goes on; without a list it is the unit's agent, or nobody's."""
    unit = parse("---\nexclusive: db\nattempts: [coder, coder-high]\nlimits: {turns: 7}\n---\nDo it.\n", Path("a.md"))
    assert (unit.exclusive, unit.limits.turns) == (("db",), 7)
    assert [agent_of_attempt(unit, begun) for begun in range(4)] == ["coder", *["coder-high"] * 3]
    assert parse(dump(unit), Path("a.md")) == unit
    assert agent_of_attempt(parse("---\nagent: careful\n---\nx\n", Path("a.md")), 2) == "careful"
    assert agent_of_attempt(parse("x\n", Path("a.md")), 0) is None
    with pytest.raises(UnitFileError, match="exclusive"):
        parse("---\nexclusive: [a b]\n---\nx\n", Path("a.md"))


def test_a_folder_reads_again_only_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same mapping while nothing changes; an edit, a new file and a deleted one are seen, and a broken one told."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.md").write_text(f"Do {name}.\n")
        os.utime(tmp_path / f"{name}.md", (1, 1))
    read: list[str] = []
    monkeypatch.setattr("dispatcher.units.load", lambda path: read.append(path.name) or load(path))
    folder = UnitFolder(tmp_path)
    first = folder.load()
    assert folder.load() is first
    assert read == ["a.md", "b.md"]
    (tmp_path / "a.md").write_text("Do more.\n")
    assert folder.load()["a"].goal == "Do more."
    assert read == ["a.md", "b.md", "a.md"]
    (tmp_path / "b.md").unlink()
    (tmp_path / "c.md").write_text("Do c.\n")
    assert list(folder.load()) == ["a", "c"]
    (tmp_path / "c.md").write_text("---\nx: 1\n---\n")
    with pytest.raises(UnitFileError, match=r"c\.md"):
        folder.load()
    (tmp_path / "c.md").write_text("Mended.\n")
    assert folder.load()["c"].goal == "Mended."


def test_a_file_so_young_that_its_time_says_nothing_is_read_again(tmp_path: Path) -> None:
    """Two writes within one tick of the clock look the same from outside."""
    path = tmp_path / "a.md"
    path.write_text("Do a.\n")
    found = path.stat()
    folder = UnitFolder(tmp_path)
    folder.load()
    path.write_text("Do b.\n")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert folder.load()["a"].goal == "Do b."


def test_units_come_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    """What is added first is queued first; of one moment, by id (not by file name: `a-2.md` is before `a.md`)."""
    for name, moment in (("b", 2), ("a-2", 2), ("a", 2), ("z", 1), ("c", 3)):
        path = tmp_path / f"{name}.md"
        path.write_text("x\n")
        os.utime(path, ns=(0, moment))
    assert list(load_all(tmp_path)) == ["z", "a", "a-2", "b", "c"]
