from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worktrees.output import HeadAndTail


@given(chunks=st.lists(st.binary(max_size=30)), limit=st.integers(0, 60))
def test_head_and_tail_are_exact_however_it_was_cut(chunks: list[bytes], limit: int) -> None:
    """The text is all of it, or its first and last bytes with the number of missing ones between."""
    kept = HeadAndTail(limit)
    for chunk in chunks:
        kept.feed(chunk)
    whole = b"".join(chunks)
    assert kept.total == len(whole)
    assert kept.is_truncated == (len(whole) > limit)
    if not kept.is_truncated:
        assert kept.text() == whole.decode(errors="replace")
        return
    tail = limit // 2
    head, last = whole[: limit - tail], whole[len(whole) - tail :]
    marker = f"\n[… {len(whole) - limit} bytes left out …]\n"
    assert kept.text() == head.decode(errors="replace") + marker + last.decode(errors="replace")


def test_many_small_writes_keep_the_right_tail() -> None:
    """A thousand single bytes: the tail that is cut now and then is cut at the right end."""
    kept = HeadAndTail(20)
    for number in range(1000):
        kept.feed(b"%d" % (number % 10))
        if number > 20:
            assert kept.text().endswith("".join(str(n % 10) for n in range(number - 9, number + 1)))
