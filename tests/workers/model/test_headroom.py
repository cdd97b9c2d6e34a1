"""What an answer's headers say of the limits: a pause when nothing is left, a slower pace when little is."""

import pytest

from workers.model.failures import from_status
from workers.model.headroom import Headroom, read_headroom

NOW = (b"Date", b"Tue, 17 Nov 2026 20:00:00 GMT")


def told(kind: str, limit: object, remaining: object, reset: str = "2026-11-17T20:01:00Z") -> list[tuple[bytes, bytes]]:
    said = {"limit": limit, "remaining": remaining, "reset": reset}
    return [(f"Anthropic-RateLimit-{kind}-{name}".encode(), str(value).encode()) for name, value in said.items()]


@pytest.mark.parametrize("kind", ["requests", "tokens", "input-tokens", "output-tokens"])
@pytest.mark.parametrize(
    ("remaining", "expected"),
    [
        (0, Headroom(pause=60.0)),
        (1, Headroom(gap=5.4, seconds=60.0)),
        (5, Headroom(gap=3.0, seconds=60.0)),
        (10, None),
        (100, None),
    ],
)
def test_what_is_left(kind: str, remaining: int, expected: Headroom | None) -> None:
    """Nothing: a pause to the reset. Below a tenth: a gap that grows to a tenth of the time to the reset."""
    found = read_headroom([NOW, *told(kind, 100, remaining)])
    assert (found is None) is (expected is None)
    if found is not None and expected is not None:
        assert (found.pause, found.seconds) == (expected.pause, expected.seconds)
        assert found.gap == pytest.approx(expected.gap)


def test_the_tightest_limit_counts() -> None:
    """A pause is tighter than any gap, a wider gap than a narrower one."""
    low, lower, none = told("requests", 100, 9), told("tokens", 100, 1), told("output-tokens", 100, 0)
    found = read_headroom([NOW, *low, *lower])
    assert found is not None
    assert found.gap == pytest.approx(5.4)
    assert read_headroom([NOW, *low, *none, *lower]) == Headroom(pause=60.0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([*told("requests", 100, 0)], 10.0),  # no date
        ([NOW, *told("requests", 100, 0, "soon")], 10.0),
        ([NOW, *told("requests", 100, 0, "2026-11-17T20:00:30")], 10.0),  # no zone
        ([(b"date", b"?"), *told("requests", 100, 0)], 10.0),
        ([(b"date", b"Tue, 17 Nov 99999999999 20:00:00 GMT"), *told("requests", 100, 0)], 10.0),
        ([(b"date", b"Tue, 17 Nov 2026 20:00:00 +99999999999"), *told("requests", 100, 0)], 10.0),
        ([NOW, *told("requests", 100, 0, "2026-11-17T19:00:00Z")], 0.0),  # past
        ([NOW, *told("requests", 100, 0, "2026-11-17T21:00:30+01:00")], 30.0),
    ],
)
def test_the_time_to_the_reset(headers: list[tuple[bytes, bytes]], seconds: float) -> None:
    """It is the server's own: its reset less its date; where it does not say, a short pause has to do."""
    found = read_headroom(headers)
    assert found is not None
    assert found.pause == seconds


@pytest.mark.parametrize(
    "headers", [[], [NOW], told("requests", "x", 0), told("requests", 0, 0), told("requests", 10, "?"), told("x", 1, 0)]
)
def test_no_word_of_limits(headers: list[tuple[bytes, bytes]]) -> None:
    """Endpoints without the headers, or with strange ones, slow nobody down."""
    assert read_headroom([NOW, *headers]) is None


def test_a_refusal_without_a_time_waits_for_the_reset() -> None:
    """A 429 that does not say how long, but what is used up until when, is waited for so long."""
    headers = {name.lower(): value for name, value in [NOW, *told("tokens", 100, 0)]}
    assert from_status(429, "slow down", headers=headers).retry_after == 60.0
    assert from_status(429, "slow down", headers={**headers, b"retry-after": b"3"}).retry_after == 3.0
