"""Whether the night went as told: each check reads the files, git or the received requests, never the run's output."""

import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dispatcher.demo.performance import ANSWER, ASKING, KILLED, Performance
from dispatcher.demo.requests import asked_twice, differences, is_prefix, rebuild
from dispatcher.journal import Lost, MergeFailed, read_journal
from dispatcher.opening import read_state
from dispatcher.state import Bucket, State
from dispatcher.train import merged_ref
from dispatcher.units import UNITS_PATH, UnitFile, load_all
from workers.session import events as ev
from workers.session.session import read_session
from worktrees.errors import LockBusy
from worktrees.files import FileLock

__all__ = ["BLOCKED", "PASSED", "Check", "check"]

PASSED = frozenset(
    ("discount-percent", "discount-coupon", "format-cents", ASKING, "parse-quantity", KILLED, "to-cents"),
)
BLOCKED = "split-bill"
MENDED = "parse-quantity"
CONFLICTED = "discount-coupon"

_VERIFY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was told. `differs` says what was found instead; "" means that it went as told."""

    what: str
    differs: str = ""

    @property
    def ok(self) -> bool:
        """Whether it went as told."""
        return not self.differs


@dataclass(frozen=True)
class _Evidence:
    """What the night left behind."""

    night: Performance

    @cached_property
    def state(self) -> State:
        return read_state(self.night.stage.repository) or State("(none)")

    @cached_property
    def journal(self) -> list[Any]:
        return [entry for _, entry in read_journal(self.night.stage.home.journal(self.night.night))]

    @cached_property
    def units(self) -> dict[str, UnitFile]:
        return load_all(self.night.stage.repository / UNITS_PATH)

    @cached_property
    def sessions(self) -> Mapping[tuple[str, int], list[Any]]:
        """Every session by (unit, attempt)."""
        home, night = self.night.stage.home, self.night.night
        logs = {unit: home.sessions(night, unit) for unit in home.all_units(night)}
        return {(unit, attempt): read_session(path) for unit in logs for attempt, path in logs[unit].items()}

    @cached_property
    def lost(self) -> set[str]:
        """The units that were at work in the killed worker."""
        return {entry.unit for entry in self.journal if isinstance(entry, Lost) and entry.claimed}

    def events(self, unit: str, kind: type, attempt: int = 1) -> list[Any]:
        return [event for event in self.sessions.get((unit, attempt), []) if isinstance(event, kind)]


def check(night: Performance) -> Iterator[Check]:
    """Yield each check as it is made."""
    seen = _Evidence(night)
    yield _ending(seen)
    yield _buckets(seen)
    yield _tip(seen)
    yield _mended(seen)
    yield _given_up(seen)
    yield _answered(seen)
    yield _conflict(seen)
    yield _killed(seen)
    yield _paid_twice(seen)
    yield _log_is_the_source(seen)
    yield _nothing_left(seen)


def _ending(seen: _Evidence) -> Check:
    code = seen.night.exit_code
    return Check("the run ended with exit code 1: a unit needs a person", "" if code == 1 else f"exit code {code}")


def _buckets(seen: _Evidence) -> Check:
    state = seen.state
    wanted = {Bucket.passed: PASSED, Bucket.blocked: {BLOCKED}, Bucket.open: set(), Bucket.tried: set()}
    wrong = [
        f"{bucket}: {', '.join(state.ids(bucket))}" for bucket in Bucket if set(state.ids(bucket)) != wanted[bucket]
    ]
    return Check(f"{len(PASSED)} units passed, {BLOCKED} is blocked, no bucket holds another", "; ".join(wrong))


def _tip(seen: _Evidence) -> Check:
    """Every verify once more, outside the harness, in a clone of the merged branch."""
    stage = seen.night.stage
    branch = merged_ref(seen.night.night).removeprefix("refs/heads/")
    with TemporaryDirectory(dir=stage.root) as clone:
        stage.git("clone", "--quiet", "--no-local", "--branch", branch, str(stage.repository), clone)
        wrong = [
            f"{unit.id} {'fails' if unit.id in PASSED else 'holds'}"
            for unit in seen.units.values()
            if _holds(unit.verify or "", Path(clone), stage.environment) is not (unit.id in PASSED)
        ]
    return Check("in a clone of the merged branch every passed unit's verify holds", "; ".join(wrong))


def _holds(verify: str, where: Path, environment: Mapping[str, str]) -> bool:
    done = subprocess.run(
        shlex.split(verify),
        cwd=where,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_VERIFY_SECONDS,
        check=False,
    )
    return done.returncode == 0


def _mended(seen: _Evidence) -> Check:
    said = [event.passed for event in seen.events(MENDED, ev.VerifyResult)]
    differs = "" if said == [False, True] else f"verify said {said}"
    return Check(f"{MENDED}: the first verify failed, and the next turn mended it", differs)


def _given_up(seen: _Evidence) -> Check:
    said = [event.passed for attempt in (1, 2) for event in seen.events(BLOCKED, ev.VerifyResult, attempt)]
    taken = [path for event in seen.events(BLOCKED, ev.Checkpoint, 2) for path in event.taken_back]
    differs = "" if (said, taken) == ([False, False], ["tests/test_split.py"]) else f"{said}, taken back: {taken}"
    return Check(f"{BLOCKED}: 2 attempts failed; its change of a test was taken back", differs)


def _answered(seen: _Evidence) -> Check:
    said = [event.text for event in seen.events(ASKING, ev.Resume)]
    turns = len(seen.events(ASKING, ev.TurnStart))
    differs = "" if (said, turns) == ([ANSWER], 1) else f"answers: {said}, turns: {turns}"
    return Check(f"{ASKING}: asked, waited, and went on in the same turn with the answer", differs)


def _conflict(seen: _Evidence) -> Check:
    failed = [entry.unit for entry in seen.journal if isinstance(entry, MergeFailed) and entry.why == "conflict"]
    again = len(seen.events(CONFLICTED, ev.VerifyResult, 2))
    differs = "" if failed == [CONFLICTED] and again else f"conflicts: {failed}, verifies of attempt 2: {again}"
    return Check(f"{CONFLICTED}: conflicted, and was done again on the new base", differs)


def _killed(seen: _Evidence) -> Check:
    if seen.night.killed is None:
        return Check("a worker was killed", "the moment never came")
    again = {unit for unit, _ in seen.sessions if _was_resumed(unit, seen)}
    differs = "" if KILLED in seen.lost and seen.lost <= again else f"lost: {seen.lost}, resumed: {again}"
    what = f"a worker was killed with {', '.join(sorted(seen.lost))} in it; each went on in its own session"
    return Check(what, differs)


def _was_resumed(unit: str, seen: _Evidence) -> bool:
    """Tell whether a session of the unit was taken up by a second hand-out of the same attempt."""
    return any(event.epoch > 1 for event in seen.events(unit, ev.Claim))


def _paid_twice(seen: _Evidence) -> Check:
    twice, asked = asked_twice(seen.night.requests), len(seen.night.requests)
    differs = "" if twice <= len(seen.lost) else f"{twice} for {len(seen.lost)} units"
    return Check(f"{twice} of {asked} answers had to be asked for again, at most one for each unit in it", differs)


def _log_is_the_source(seen: _Evidence) -> Check:
    wrong = []
    for (unit, attempt), history in seen.sessions.items():
        received = [one.body or {} for one in seen.night.requests if (one.unit, one.attempt) == (unit, attempt)]
        problems = differences(rebuild(history), received)
        problems += [
            f"request {number} rewrites what was sent before it"
            for number, (one, two) in enumerate(pairwise(received), 2)
            if not is_prefix(one, two)
        ]
        wrong += [f"{unit}.{attempt}: {problem}" for problem in problems]
    what = f"each request of {len(seen.sessions)} sessions follows from its log, and only adds to the one before"
    return Check(what, "; ".join(wrong))


def _nothing_left(seen: _Evidence) -> Check:
    lock = FileLock(seen.night.stage.home.engine_lock)
    try:
        lock.acquire("demo")
    except LockBusy as busy:
        return Check("nothing of the engine is left running", busy.holder)
    lock.release()
    return Check("nothing of the engine is left running")
