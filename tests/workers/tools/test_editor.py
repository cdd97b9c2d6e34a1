"""The text editor: view, create, str_replace, insert, and what the model is told when it cannot be done."""

# ruff: noqa: ASYNC240 - small files of the test itself

from pathlib import Path
from typing import Any

import pytest
from pictures import picture

from workers.errors import ToolError
from workers.tools import Editor, Workspace


async def edit(workspace: Workspace, command: str, path: str = "f.py", **more: Any) -> str:
    outcome = await Editor().run({"command": command, "path": path, **more}, workspace)
    assert not outcome.is_error
    return outcome.content


@pytest.fixture
def file(root: Path) -> Path:
    made = root / "f.py"
    made.write_text("one\ntwo\nthree\n")
    return made


async def test_view(workspace: Workspace, file: Path) -> None:
    """A view numbers the lines from 1; relative and absolute paths name the same file."""
    assert await edit(workspace, "view") == "     1\tone\n     2\ttwo\n     3\tthree"
    assert await edit(workspace, "view", str(file)) == await edit(workspace, "view")


@pytest.mark.parametrize(
    ("asked", "numbers"), [([1, 1], [1]), ([2, 3], [2, 3]), ([2, -1], [2, 3]), ([3, 99], [3]), (None, [1, 2, 3])]
)
async def test_view_range(workspace: Workspace, file: Path, asked: Any, numbers: list[int]) -> None:
    """A range shows these lines, -1 means to the end, and one that goes past the end is cut."""
    shown = await edit(workspace, "view", view_range=asked)
    assert [int(line.split("\t")[0]) for line in shown.split("\n")] == numbers


@pytest.mark.parametrize("asked", [[0, 1], [3, 2], [4, 5], [1], [1, 2, 3], "1-2", [1, "2"], [-1, 2], [2, -2]])
async def test_view_range_that_does_not_fit(workspace: Workspace, file: Path, asked: Any) -> None:
    """A range outside of the file, or that is none, is an error with the file's size or the form."""
    with pytest.raises(ToolError, match="view_range"):
        await edit(workspace, "view", view_range=asked)


async def test_view_of_little(workspace: Workspace, root: Path) -> None:
    """Empty files, empty folders and folders are told apart; only a newline ends a line."""
    (root / "empty").write_text("")
    (root / "folder").mkdir()
    (root / "odd").write_text("a\u2028b\fc\rd")
    assert await edit(workspace, "view", "empty") == "(empty file)"
    assert await edit(workspace, "view", "folder") == "(empty directory)"
    assert await edit(workspace, "view", ".") == "empty\nfolder/\nodd"
    assert await edit(workspace, "view", "odd") == "     1\ta\u2028b\fc\rd"


@pytest.mark.parametrize("content", ["line\n" * 100_000, "x" * 500_000], ids=["many lines", "one line"])
async def test_view_of_much(workspace: Workspace, root: Path, content: str) -> None:
    """One look never fills the model's window: it ends with how to see the rest, and a range shows it."""
    (root / "big").write_text(content)
    shown = await edit(workspace, "view", "big")
    assert len(shown) < 101_000
    assert "use `view_range` or bash" in shown
    if "\n" in content:
        head, note = shown.rsplit("\n", 1)
        assert f"{100_000 - head.count(chr(10)) - 1} more lines" in note
        assert await edit(workspace, "view", "big", view_range=[99_999, -1]) == " 99999\tline\n100000\tline"


async def test_a_folder_with_much_in_it(workspace: Workspace, root: Path) -> None:
    """A listing is cut as well."""
    for number in range(60):
        (root / f"{number:02}").mkdir()
        for inner in range(20):
            (root / f"{number:02}" / f"{inner:02}{'x' * 100}").touch()
    assert len(await edit(workspace, "view", ".")) < 101_000


async def test_no_text(workspace: Workspace, root: Path) -> None:
    """A file that is no UTF-8 is not shown as something that it is not, and not edited."""
    (root / "f.py").write_bytes(b"\xff\xfe")
    for command, more in (("view", {}), ("str_replace", {"old_str": "a"}), ("insert", {"insert_line": 0})):
        with pytest.raises(ToolError, match="not UTF-8"):
            await edit(workspace, command, insert_text="", **more)
    assert (root / "f.py").read_bytes() == b"\xff\xfe"


async def test_create(workspace: Workspace, root: Path, file: Path) -> None:
    """Create makes a file with its folders, or replaces the whole of one; without text it is empty."""
    await edit(workspace, "create", "a/b.txt", file_text="é\r\n")
    assert (root / "a" / "b.txt").read_bytes() == "é\r\n".encode()
    await edit(workspace, "create", file_text="new")
    assert file.read_text() == "new"
    await edit(workspace, "create")
    assert file.read_text() == ""


async def test_str_replace(workspace: Workspace, file: Path) -> None:
    """One match is replaced and its line named; newlines stay as they are; without new text it is taken out."""
    file.write_bytes(b"one\r\ntwo\nthree")
    assert await edit(workspace, "str_replace", old_str="two", new_str="zwei\n$1 \\1") == "Replaced in f.py, line 2."
    assert file.read_bytes() == b"one\r\nzwei\n$1 \\1\nthree"
    await edit(workspace, "str_replace", old_str="\nthree")
    assert file.read_bytes() == b"one\r\nzwei\n$1 \\1"


