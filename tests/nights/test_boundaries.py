"""SIGKILL at every boundary of the protocol, right before, right after and in the middle of it (spec S9).

The process dies at the named call itself (see `injected/`), so nothing is left to chance. Whatever boundary it is, the
night ends as the same night does that nobody disturbs, and no answer that a log holds is asked for again.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from night_stand import (
    End,
    Project,
    asks,
    bash,
    check_end,
    end_of,
    lost_answers,
    makes,
    plays,
    project_with,
    says,
    until,
)

UNITS = {
    "create-foo": makes("foo.txt", looks=1),
    "learn-bar": [bash("ls"), says("Done."), bash("echo made > bar.txt"), says("Now it is.")],
    "ask-baz": [bash("echo half > baz.txt"), asks("Which one?")],
    "fail-qux": [says("I cannot.")],
    "create-quux": makes("quux.txt"),
}
"""One that passes at once, in its second round, asks a person, fails in both its attempts, and passes as the last."""

Kill = tuple[str, str]
"""A place (`injected/` has their list) and the moment: before it, after it, or `half`, with half of it written."""

WORKER: tuple[tuple[Kill, ...], ...] = (
    (("claim", "before"), ("claim", "after")),
    (("session session/start", "before"), ("session session/start", "after")),
    (("session claim", "half"),),
    (("worktree create", "before"), ("worktree create", "after")),
    (("session step/start", "before"), ("session step/start", "after")),
    (("session assistant/message", "before"), ("session assistant/message", "after")),
    (("session assistant/message", "half"),),
    (("session tool/call", "after"), ("session tool/result", "after")),
    (("checkpoint", "before"), ("checkpoint", "after")),
    (("ref checkpoint", "after"), ("session checkpoint", "after")),
    (("session verify/result", "before"), ("session verify/result", "after")),
    (("session report", "before"), ("session report", "after")),
    (("session report", "half"),),
    (("worktree remove", "before"), ("worktree remove", "after")),
    (("outbox put", "before"), ("outbox put", "after")),
    (("mailbox send", "before"), ("mailbox send", "after")),
    (("outbox remove", "before"), ("outbox remove", "after")),
)
"""A night each, in the order in which a hand-out comes by: two losses of one unit are no poison yet."""

DISPATCHER: tuple[tuple[Kill, ...], ...] = (
    (("journal night/start", "half"), ("journal night/start", "after"), ("journal run/start", "after")),
    (("journal verify", "after"), ("journal order", "half"), ("journal order", "after"), ("publish open", "after")),
    (("send", "after"), ("journal report", "half"), ("journal report", "before"), ("journal report", "after")),
    (("ref branch", "after"), ("acknowledge", "before"), ("acknowledge", "after")),
    (("journal merge/intent", "before"), ("journal merge/intent", "half"), ("journal merge/intent", "after")),
    (("ref merged", "after"), ("journal merge/done", "half"), ("journal merge/done", "after")),
    (("journal state", "half"), ("journal state", "after"), ("state swap", "after"), ("state file", "after")),
    (("journal run/end", "half"), ("journal run/end", "before"), ("journal run/end", "after")),
)
"""A night each; before each of these places is after another one."""

NTH = {"journal order": 2, "journal state": 2}
"""In one process, where it is not the first: there the night has only just begun."""

FEW: tuple[tuple[Kill, ...], ...] = (
    (("session assistant/message", "after"), ("outbox put", "before")),
    (("send", "after"), ("journal report", "after"), ("ref merged", "after"), ("state swap", "after")),
)
"""What `make test` has time for."""


def evening(project: Project) -> Project:
    """Write the units down."""
    for name in UNITS:
        limits = {"limits": "{attempts: 2, rounds: 1}"} if name == "fail-qux" else {}
        project.unit(name, **limits)
    project.queue(*UNITS)
    return project


@pytest.fixture(scope="module")
def undisturbed(module_folder: Path) -> Iterator[End]:
    """The same night without a kill."""
    with project_with(module_folder, plays(UNITS)) as project:
        ended = evening(project).overnight("run", "-j", "1")
        assert ended.code == 1, ended.text
        assert lost_answers(project, tuple(UNITS)) == 0
        yield end_of(project)


def killing(project: Project, kills: tuple[Kill, ...]) -> dict[Kill, Path]:
    """Arm a project's processes; the files say that a kill has happened, each in one process and once."""
    markers = {kill: project.root.parent / f"killed-{number}" for number, kill in enumerate(kills)}
    rules = [
        {"place": place, "side": side, "nth": NTH.get(place, 1), "marker": str(marker)}
        for (place, side), marker in markers.items()
    ]
    project.inject(KILL_AT=json.dumps(rules))
    return markers


def to_the_end(project: Project, most_runs: int) -> None:
    """Run, and run again as long as the dispatcher is killed."""
    for _ in range(most_runs):
        ended = project.overnight("run", "-j", "1")
        until(lambda: not project.workers(), "embedded workers die with their dispatcher")
        if ended.code != -signal.SIGKILL:
            assert (ended.code, "Traceback" in ended.text) == (1, False), ended.text
            return
    raise AssertionError(f"no end after {most_runs} runs")


def survive(folder: Path, undisturbed: End, kills: tuple[Kill, ...]) -> None:
    with project_with(folder, plays(UNITS)) as project:
        markers = killing(evening(project), kills)
        to_the_end(project, len(kills) + 1)
        assert [kill for kill, marker in markers.items() if not marker.exists()] == [], "never came by there"
        check_end(project, undisturbed, tuple(UNITS))
        # One unit is at work at a time: only an answer that was not on disk when somebody died is asked for again.
        unflushed = sum(place == "session assistant/message" and side != "after" for place, side in kills)
        most = unflushed if kills in WORKER or kills == FEW[0] else len(kills)
        assert unflushed <= lost_answers(project, tuple(UNITS)) <= most


def _name(kills: tuple[Kill, ...]) -> str:
    return "+".join(f"{place}-{side}".replace("/", "-").replace(" ", "-") for place, side in kills)


@pytest.mark.parametrize("kills", FEW, ids=_name)
def test_kills_at_boundaries_change_nothing(tmp_path: Path, undisturbed: End, kills: tuple[Kill, ...]) -> None:
    """Same buckets with the same notes, same merged tree, no flushed answer asked again, and fsck agrees."""
    survive(tmp_path, undisturbed, kills)


@pytest.mark.soak
@pytest.mark.parametrize("kills", WORKER, ids=_name)
def test_a_worker_may_die_at_every_boundary(tmp_path: Path, undisturbed: End, kills: tuple[Kill, ...]) -> None:
    """The same, for everything that a worker writes, publishes or moves."""
    survive(tmp_path, undisturbed, kills)


@pytest.mark.soak
@pytest.mark.parametrize("kills", DISPATCHER, ids=_name)
def test_the_dispatcher_may_die_at_every_boundary(tmp_path: Path, undisturbed: End, kills: tuple[Kill, ...]) -> None:
    """The same, for everything that the dispatcher writes, publishes or moves."""
    survive(tmp_path, undisturbed, kills)
