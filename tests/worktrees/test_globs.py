from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worktrees.globs import is_match


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("tests/**", ["tests/a.py", "tests/b/c.py"], ["tests", "src/tests/a.py", "tests2/a"]),
        ("tests/", ["tests/a.py", "src/tests/a.py"], ["tests", "mytests/a"]),
        ("tests", ["tests", "tests/a.py", "src/tests/a.py"], ["tests.py"]),
        ("**/conftest.py", ["conftest.py", "a/conftest.py", "a/b/conftest.py"], ["conftest.pyc", "xconftest.py"]),
        ("pytest.ini", ["pytest.ini", "sub/pytest.ini", "pytest.ini/x"], ["pytestXini"]),
        ("/pytest.ini", ["pytest.ini"], ["sub/pytest.ini"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["az", "b/a/z"]),
        ("src/*.py", ["src/a.py"], ["src/b/a.py", "a.py"]),
        ("*.[ch]", ["a.c", "x/b.h"], ["a.o", "a.ch"]),
        ("[!a]b", ["xb"], ["ab", "x/ab"]),
        ("f?o", ["foo"], ["f/o", "fo"]),
        (r"\*", ["*"], ["x"]),
        ("weird\nname é", ["weird\nname é"], ["weird"]),
        ("[", ["["], ["x"]),
        ("", [], ["", "a"]),
        ("/", [], ["a"]),
    ],
)
def test_patterns_mean_what_gitignore_means(pattern: str, yes: list[str], no: list[str]) -> None:
    """Each pattern matches the paths it should and no others."""
    assert [path for path in yes if not is_match(path, [pattern])] == []
    assert [path for path in no if is_match(path, [pattern])] == []


NAMES = st.lists(st.sampled_from(["a", "b", "ab", "a.b"]), min_size=1, max_size=4).map("/".join)
PATTERNS = st.lists(st.sampled_from(["a", "*", "**", "?b", "[ab]", "a*", "*.b"]), min_size=1, max_size=3).map("/".join)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ask git")
    subprocess.run(["git", "init", "-q", path], check=True)
    return path


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=PATTERNS, slash=st.sampled_from(["", "/"]), paths=st.lists(NAMES, min_size=1, max_size=8, unique=True))
def test_git_agrees(asked: Path, pattern: str, slash: str, paths: list[str]) -> None:
    """For generated patterns and paths, git's own check-ignore gives the same answer."""
    whole = pattern + slash
    (asked / ".git/info/exclude").write_text(f"{whole}\n")
    done = subprocess.run(
        ["git", "-C", asked, "check-ignore", "--no-index", "-z", "--stdin"],
        input="\0".join(paths),
        capture_output=True,
        text=True,
        check=False,
    )
    ignored = {path for path in done.stdout.split("\0") if path}
    assert {path for path in paths if is_match(path, [whole])} == ignored