@pytest.mark.parametrize(
    ("old", "words"), [("four", "does not stand in f.py"), ("e", "stands 3 times in f.py"), ("", "does not stand in")]
)
async def test_str_replace_needs_one_match(workspace: Workspace, file: Path, old: str, words: str) -> None:
    """No match, several, and nothing to look for change nothing and say how often it was found."""
    with pytest.raises(ToolError, match=words):
        await edit(workspace, "str_replace", old_str=old, new_str="x")
    assert file.read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("content", "line", "text", "after"),
    [
        ("one\ntwo\n", 0, "x", "x\none\ntwo\n"),
        ("one\ntwo\n", 1, "x\n", "one\nx\ntwo\n"),
        ("one\ntwo\n", 2, "x", "one\ntwo\nx\n"),
        ("one\ntwo", 2, "x", "one\ntwo\nx\n"),
        ("", 0, "x", "x\n"),
        ("a\r\nb\r\n", 1, "x\r\n", "a\r\nx\r\nb\r\n"),
        ("a\rb\u2028c\n", 1, "x", "a\rb\u2028c\nx\n"),
    ],
)
async def test_insert(workspace: Workspace, file: Path, *, content: str, line: int, text: str, after: str) -> None:
    """Text goes behind that line, 0 is the top, as lines of its own; other line ends are left alone."""
    file.write_bytes(content.encode())
    await edit(workspace, "insert", insert_line=line, insert_text=text)
    assert file.read_bytes() == after.encode()


@pytest.mark.parametrize("line", [-1, 4, "1", None, 1.0])
async def test_insert_needs_a_line_of_the_file(workspace: Workspace, file: Path, line: Any) -> None:
    """A line that the file does not have changes nothing and names the range."""
    with pytest.raises(ToolError, match="from 0 to 3"):
        await edit(workspace, "insert", insert_line=line, insert_text="x")
    assert file.read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "`command` is missing"),
        ({"command": 1}, "`command` must be a string"),
        ({"command": "undo_edit", "path": "f.py"}, "unknown command 'undo_edit'; use one of view"),
        ({"command": "view"}, "`path` is missing"),
        ({"command": "view", "path": ["f.py"]}, "`path` must be a string"),
        ({"command": "str_replace", "path": "f.py"}, "`old_str` is missing"),
        ({"command": "insert", "path": "f.py", "insert_line": 0}, "`insert_text` is missing"),
        ({"command": "create", "path": "f.py", "file_text": 7}, "`file_text` must be a string"),
        ({"command": "create", "path": "f.py", "file_text": "\ud800"}, "cannot be written as UTF-8"),
        ({"command": "view", "path": "none.py"}, "No such file"),
        ({"command": "view", "path": "../x"}, "is not allowed"),
    ],
)
async def test_bad_arguments(workspace: Workspace, file: Path, given: dict[str, Any], words: str) -> None:
    """What is missing or wrong is named; nothing is changed."""
    with pytest.raises(ToolError, match=words):
        await Editor().run(given, workspace)
    assert file.read_text() == "one\ntwo\nthree\n"


def test_only_a_look_changes_nothing() -> None:
    """Everything but `view` counts as a change, nonsense included."""
    editor = Editor()
    assert not editor.mutates({"command": "view"})
    assert all(editor.mutates({"command": name}) for name in ("create", "str_replace", "insert", "x", None))


async def test_a_link_is_not_edited(workspace: Workspace, root: Path, outside: Path) -> None:
    """Every command refuses a symbolic link that leads out, and what it leads to stays."""
    (root / "link").symlink_to(outside)
    for command in ("view", "create", "str_replace", "insert"):
        for path in ("link", "link/file"):
            with pytest.raises(ToolError):
                await edit(workspace, command, path, old_str="secret", insert_line=0, insert_text="x", file_text="x")
    assert (outside / "file").read_text() == "secret"


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_view_of_an_image(workspace: Workspace, root: Path, form: str) -> None:
    """An image is shown as one, whatever its name says, with a line that people read too."""
    (root / "shot").write_bytes(picture(form))
    seen = await Editor().run({"command": "view", "path": "shot"}, workspace)
    assert seen.content == f"[image 40x30 {form.lower()}]"
    assert [block["type"] for block in seen.images] == ["image"]
    assert seen.result("c").images == list(seen.images)


async def test_view_of_a_broken_image(workspace: Workspace, root: Path) -> None:
    """A broken one is the model's to know; no other command takes an image for text."""
    (root / "shot.png").write_bytes(picture()[:40])
    with pytest.raises(ToolError, match=r"shot\.png cannot be shown: it cannot be decoded"):
        await edit(workspace, "view", "shot.png")
    with pytest.raises(ToolError, match="not UTF-8"):
        await edit(workspace, "str_replace", "shot.png", old_str="a")
