"""What the next attempt is told of those before it."""

from entries import asked, failed, merged, ordered, reported, verdict

from dispatcher import journal as j
from dispatcher.ledger import Ledger
from dispatcher.lessons import told


def facts(*entries: object):
    return Ledger().extend(entries).unit("a")


def test_the_last_attempt_is_told_in_full_and_those_before_by_a_line() -> None:
    """Its note, its agent's last words, the end of verify's output."""
    words = verdict("a", "fail", 2, note="still red", summary="I changed x.", output="line\n" * 2000 + "AssertionError")
    found = told(facts(*failed("a", 1, "red"), ordered("a", 2), reported(words)))
    assert found[0] == "attempt 1: red"
    assert found[1].startswith("attempt 2: still red\n  It ended with the words:\n    I changed x.\n")
    assert found[1].endswith("    AssertionError")
    assert len(found[1]) < 10_000
    assert len(found) == 2


def test_a_pass_that_did_not_survive_its_merge_is_told_with_the_merged_trees_output() -> None:
    """And with what the agent had said of it."""
    passed = reported(verdict("a", "pass", summary="All done."))
    red = j.Verified(
        stage="merge", tree="t", commit="c", command="make", passed=False, seconds=1, output="boom", unit="a"
    )
    failed_merge = j.MergeFailed(unit="a", attempt=1, why="verify", note="passed alone, failed merged: boom")
    (text,) = told(facts(ordered("a"), passed, red, failed_merge))
    assert "failed merged" in text
    assert "All done." in text
    assert "    boom" in text
    conflict = j.MergeFailed(unit="a", attempt=1, why="conflict", note="merge conflict in x.py")
    (text,) = told(facts(ordered("a"), passed, conflict))
    assert text.startswith("attempt 1: merge conflict in x.py\n")
    assert "boom" not in text


def test_a_blocked_attempt_teaches_too() -> None:
    """After a retry, the fresh context hears why the last one was blocked; an answered question is no lesson."""
    blocked = reported(verdict("a", "block", note="the model refused to go on", summary="Half of it."))
    (text,) = told(facts(ordered("a"), blocked, asked("retry", "a")))
    assert text.startswith("attempt 1: the model refused to go on\n  It ended")
    question = reported(verdict("a", "block", question="Which?", pause_seq=3))
    assert told(facts(ordered("a"), question, asked("answer", "a", text="That."))) == ()
    assert told(facts(merged("a"))) == ()


def test_what_an_earlier_night_learned_comes_first() -> None:
    """Carried over by the state file."""
    start = j.NightStarted(night="n", title="t", base="b", base_name="main", notes={"a": ["in an earlier night: red"]})
    assert told(facts(start)) == ("in an earlier night: red",)
    assert told(facts(start, *failed("a", 1, "no")))[0] == "in an earlier night: red"
