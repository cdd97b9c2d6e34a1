"""The table of legal moves, and that no history of a night gets round it."""

import re
from pathlib import Path

import pytest
from entries import asked, failed, lost, merged, ordered, release, reported, verdict
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher import edits, moves
from dispatcher import journal as j
from dispatcher.due import with_due
from dispatcher.ledger import Ledger
from dispatcher.moves import Cause, may
from dispatcher.state import Bucket, State, render

UNITS = ("a", "b", "c")
FIRST = State("Ours", "1130-k3v", 1).add_all(UNITS)


def test_only_a_merge_and_a_person_reach_passed_and_nothing_leaves_it() -> None:
    """Except what a person alone had put there."""
    into = {cause for cause in Cause if any(may(was, Bucket.passed, cause) for was in Bucket if was != Bucket.passed)}
    assert into == {Cause.merged, Cause.typed, Cause.waived}
    out = {cause for cause in Cause for to in (*Bucket, None) if to != Bucket.passed and may(Bucket.passed, to, cause)}
    assert out == {Cause.waived}
    assert {cause for cause in Cause if any(may(was, None, cause) for was in Bucket)} == {Cause.cancelled}


def test_a_verdict_does_not_undo_what_a_person_blocked() -> None:
    """A late failure leaves it where it is; a merge and a person's word move it."""
    state = State("Ours").add("a", Bucket.blocked, "mine")
    assert moves.move(state, "a", Bucket.tried, Cause.failed) is state
    assert moves.move(state, "a", Bucket.blocked, Cause.capped) is state
    assert moves.move(state, "a", Bucket.open, Cause.asked).ids(Bucket.open) == ("a",)
    assert moves.move(state, "a", Bucket.passed, Cause.merged).ids(Bucket.passed) == ("a",)


def test_a_unit_that_nobody_knows_is_not_moved_and_one_that_is_there_not_added() -> None:
    """Both leave the state as it is."""
    state = State("Ours").add("a", Bucket.tried)
    assert moves.move(state, "x", Bucket.passed, Cause.merged) is state
    assert moves.add(state, ("a",)) is state
    assert moves.add(state, ("b", "a", "c", "b")).ids(Bucket.open) == ("b", "c")


@pytest.mark.parametrize("path", sorted(Path(moves.__file__).parent.rglob("*.py")), ids=lambda path: path.name)
def test_every_move_goes_through_the_table(path: Path) -> None:
    """No other module moves, adds or removes a unit by itself."""
    if path.name in ("moves.py", "state.py"):
        return
    text = path.read_text(encoding="utf-8")
    plain = re.sub(r"\bmoves\.(?:move|add|remove)\(", "", text)
    assert not re.findall(r"\.move\(|\b(?:state|left)\.(?:add|add_all|remove)\(", plain)


history = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *(entry for unit in UNITS for entry in (*failed(unit, 2), merged(unit), lost(unit), ordered(unit, 3))),
                *(reported(verdict(unit, "pass", attempt)) for unit in UNITS for attempt in (1, 2, 3)),
                *(reported(verdict(unit, "block", note="## open")) for unit in UNITS),
                *(reported(release(unit, "model")) for unit in UNITS),
                *(j.MergeFailed(unit=unit, attempt=1, why="conflict", note="- x") for unit in UNITS),
                *(asked(kind, unit) for unit in UNITS for kind in ("retry", "answer")),
            ]
        ),
        st.tuples(st.sampled_from(UNITS), st.sampled_from([*Bucket, None])),  # a person's edit
        st.tuples(st.sampled_from(UNITS), st.just("cap")),
    ),
    max_size=25,
)


@settings(max_examples=300)
@given(history)
def test_no_history_demotes_loses_or_doubles_a_unit(steps: list[object]) -> None:
    """Whatever the journal says and people type: what is merged stays passed, and only a cancelled unit is gone."""
    state, ledger = FIRST, Ledger().extend([j.Written(rev=1, text=render(FIRST))])
    cancelled: set[str] = set()
    for step in steps:
        was_merged = {unit for unit, facts in ledger.units.items() if facts.merged is not None and facts.merged}
        if isinstance(step, tuple):
            state = _person(state, ledger, step, cancelled)
        else:
            ledger.add(step)
        after = with_due(state, ledger, lambda _: 3)
        passed = {unit for unit in was_merged if state.bucket_of(unit) is Bucket.passed}
        assert passed <= set(after.ids(Bucket.passed))
        assert sorted(after.ids()) == sorted(set(UNITS) - cancelled)
        if after != state:
            ledger.add(j.Written(rev=ledger.rev + 1, text=render(after.stamped("1130-k3v", ledger.rev + 1))))
        state = after
        merged_now = {unit for unit, facts in ledger.units.items() if facts.merged is not None} - cancelled
        assert merged_now <= set(state.ids(Bucket.passed))


def _person(state: State, ledger: Ledger, step: tuple[str, object], cancelled: set[str]) -> State:
    unit, where = step
    if where == "cap":
        return moves.move(state, unit, Bucket.blocked, Cause.capped, "used up")
    theirs = state
    if state.bucket_of(unit) is None:
        return state
    theirs = state.remove(unit) if where is None else state.move(unit, Bucket(str(where)), "mine")
    waived = {one for one, facts in ledger.units.items() if facts.waived and facts.merged is None}
    done = edits.apply(edits.requests(state, theirs), state, waived=waived)
    names = {
        kind: [e.id for e in done.obeyed if type(e) is kind] for kind in (edits.Retried, edits.Waived, edits.Cancelled)
    }
    ledger.add(
        j.Edited(
            obeyed=[],
            refused=[],
            retried=names[edits.Retried],
            waived=names[edits.Waived],
            cancelled=names[edits.Cancelled],
        )
    )
    cancelled.update(names[edits.Cancelled])
    return done.state
