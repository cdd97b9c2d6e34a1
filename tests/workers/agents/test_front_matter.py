"""Front matter that was written to do harm: each is refused at once, naming a line."""

import time
from pathlib import Path

import pytest

from workers.agents.front_matter import read_front_matter
from workers.errors import BundleFileError

BILLIONS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("front", "line", "words"),
    [
        (f"{BILLIONS}? *i\n: x", 10, "a key must be a word"),
        ("tools:\n  ? [a, b]\n  : x", 3, "a key must be a word"),
        (f"k: {'x' * 100_000}", 2, "more than 65,536 characters"),
        (r'description: "\UFFFFFFFF"', 2, "a character that there is not"),
        (r'description: "\U00110000"', 2, "a character that there is not"),
        ('a: b\ndescription: "\\ud800"', 3, "half a character"),
        ("k: [" + "[" * 5000, 2, "nested too deeply"),
        ("k: &a\n  - *a", 2, "not YAML"),
    ],
    ids=["billions", "list", "long", "huge", "beyond", "half", "deep", "circle"],
)
def test_what_was_written_to_do_harm(front: str, line: int, words: str) -> None:
    """Neither time nor memory is lost on it, and nothing but BundleFileError comes out of it."""
    began = time.monotonic()
    with pytest.raises(BundleFileError) as caught:
        read_front_matter(f"---\n{front}\n---\n\nReview.\n", Path("a.md"))
    assert (caught.value.line, words in caught.value.message) == (line, True), caught.value
    assert time.monotonic() - began < 5


def test_aliases_are_no_harm_in_themselves() -> None:
    """What stands for billions of values is read in no time as long as nobody writes it out."""
    began = time.monotonic()
    assert set(read_front_matter(f"---\n{BILLIONS}---\n\nReview.\n", Path("a.md")).values) == set("abcdefghi")
    assert time.monotonic() - began < 1


def test_many_tables_are_read_in_linear_time() -> None:
    """Every table is looked at once."""
    began = time.monotonic()
    read_front_matter("---\nk:\n" + "".join(f"  k{n}: {{}}\n" for n in range(5_000)) + "---\n", Path("a.md"))
    assert time.monotonic() - began < 3
