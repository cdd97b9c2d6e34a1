"""SIGKILL at random moments, over the real command (spec S9): nothing lost, in two buckets, or merged twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from night_stand import (
    NAMES,
    SHARED,
    Project,
    Sampler,
    answers_of,
    asked_again,
    check_night,
    check_nothing_lies_about,
    made_by,
    makes,
    plays,
    until,
)

MakeNight = Callable[..., Project]
SLOTS = 2
FEW = 3
"""Kills a scenario in `make test`; `make soak` has MANY."""
MANY = 100
PER_NIGHT = 5


def five_slow_units(night: MakeNight) -> Project:
    """A night of fifty model calls, each of which takes a moment: more than the kills of one night leave time for."""
    slow: dict[str, Any] = {name: makes(made_by(name), looks=8, latency=0.15) for name in NAMES}
    project = night(plays(slow), config=SHARED)
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


def redis(project: Project, run: Any, rng: random.Random) -> None:
    for found in project.redis():
        with suppress(ProcessLookupError):
            os.kill(found, signal.SIGKILL)


def anything(project: Project, run: Any, rng: random.Random) -> None:
    rng.choice([dispatcher, worker, both, redis])(project, run, rng)


def go_through(project: Project, kill: Callable[..., None], kills: int, seed: int) -> None:
    """Kill so often, at random moments, until the night has ended.

    Every second moment, the first one too, is some calls after the last kill: in the middle of the work. The others
    are soon after it, while the next run or process comes up.
    """
    rng = random.Random(seed)
    done, in_the_middle = 0, 0
    deadline = time.monotonic() + 60 + 12 * kills
    while True:
        run = project.start("run", "-j", str(SLOTS))
        while run.process.poll() is None and done < kills:
            before = calls_of(project)
            if done % 2 == 0:
                wait_for_calls(project, run, before + rng.randint(1, 3))
                time.sleep(rng.uniform(0, 0.4))
            else:
                time.sleep(rng.uniform(0.1, 1.5))
            if run.process.poll() is None:
                in_the_middle += calls_of(project) > before and bool(project.workers())
                kill(project, run, rng)
                done += 1
            with suppress(subprocess.TimeoutExpired):
                run.process.wait(0.05)  # who was killed is not gone at once
        ended = run.wait()
        assert time.monotonic() < deadline, f"no end in sight after {done} kills: {ended.text}"
        assert ended.code in (0, -signal.SIGKILL), ended.text
        until(lambda: not project.workers(), "embedded workers die with their dispatcher")
        if ended.code == 0:
            break
    assert done == kills
    assert 2 * in_the_middle >= kills, f"only {in_the_middle} of {kills} kills met somebody at work"


def calls_of(project: Project) -> int:
    return sum(project.calls(unit) for unit in NAMES)


def wait_for_calls(project: Project, run: Any, count: int) -> None:
    """Return once the model was asked so often, or the run has ended."""
    until(lambda: calls_of(project) >= count or run.process.poll() is not None, f"{count} calls")


def check(project: Project, kills: int) -> None:
    """All passed, each merged once; no answer that was flushed was asked for again."""
    check_night(project, NAMES)
    assert sorted(project.ids("passed")) == sorted(NAMES)
    merged = f"overnight/{project.night()}/merged"
    made = {made_by(name): "made" for name in NAMES}
    assert set(project.git("ls-tree", "-r", "--name-only", merged).splitlines()) == {"README.md", *made}
    assert {file: project.git("show", f"{merged}:{file}") for file in made} == made
    check_nothing_lies_about(project)
    assert len(asked_again(project)) <= kills * SLOTS
    answers = answers_of(project, NAMES)
    lost = {unit: project.calls(unit) - answers[unit] for unit in NAMES}
    assert sum(lost.values()) <= kills * SLOTS, f"calls whose answer no log holds, after {kills} kills: {lost}"
    for unit in NAMES:  # a fresh context was never needed: no attempt was spent
        assert project.count(unit, "session/start") == 1
        assert project.home.session(project.night(), unit, 2).parent.exists() is False


def scenario(night: MakeNight, kill: Callable[..., None], kills: int, seed: int | None = None) -> None:
    seed = seed if seed is not None else random.SystemRandom().randrange(10**6)
    sys.stdout.write(f"seed {seed}\n")  # shown when the test fails
    project = five_slow_units(night)
    sampler = Sampler(project.state_path, frozenset(NAMES))
    with sampler.looking():
        go_through(project, kill, kills, seed)
    assert sampler.wrong == []
    check(project, kills)


@pytest.mark.parametrize("kill", [dispatcher, worker, both])
def test_a_kill_at_a_random_moment_costs_at_most_the_step_in_flight(
    night: MakeNight, kill: Callable[..., None]
) -> None:
    """Of the dispatcher, of a worker process, of both: the next run, or the same one, goes on."""
    scenario(night, kill, FEW)


@pytest.mark.soak
@pytest.mark.parametrize("kill", [dispatcher, worker, both, redis, anything])
@pytest.mark.parametrize("batch", range(MANY // PER_NIGHT // 5))
def test_a_hundred_kills_cost_no_more(night: MakeNight, kill: Callable[..., None], batch: int) -> None:
    """A hundred random moments, five a night, of Redis too: the night ends as it does without kills."""
    scenario(night, kill, PER_NIGHT)
