"""Breadth first through a model's states: the shortest way to whatever is wrong, and what can never end."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from model import Bounds, State, canonical, is_cut_off, is_over, start, steps, wrong


@dataclass(frozen=True)
class Found:
    """What was gone through. `trace` is the shortest way to `wrong` ("" if nothing is)."""

    states: int
    transitions: int
    wrong: str
    trace: tuple[str, ...]


class _Graph:
    def __init__(self) -> None:
        self.ids: dict[State, int] = {}
        self.states: list[State] = []
        self.came: list[tuple[int, str]] = []  # where each was first reached from
        self.sources, self.targets = array("I"), array("I")  # of steps that are no faults
        self.transitions = 0

    def add(self, state: State, source: int, name: str) -> int:
        found = self.ids.get(state)
        if found is None:
            found = self.ids[state] = len(self.states)
            self.states.append(state)
            self.came.append((source, name))
        return found

    def trace(self, number: int) -> tuple[str, ...]:
        names = []
        while number:
            number, name = self.came[number]
            names.append(name)
        return tuple(reversed(names))

    def backwards(self, good: Callable[[State], bool]) -> bytearray:
        """Mark every state from which a good one can be reached without a fault."""
        into: list[list[int]] = [[] for _ in self.states]
        for source, target in zip(self.sources, self.targets, strict=True):
            into[target].append(source)
        reached = bytearray(len(self.states))
        ahead = [number for number, state in enumerate(self.states) if good(state)]
        for number in ahead:
            reached[number] = 1
        while ahead:
            for source in into[ahead.pop()]:
                if not reached[source]:
                    reached[source] = 1
                    ahead.append(source)
        return reached


def explore(bounds: Bounds, *, stuck: bool = True, most: int = 5_000_000) -> Found:
    """Go through all states; with `stuck`, look for those that can never end, too. `most` bounds their number."""
    graph, same = _Graph(), canonical(bounds)
    graph.add(same(start(bounds)), 0, "")
    number = 0
    while number < len(graph.states):
        state = graph.states[number]
        for step in steps(state, bounds):
            after = same(step.state)
            target = graph.add(after, number, step.name)
            graph.transitions += 1
            bad = step.wrong or (wrong(after, bounds) if graph.came[target] == (number, step.name) else "")
            if bad:
                return _found(graph, bad, (*graph.trace(number), step.name))
            if not step.is_fault:
                graph.sources.append(number)
                graph.targets.append(target)
        number += 1
        assert len(graph.states) <= most, f"more than {most} states"
    return _look_for_stuck(graph, bounds) if stuck else _found(graph)


def _found(graph: _Graph, wrong: str = "", trace: tuple[str, ...] = ()) -> Found:
    return Found(len(graph.states), graph.transitions, wrong, trace)


def _look_for_stuck(graph: _Graph, bounds: Bounds) -> Found:
    """Where faults cease the unit ends, and a flushed verdict counts.

    Near the bound on epochs a way may need one more hand-out than the bound allows: there, that is no sign of being
    stuck. Two hand-outs before the bound it is.
    """

    def ends(state: State) -> bool:
        return is_over(state)

    def may_end(state: State) -> bool:
        return is_over(state) or is_cut_off(state, bounds)

    strict, lenient = graph.backwards(ends), graph.backwards(may_end)
    heard = graph.backwards(lambda state: state.facts.settled or may_end(state))
    for number, state in enumerate(graph.states):
        early = state.facts.epoch <= bounds.epochs - 2
        if not lenient[number] or (early and not strict[number]):
            return _found(graph, "stuck for ever", graph.trace(number))
        if not heard[number] and any(
            host.ends == "pass" and host.claimed[0] == state.facts.attempt for host in state.hosts
        ):
            return _found(graph, "a flushed verdict is never heard", graph.trace(number))
    return _found(graph)
