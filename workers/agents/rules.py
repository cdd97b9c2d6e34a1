"""Two policies joined into one list of rules, which never allows what either of them asks about or denies. Pure.

Within a policy a rule that says more outranks one that says less, so one policy's exception could undo the other's
rule. Such exceptions are left out, unless both policies make them word for word.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from workers.orders import Rule

from .agent_file import EDITOR

__all__ = ["joined"]

_EDITORS = frozenset({"view", "edit", EDITOR})


def joined(night: Sequence[Rule], own: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules of the night and of an agent as one policy, at least as strict as each of them for any call."""
    return (*_kept(night, own), *_kept(own, night))


def _kept(rules: Iterable[Rule], others: Sequence[Rule]) -> list[Rule]:
    return [rule for rule in rules if rule.then != "allow" or not _undoes(rule, others)]


def _undoes(allow: Rule, others: Sequence[Rule]) -> bool:
    """Tell whether a rule that allows would outrank one by which the other policy asks."""
    if any(other.then == "allow" and other.what == allow.what for other in others):
        return False
    return any(other.then == "ask" and _weight(other) < _weight(allow) and _meet(allow, other) for other in others)


def _tool(rule: Rule) -> str:
    return rule.what.partition(":")[0].strip()


def _weight(rule: Rule) -> int:
    """Return how much a rule says, as `policy.decide` weighs it: a pattern over a tool, a tool over a glob."""
    if rule.what.partition(":")[2].strip() not in ("", "*"):
        return 2
    return 0 if set("*?[") & set(_tool(rule)) else 1


def _meet(one: Rule, other: Rule) -> bool:
    """Tell whether two rules can be about the same tool."""
    a, b = _tool(one), _tool(other)
    if fnmatchcase(a, b) or fnmatchcase(b, a):
        return True
    if set("*?[") & set(a + b):  # two globs may meet in a name that neither of them is
        return True
    return {a, b} <= _EDITORS and {a, b} != {"view", "edit"}
