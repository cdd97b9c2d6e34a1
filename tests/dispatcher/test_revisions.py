"""The texts of the state file, kept as what changed."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.revisions import FULL_EVERY, Revisions, apply, between
from dispatcher.state import Bucket, State, render

NIGHT = "1130-k3v"
steps = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from(Bucket), st.booleans(), st.sampled_from(["", "why", "## open - x"])),
    max_size=12,
)


def walk(moves: list[tuple[int, Bucket, bool, str]]) -> list[str]:
    """The texts of a night of up to eight units: a unit that is not there is added, one that is there moves."""
    state = State("Ours")
    texts = [render(state.stamped(NIGHT, 1))]
    for rev, (number, bucket, first, note) in enumerate(moves, 2):
        unit = f"u{number}"
        known = state.bucket_of(unit) is not None
        state = state.move(unit, bucket, note, first=first) if known else state.add(unit, bucket, note)
        texts.append(render(state.stamped(NIGHT, rev)))
    return texts


@given(steps)
def test_a_change_leads_from_one_text_to_the_next(moves: list[tuple[int, Bucket, bool, str]]) -> None:
    """To the byte, whatever moved."""
    texts = walk(moves)
    for old, new in pairwise(texts):
        lines = old.split("\n")
        apply(lines, between(old, new))
        assert "\n".join(lines) == new


@given(steps, st.data())
def test_every_text_is_found_again_in_any_order(
    moves: list[tuple[int, Bucket, bool, str]], data: st.DataObject
) -> None:
    """Whether it was kept in full or as a change, and whichever was asked for before."""
    texts = walk(moves)
    kept = Revisions()
    for rev, text in enumerate(texts, 1):
        full = rev == 1 or data.draw(st.booleans())
        kept.keep(rev, text if full else "", () if full else between(texts[rev - 2], text))
    for rev in data.draw(st.permutations(range(1, len(texts) + 1))):
        assert kept[rev] == texts[rev - 1]
    assert list(kept) == list(range(1, len(texts) + 1))
    assert len(texts) + 1 not in kept
    assert kept.get(len(texts) + 1) is None


def test_a_change_is_as_small_as_what_moved() -> None:
    """One move in a long file is three places: the revision, where it was, where it is."""
    state = State("Ours", NIGHT, 1).add_all(f"u{n}" for n in range(1000))
    change = between(render(state), render(state.move("u500", Bucket.passed).stamped(NIGHT, 2)))
    assert sorted((one.cut, one.put) for one in change)[1:] == [
        (1, ()),
        (1, (render(state.stamped(NIGHT, 2)).split("\n")[1],)),
    ]
    assert len(change) == 3


def test_a_full_text_comes_now_and_then() -> None:
    """So that no text is put together from a whole night of changes."""
    kept = Revisions()
    assert kept.is_full_due(1)
    kept.keep(1, "text", ())
    assert not kept.is_full_due(FULL_EVERY)
    assert not kept.is_full_due(FULL_EVERY + 1)
    assert kept.is_full_due(FULL_EVERY + 2)
