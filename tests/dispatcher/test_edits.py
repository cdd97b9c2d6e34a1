"""A person's edits of the state file: what was asked for, what is obeyed, what is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.edits import (
    Added,
    Adopted,
    Cancelled,
    Move,
    Moved,
    Refused,
    Regoaled,
    Removed,
    Renamed,
    Renoted,
    Reordered,
    Requeued,
    Retitled,
    Retried,
    Waived,
    apply,
    requests,
)
from dispatcher.state import NOTED, Bucket, Entry, State

BASE = State(
    "Night",
    "1130-k3v",
    7,
    tried=(Entry("flaky", "timed out"),),
    passed=(Entry("done"),),
    open=(Entry("one"), Entry("two"), Entry("three")),
    blocked=(Entry("asks", "v1?"),),
)


@st.composite
def states(draw: st.DrawFn) -> State:
    """Draw a state of the same revision with some of eight units anywhere."""
    state = State("t", "n", 1)
    for unit in draw(st.permutations("abcdefgh")):
        bucket = draw(st.one_of(st.none(), st.sampled_from(Bucket)))
        if bucket is not None:
            state = state.add(unit, bucket, draw(st.sampled_from(["", "x", "y"])))
    return state


@given(states(), states())
def test_obeying_at_once_gives_what_the_person_typed(base: State, theirs: State) -> None:
    """With nothing passed and nothing changed meanwhile, every unit lands where, and `open` is in the order, typed."""
    base = base.stamped("n", 1)
    for unit in base.ids(Bucket.passed):
        base = base.move(unit, Bucket.open)
    outcome = apply(requests(base, theirs), base)
    assert outcome.refused == ()
    assert outcome.state.ids(Bucket.open) == theirs.ids(Bucket.open)
    for bucket in Bucket:
        assert set(outcome.state.entries(bucket)) == set(theirs.entries(bucket))


@given(states(), states(), states())
def test_nothing_that_passed_leaves_passed(base: State, theirs: State, current: State) -> None:
    """Whatever is typed into whatever old revision: our passed units stay, and each request is accounted for."""
    asked = requests(base, theirs)
    outcome = apply(asked, current)
    assert set(current.ids(Bucket.passed)) <= set(outcome.state.ids(Bucket.passed))
    assert len(outcome.state.ids()) == len(set(outcome.state.ids()))
    waived_and_added = sum(isinstance(one, Added) and one.bucket is Bucket.passed for one in asked)
    refused_adds = sum(
        isinstance(one.request, Added) and one.request.bucket is Bucket.passed for one in outcome.refused
    )
    assert len(outcome.obeyed) + len(outcome.refused) == len(asked) + waived_and_added - refused_adds


@given(states())
def test_an_old_file_put_back_asks_for_nothing(base: State) -> None:
    """A file that is the revision it names, however old, changes nothing."""
    assert requests(base, base) == []


def test_two_revisions_are_not_compared() -> None:
    """Comparing with another revision than the file names would invent requests."""
    with pytest.raises(ValueError, match="cannot be compared"):
        requests(BASE, BASE.stamped("1130-k3v", 8))
    with pytest.raises(ValueError, match="cannot be compared"):
        requests(BASE, BASE.stamped("1129-aaa", 7))


def test_a_unit_moved_to_open_is_a_retry() -> None:
    """From tried or blocked to open means: once more; the note is gone."""
    theirs = BASE.move("flaky", Bucket.open).move("asks", Bucket.open)
    asked = requests(BASE, theirs)
    assert asked == [Move("flaky", Bucket.tried, Bucket.open), Move("asks", Bucket.blocked, Bucket.open)]
    outcome = apply(asked, BASE)
    assert outcome.obeyed == (Retried("flaky"), Retried("asks"))
    assert outcome.state == theirs


def test_a_unit_typed_into_passed_is_waived() -> None:
    """By a person's word a unit counts as passed, known or new."""
    theirs = BASE.move("one", Bucket.passed).add("brand-new", Bucket.passed, goal="Do it")
    outcome = apply(requests(BASE, theirs), BASE)
    assert outcome.obeyed == (
        Waived("one"),
        Adopted("brand-new", Bucket.passed, "Do it"),
        Waived("brand-new"),
    )
    assert outcome.state.ids(Bucket.passed) == ("done", "one", "brand-new")


def test_a_waived_unit_may_be_taken_back() -> None:
    """What only a person's word put into passed, a person's word takes out."""
    waived = BASE.move("one", Bucket.passed)
    theirs = waived.move("one", Bucket.open)
    asked = requests(waived, theirs)
    assert apply(asked, waived).state.bucket_of("one") is Bucket.passed
    assert apply(asked, waived, waived={"one"}).obeyed == (Retried("one"),)


