"""Counting silence: a hand-out is lost after K healthy polls without a beat, by no clock (rule 10)."""

import pytest

from dispatcher.watch import Loss, Watch
from workers.lease import LeaseRecord

K = 4


def record(beat: int, token: str = "1.1", holder: str = "here:1") -> dict[str, LeaseRecord]:
    return {"a": LeaseRecord(token, holder, beat, {})}


@pytest.fixture
def watch() -> Watch:
    made = Watch(K)
    assert made.new_redis("r1")
    return made


def polls(watch: Watch, times: int, records: dict[str, LeaseRecord], token: str = "1.1") -> list[list[Loss]]:
    return [watch.observe({"a": token}, records) for _ in range(times)]


def test_a_holder_that_stands_still_is_lost_after_k_polls(watch: Watch) -> None:
    """The first poll only sets the mark; then K without a beat."""
    assert polls(watch, K, record(7)) == [[]] * K
    assert polls(watch, 1, record(7)) == [[Loss("a", claimed=True)]]


def test_a_recall_starts_the_count_anew(watch: Watch) -> None:
    """Whoever took the order in the very moment is heard of with its next beat."""
    polls(watch, 3 * K, record(0, holder=""))
    watch.recall("a", "1.1")
    assert polls(watch, K, record(0, holder="")) == [[]] * K
    assert polls(watch, K, record(2)) == [[]] * K


def test_every_beat_starts_the_count_anew(watch: Watch) -> None:
    """However slow it is."""
    for beat in range(1, 6):
        assert polls(watch, K, record(beat)) == [[]] * K


def test_another_start_of_redis_starts_all_counts_anew(watch: Watch) -> None:
    """What was silent may only have been unheard."""
    polls(watch, K, record(7))
    assert watch.new_redis("r2")
    assert not watch.new_redis("r2")
    assert polls(watch, K, record(7)) == [[]] * K


def test_an_order_that_nobody_takes_waits_longer_and_is_recalled_before_it_is_given_up(watch: Watch) -> None:
    """It may only stand behind others; once it is recalled nobody can take it in the moment of giving it up."""
    found = polls(watch, 5 * K + 1, record(0, holder=""))
    assert found == [*([[]] * (5 * K)), [Loss("a", claimed=False, recall=True)]]
    watch.recall("a", "1.1")
    assert polls(watch, K, record(0, holder="")) == [[]] * K
    assert polls(watch, 1, record(0, holder="")) == [[Loss("a", claimed=False)]]
    assert watch.recalled == set()


def test_a_holder_whose_process_is_dead_is_lost_at_once(watch: Watch) -> None:
    """Another holder is not."""
    assert watch.observe({"a": "1.1"}, record(7), dead={"here:1"}) == [Loss("a", claimed=True)]
    assert watch.observe({"a": "1.1"}, record(7), dead={"here:2"}) == []


def test_the_record_of_another_hand_out_is_no_beat_of_this_one(watch: Watch) -> None:
    """A zombie's beats do not keep its successor alive."""
    for beat in range(5 * K):
        assert watch.observe({"a": "1.2"}, record(beat + 1, token="1.1")) == []
    assert watch.observe({"a": "1.2"}, record(99, token="1.1")) == [Loss("a", claimed=False, recall=True)]


def test_a_unit_that_is_no_longer_in_flight_is_forgotten(watch: Watch) -> None:
    """Its next hand-out starts from nothing."""
    polls(watch, K, record(7))
    assert watch.observe({}, {}) == []
    assert polls(watch, K, record(7)) == [[]] * K
