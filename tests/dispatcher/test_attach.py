"""Images that a unit file attaches: what it may name, and the way of the names into the order."""

from pathlib import Path

import pytest

from dispatcher.config import parse as parse_config
from dispatcher.decide import HandOut
from dispatcher.errors import UnitFileError
from dispatcher.ledger import Ledger
from dispatcher.orders import order_of
from dispatcher.units import UnitFile, digest, dump, parse

PATH = Path("a.md")


def of(attach: str) -> UnitFile:
    return parse(f"---\nattach: {attach}\n---\nLook.", PATH)


def test_names() -> None:
    """One name or a list, of the four kinds, in any case; written back it is the same unit."""
    assert of("docs/shot.png").attach == ("docs/shot.png",)
    many = of("[a.PNG, b/c.jpeg, d.jpg, e.gif, f.webp]")
    assert many.attach == ("a.PNG", "b/c.jpeg", "d.jpg", "e.gif", "f.webp")
    assert parse(dump(many), PATH) == many
    assert of("").attach == ()


@pytest.mark.parametrize(
    ("attach", "words"),
    [
        ("notes.txt", "attach takes images"),
        ("/etc/a.png", "from the repository's top"),
        ("../a.png", "from the repository's top"),
        (".git/a.png", "from the repository's top"),
        (f"[{', '.join(['a.png'] * 21)}]", "at most 20"),
    ],
)
def test_what_cannot_be_attached(attach: str, words: str) -> None:
    """The fault is named with its line."""
    with pytest.raises(UnitFileError, match=words) as caught:
        of(attach)
    assert caught.value.line == 2


def test_the_digest() -> None:
    """Pictures are part of the goal, so other ones void a verdict; a unit without any has the digest it always had."""
    plain = parse("Look.", PATH)
    assert digest(of("a.png"), "make", []) not in (digest(plain, "make", []), digest(of("b.png"), "make", []))
    assert digest(plain, "make", []) == "0c2b2c55545c14f962cb0b472a4d8fa5ee090c607197ca06af6ee7f41ce91030"


def test_the_order_names_them() -> None:
    """A worker is told which images to show."""
    hand_out = HandOut("a", 1, 1, None)
    config = parse_config('[verify]\nrun = "make"\n')
    made = order_of(
        of("a.png"),
        hand_out,
        Ledger().unit("a"),
        config,
        night="n",
        base="b",
        run_id="r",
        repository=Path("/r"),
        home=Path("/h"),
    )
    assert made.attach == ("a.png",)
