"""What an order says: config, unit file and history joined."""

from pathlib import Path
from typing import Any

import pytest
from entries import asked, dollars, failed, ordered, release, reported, unit, verdict

from dispatcher.config import parse
from dispatcher.decide import HandOut
from dispatcher.errors import UnitFileError
from dispatcher.ledger import Ledger
from dispatcher.orders import agent_of, digest_of, distinct_verifies, order_of, verify_of
from dispatcher.units import UnitFile
from workers.orders import UnitOrder

CONFIG = parse("""
[model]
effort = "low"
base_url = "http://here:1"
[setup]
run = "make deps"
timeout = "1m"
[verify]
run = "make test"
timeout = "2m"
protect = ["spec/**"]
[limits]
rounds = 4
minutes = 30
""")


def order(one: UnitFile, *history: object, reserve: str | None = "5", attempt: int = 1) -> UnitOrder:
    hand_out = HandOut(one.id, attempt, 1, None if reserve is None else dollars(reserve))
    facts = Ledger().extend(history).unit(one.id)
    places: dict[str, Any] = {"repository": Path("/repository"), "home": Path("/home")}
    return order_of(one, hand_out, facts, CONFIG, night="n", base="b", run_id="r", **places)


def test_the_config_speaks_where_the_unit_is_silent() -> None:
    """Commands, times in seconds, limits."""
    made = order(UnitFile(id="a", goal="Do a."))
    assert (made.verify.run, made.verify.timeout, made.verify.setup, made.verify.setup_timeout) == (
        "make test",
        120,
        "make deps",
        60,
    )
    assert set(made.verify.protect) == {"spec/**", ".overnight/**"}
    assert (made.rounds, made.seconds, made.agent.effort, made.agent.base_url) == (4, 1800, "low", "http://here:1")
    assert (made.repository, made.home, made.task_id) == ("/repository", "/home", "n.a.1.1")


def test_the_unit_wins_where_it_speaks() -> None:
    """Its own verify, limits, effort and what it may edit."""
    one = unit("a", verify="pytest", effort="high", may_edit=("spec/a",), limits={"rounds": 2, "minutes": 5})
    made = order(one)
    assert (made.verify.run, made.verify.may_edit, made.rounds, made.seconds) == ("pytest", ("spec/a",), 2, 300)
    assert made.agent.effort == "high"


def test_a_resumed_attempt_may_spend_its_reserve_on_top_of_what_it_has_spent() -> None:
    """Because a session counts its own cost from its beginning."""
    paid = (ordered("a"), reported(verdict("a", "block", question="?", pause_seq=1, cost=dollars("1.5"))))
    assert order(unit("a"), *paid).budget == dollars("6.5")
    assert order(unit("a"), *paid, attempt=2).budget == dollars("5")
    assert order(unit("a"), reserve=None).budget is None


def test_earlier_attempts_are_told() -> None:
    """In their order."""
    history = [
        ordered("a"),
        reported(verdict("a", "fail", note="red")),
        ordered("a", 2),
        reported(verdict("a", "fail", 2, note="blue")),
    ]
    assert order(unit("a"), *history, attempt=3).notes == ("attempt 1: red", "attempt 2: blue")


def test_a_unit_without_any_verify_cannot_pass() -> None:
    """The unit file and field are named."""
    with pytest.raises(UnitFileError) as caught:
        verify_of(UnitFile(id="a", goal="Do a."), parse(""))
    assert str(caught.value).startswith(".overnight/units/a.md: verify: ")


def test_the_digest_follows_what_a_verdict_depends_on() -> None:
    """Goal, verify in force, protected paths; not effort or limits."""
    one = unit("a", verify=None)
    same = digest_of(one, CONFIG)
    assert digest_of(unit("a", verify="make test"), CONFIG) == same
    assert digest_of(unit("a", verify=None, effort="high", limits={"rounds": 9}), CONFIG) == same
    assert digest_of(unit("a", verify="true"), CONFIG) != same
    assert digest_of(unit("a", verify=None, goal="Else."), CONFIG) != same
    assert digest_of(one, parse('[verify]\nrun = "make test"\n')) != same


def test_each_distinct_verify_is_named_once_with_its_units() -> None:
    """In the order of the units."""
    units = [unit("a", verify="x"), unit("b", verify=None), unit("c", verify="x")]
    assert distinct_verifies(units, CONFIG) == {"x": ["a", "c"], "make test": ["b"]}


def test_a_price_in_the_config_wins_and_an_unknown_one_stays_unknown() -> None:
    """What is not given of it follows from the input price."""
    known = agent_of(parse('[model]\nname = "claude-nobody"\nprice = { input = 4, output = 20 }\n')).price
    assert known is not None
    assert (known.input, known.output, known.cache_read, known.cache_write) == (4, 20, 4, 5)
    assert agent_of(parse('[model]\nname = "claude-nobody"\n')).price is None


def test_each_attempt_has_the_agent_that_the_unit_names_for_it() -> None:
    """Counted since the last retry; infrastructure's trouble keeps the agent; without a name it is the usual one."""
    named = unit("a", attempts=("coder", "coder-high"))
    assert order(named).agent.name == "coder"
    assert order(named, *failed("a", 1), attempt=2).agent.name == "coder-high"
    assert order(named, *failed("a", 2), attempt=3).agent.name == "coder-high"
    assert order(named, ordered("a"), reported(release("a", "model"))).agent.name == "coder"
    assert order(named, *failed("a", 2), asked("retry", "a"), attempt=3).agent.name == "coder"
    assert order(unit("a")).agent.name == "coder"


def test_an_order_has_no_more_rounds_than_the_unit_has_turns_left() -> None:
    """And its notes tell the last attempt in full."""
    history = (ordered("a"), reported(verdict("a", "fail", note="red", summary="Half.")))
    facts = Ledger().extend(history).unit("a")
    places: dict[str, Any] = {"repository": Path("/repository"), "home": Path("/home")}
    few = HandOut("a", 2, 1, None, turns=2)
    assert order_of(unit("a"), few, facts, CONFIG, night="n", base="b", run_id="r", **places).rounds == 2
    found = order(unit("a"), *history, attempt=2)
    assert found.rounds == 4
    assert found.notes == ("attempt 1: red\n  It ended with the words:\n    Half.",)


def test_when_a_session_is_compacted() -> None:
    """The order says at which share of the window, and at most at how many tokens (spec A14)."""
    plain, told = agent_of(CONFIG), agent_of(parse("[context]\ncompact_at = 0.5\ncap = 100000\n"))
    assert (plain.compact_at, plain.context_cap) == (0.85, 400_000)
    assert (told.compact_at, told.context_cap) == (0.5, 100_000)
