"""SIGKILL at random moments, over the real command (spec S9): nothing lost, in two buckets, or merged twice."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from night_stand import (
    NAMES,
    Project,
    Sampler,
    answers_of,
    asked_again,
    check_night,
    made_by,
    makes,
    plays,
    until,
)

MakeNight = Callable[..., Project]
SLOTS = 2
FEW = 3
"""Kills a scenario in `make test`; `make soak` has MANY."""
MANY = 20


def five_slow_units(night: MakeNight) -> Project:
    """A night of about eight seconds of model time: every answer takes a moment, some have several steps."""
    slow: dict[str, Any] = {name: makes(made_by(name), looks=3, latency=0.15) for name in NAMES}
    project = night(plays(slow))
    for name in NAMES:
        project.unit(name)
    project.queue(*NAMES)
    return project


def dispatcher(project: Project, run: Any, rng: random.Random) -> None:
    run.signal(signal.SIGKILL)


def worker(project: Project, run: Any, rng: random.Random) -> None:
    workers = project.workers()
    if workers:
        with suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)


def both(project: Project, run: Any, rng: random.Random) -> None:
    worker(project, run, rng)
    dispatcher(project, run, rng)


def go_through(project: Project, kill: Callable[..., None], kills: int, seed: int) -> int:
    """Kill again and again at random moments until the night has ended; return how often."""
    rng = random.Random(seed)
    done = 0
    deadline = time.monotonic() + 60 + 12 * kills
    while True:
        run = project.start("run", "-j", str(SLOTS))
        while run.process.poll() is None and done < kills:
            time.sleep(rng.uniform(0.3, 3.0) if kill is not worker else rng.uniform(0.5, 1.5))
            if run.process.poll() is None and (kill is not worker or project.workers()):
                kill(project, run, rng)
                done += 1
                if kill is not worker:
                    break
        ended = run.wait()
        assert time.monotonic() < deadline, f"no end in sight after {done} kills: {ended.text}"
        assert ended.code in (0, -signal.SIGKILL), ended.text
        until(lambda: not project.workers(), "embedded workers die with their dispatcher")
        if ended.code == 0:
            return done


def check(project: Project, kills: int) -> None:
    """All passed, each merged once; no answer that was flushed was asked for again."""
    check_night(project, NAMES)
    assert sorted(project.ids("passed")) == sorted(NAMES)
    assert len(asked_again(project)) <= kills * SLOTS
    answers = answers_of(project, NAMES)
    lost = {unit: project.calls(unit) - answers[unit] for unit in NAMES}
    assert sum(lost.values()) <= kills * SLOTS, f"calls whose answer no log holds, after {kills} kills: {lost}"
    for unit in NAMES:  # a fresh context was never needed: no attempt was spent
        assert project.count(unit, "session/start") == 1
        assert project.home.attempt(project.night(), unit, 2).exists() is False


def scenario(night: MakeNight, kill: Callable[..., None], kills: int, seed: int | None = None) -> None:
    seed = seed if seed is not None else random.SystemRandom().randrange(10**6)
    sys.stdout.write(f"seed {seed}\n")  # shown when the test fails
    project = five_slow_units(night)
    sampler = Sampler(project.state_path, frozenset(NAMES))
    with sampler.looking():
        done = go_through(project, kill, kills, seed)
    assert sampler.wrong == []
    check(project, done)


@pytest.mark.parametrize("kill", [dispatcher, worker, both])
def test_a_kill_at_a_random_moment_costs_at_most_the_step_in_flight(
    night: MakeNight, kill: Callable[..., None]
) -> None:
    """Of the dispatcher, of a worker process, of both: the next run, or the same one, goes on."""
    scenario(night, kill, FEW)


@pytest.mark.soak
@pytest.mark.parametrize("kill", [dispatcher, worker, both])
@pytest.mark.parametrize("batch", range(MANY // 5))
def test_twenty_kills_cost_no_more(night: MakeNight, kill: Callable[..., None], batch: int) -> None:
    """Twenty random moments of each, five a night."""
    scenario(night, kill, 5)