@pytest.mark.parametrize("bucket", [Bucket.open, Bucket.tried, Bucket.blocked, None])
def test_what_we_passed_is_not_edited_away(bucket: Bucket | None) -> None:
    """Moved or deleted, a passed unit stays passed, and the person is told."""
    theirs = BASE.remove("done") if bucket is None else BASE.move("done", bucket)
    outcome = apply(requests(BASE, theirs), BASE)
    assert outcome.state.ids(Bucket.passed) == ("done",)
    assert outcome.obeyed == ()
    assert "stays passed" in outcome.refused[0].reason


@pytest.mark.parametrize("bucket", [Bucket.passed, Bucket.blocked, None])
def test_an_edit_that_lost_the_race_is_dropped(bucket: Bucket | None) -> None:
    """The unit passed while the person typed: the edit is refused, also a waiver, which would hide the merge."""
    theirs = BASE.remove("one") if bucket is None else BASE.move("one", bucket)
    now = BASE.move("one", Bucket.passed).stamped("1130-k3v", 9)
    outcome = apply(requests(BASE, theirs), now)
    assert outcome.state == now
    assert [type(refused) for refused in outcome.refused] == [Refused]


def test_an_edit_holds_when_the_unit_only_failed_meanwhile() -> None:
    """Parked, cancelled or waived by hand is obeyed although the unit went from open to tried in between."""
    now = BASE.move("one", Bucket.tried, "red").move("two", Bucket.tried, "red").stamped("1130-k3v", 9)
    theirs = BASE.move("one", Bucket.blocked, "wait for Anna").remove("two")
    outcome = apply(requests(BASE, theirs), now)
    assert outcome.obeyed == (Moved("one", Bucket.blocked, "wait for Anna"), Cancelled("two"))
    assert outcome.state.note_of("one") == "wait for Anna"
    assert outcome.state.rev == 9
    assert outcome.refused == ()


def test_new_lines_are_adopted_where_they_stand() -> None:
    """A typed unit keeps its goal in the file until the caller wrote its unit file; its place in the queue holds."""
    theirs = replace(BASE, open=(Entry("urgent"), *BASE.open), typed_goals={"urgent": "Fix it"})
    asked = requests(BASE, theirs)
    assert asked == [Added("urgent", Bucket.open, "Fix it"), Reordered(("urgent", "one", "two", "three"))]
    outcome = apply(asked, BASE)
    assert outcome.state == theirs
    assert outcome.obeyed[0] == Adopted("urgent", Bucket.open, "Fix it")


def test_a_line_for_a_unit_that_came_meanwhile_is_refused() -> None:
    """`overnight add` was faster: the unit is there once, and the person is told where."""
    theirs = BASE.add("new", goal="Do it")
    outcome = apply(requests(BASE, theirs), BASE.add("new"))
    assert outcome.state == BASE.add("new")
    assert outcome.refused[0].reason == "new is there already, in open"


def test_the_queue_is_in_the_order_that_was_typed() -> None:
    """Lines of `open` that changed places are a request; units that left meanwhile do not come back."""
    theirs = BASE.reorder(Bucket.open, ["three", "two", "one"])
    asked = requests(BASE, theirs)
    assert asked == [Reordered(("three", "two", "one"))]
    outcome = apply(asked, BASE.move("two", Bucket.tried))
    assert outcome.state.ids(Bucket.open) == ("three", "one")
    assert outcome.obeyed == (Requeued(("three", "two", "one")),)


def test_notes_and_title_are_the_persons_too() -> None:
    """A changed note or title is kept; a note for a unit that moved meanwhile is refused."""
    theirs = replace(BASE.renote("asks", "yes, keep it"), title="Better name")
    asked = requests(BASE, theirs)
    assert asked == [Retitled("Better name"), Move("asks", Bucket.blocked, Bucket.blocked, "yes, keep it")]
    assert apply(asked, BASE).state == theirs
    assert apply(asked, BASE).obeyed == (Renamed("Better name"), Renoted("asks", "yes, keep it"))
    later = apply(asked, BASE.move("asks", Bucket.open))
    assert "by now" in later.refused[0].reason
    assert Bucket.blocked in NOTED


def test_a_goal_typed_behind_a_known_unit_is_refused_with_the_place() -> None:
    """The goal of a known unit lives in its unit file; the refusal says so, keeps the text, and moves nothing."""
    theirs = replace(BASE, tried=(Entry("flaky"),), typed_goals={"flaky": "Use a fake clock"})
    asked = requests(BASE, theirs)
    assert asked == [Regoaled("flaky", "Use a fake clock")]
    outcome = apply(asked, BASE)
    assert outcome.state == BASE
    assert ".overnight/units/flaky.md" in outcome.refused[0].reason


def test_a_request_for_a_unit_that_is_gone_is_refused() -> None:
    """Cancelled from elsewhere meanwhile: neither moved nor removed again."""
    theirs = BASE.move("one", Bucket.blocked).remove("two")
    now = BASE.remove("one").remove("two")
    outcome = apply(requests(BASE, theirs), now)
    assert outcome.state == now
    assert [refused.request for refused in outcome.refused] == [
        Move("one", Bucket.open, Bucket.blocked),
        Removed("two"),
    ]
