"""An agent's own policy beside the night's: never looser than either."""

from hypothesis import given
from hypothesis import strategies as st

from workers.agents.rules import joined
from workers.orders import Rule
from workers.policy import decide, stricter

SEVERITY = {"allow": 0, "ask": 1, "deny": 2}
WHATS = (
    *("bash", "bash: git *", "bash: git push*", "bash: rm*", "*", "b*", "edit", "view", "edit: docs/*"),
    *("str_replace_based_edit_tool", "ask", "skill"),
)
CALLS = (
    ("bash", {"command": "git push origin"}),
    ("bash", {"command": "git status; rm -rf x"}),
    ("bash", {"command": "ls"}),
    ("str_replace_based_edit_tool", {"command": "view", "path": "docs/a"}),
    ("str_replace_based_edit_tool", {"command": "create", "path": "docs/a"}),
    ("str_replace_based_edit_tool", {"command": "create", "path": "src/a"}),
    ("skill", {"name": "x"}),
)
policies = st.lists(st.builds(Rule, what=st.sampled_from(WHATS), then=st.sampled_from(tuple(SEVERITY))), max_size=5)


def rules(**given: str) -> tuple[Rule, ...]:
    return tuple(Rule(what=what, then=then) for then, what in given.items())  # type: ignore[arg-type]


@given(policies, policies)
def test_at_least_as_strict_as_each(night: list[Rule], own: list[Rule]) -> None:
    """Whatever the two say, no call is let through that either of them asks about or denies."""
    both = joined(night, own)
    for tool, arguments in CALLS:
        alone = stricter(decide(night, tool, arguments), decide(own, tool, arguments))
        assert SEVERITY[decide(both, tool, arguments).then] >= SEVERITY[alone.then], (tool, arguments)


@given(policies)
def test_alone_each_means_what_it_says(one: list[Rule]) -> None:
    """A policy joined with none decides as it would by itself."""
    for tool, arguments in CALLS:
        alone = decide(one, tool, arguments).then
        assert decide(joined(one, ()), tool, arguments).then == alone
        assert decide(joined((), one), tool, arguments).then == alone


def test_an_exception_of_one_does_not_undo_the_others_rule() -> None:
    """The night asks about every command; an agent that allows itself `git push` is asked about all the same."""
    both = joined(rules(ask="bash"), rules(allow="bash: git push*"))
    assert decide(both, "bash", {"command": "git push"}).then == "ask"


def test_what_does_not_meet_stays() -> None:
    """An exception stands beside an ask for something else, and where both make it."""
    both = joined(rules(ask="bash", allow="bash: git status*"), rules(ask="bash: rm*"))
    assert decide(both, "bash", {"command": "git status"}).then == "allow"
    assert decide(both, "bash", {"command": "rm x"}).then == "ask"
    same = joined(rules(ask="bash", allow="bash: ls*"), rules(ask="bash", allow="bash: ls*"))
    assert decide(same, "bash", {"command": "ls -l"}).then == "allow"
