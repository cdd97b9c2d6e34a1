"""The dispatcher alone, with 10,000 units: start, tick, state write, and how fast it can feed its slots.

Everything a tick does but Redis and git: unit files read, state file read fresh, decisions, state write, journal. Units
are "worked on" by nobody: their reports and merges are written into the journal as a run would.

    python -m benchmarks.dispatcher [--units 10000] [--rounds 300]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from dispatcher import moves, people
from dispatcher.book import Book
from dispatcher.budget import Limits
from dispatcher.config import Config, parse
from dispatcher.decide import Plan, View, decide
from dispatcher.due import with_due
from dispatcher.home import Home
from dispatcher.journal import MergeDone, Ordered, Reported, RunStarted
from dispatcher.keeper import Keeper
from dispatcher.moves import Cause
from dispatcher.opening import open_night
from dispatcher.probe import Probe
from dispatcher.roster import Roster
from dispatcher.state import Bucket, State
from workers.orders import UnitReport
from worktrees.repository import Repository

SLOTS = 100
BOUNDS = {"start": 2.0, "tick (median)": 0.050, "tick (95 %)": 0.050, "state write (median)": 0.010}


class Night:
    """What a run holds, without engine and workers."""

    def __init__(self, repository: Repository, home: Home, config: Config) -> None:
        self.config = config
        self.roster = Roster(repository.root, config)
        self.roster.load()
        opened = open_night(repository, home, config)
        self.book: Book = opened.book
        self.keeper: Keeper = opened.keeper
        self.book.note(RunStarted(run=1, pid=1, host="here", slots=SLOTS, embedded=True))
        self.limits = Limits(Decimal(10**6), Decimal(5), 3, SLOTS)
        self.handed: set[str] = set()
        self.probe = Probe(repository)

    def due(self, state: State) -> State:
        return with_due(state, self.book.ledger, self.roster.attempts)

    def adopted(self, state: State) -> State:
        adopted = self.roster.adopt(self.due(state), self.book.ledger)
        return people.without_deleted(adopted, self.book.ledger, self.roster.has_file)

    def tick(self) -> Plan:
        self.roster.reload()
        self.keeper.take_in()
        self.keeper.update(self.adopted)
        view = View(self.due(self.keeper.state), self.roster.units, self.book.ledger, self.limits, self.handed)
        plan = decide(replace(view, outdated=self.probe.outdated(self.roster.units, self.book.ledger)))
        self.keeper.update(self.due)
        set(self.keeper.state.ready())
        return plan

    def order(self, plan: Plan) -> list[str]:
        for one in plan.hand_outs:
            self.handed.add(one.unit)
            self.book.note(
                Ordered(unit=one.unit, attempt=1, epoch=one.epoch, base="b" * 40, digest="d", reserve=one.reserve)
            )
        return [one.unit for one in plan.hand_outs]

    def finish(self, unit: str, number: int) -> None:
        report = UnitReport(
            night=self.book.ledger.night,
            unit=unit,
            attempt=1,
            epoch=1,
            verdict="fail" if number % 5 == 0 else "pass",
            note="a test was red",
            cost=Decimal("0.30"),
            commit=None if number % 5 == 0 else "c" * 40,
            tree=None if number % 5 == 0 else "d" * 40,
        )
        self.book.note(Reported(report=report, accepted=True))
        if report.verdict == "pass":
            self.book.note(MergeDone(unit=unit, attempt=1, commit="e" * 40))


def prepare(folder: Path, units: int) -> Repository:
    root = folder / "project"
    (root / ".overnight/units").mkdir(parents=True)
    for number in range(units):
        after = f"after: [unit-{number - 1:05}]\n" if number % 50 == 49 else ""
        text = f"---\nverify: test -f file-{number}.txt\n{after}---\n\nMake file {number}, as the plan says.\n"
        (root / f".overnight/units/unit-{number:05}.md").write_text(text)
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", root, *command], check=True)
    return Repository.discover(root)


def raised(state: State, unit: str) -> State:
    return moves.move(state, unit, Bucket.blocked, Cause.capped, "used up")


def timed(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def measure(folder: Path, units: int, rounds: int) -> dict[str, float]:
    repository = prepare(folder, units)
    home = Home(folder / "home")
    home.make()
    config = parse("")
    time.sleep(0.2)  # unit files younger than a tick of the clock are read again
    began = time.perf_counter()
    night = Night(repository, home, config)
    flying = night.order(night.tick())
    found = {"start": time.perf_counter() - began}
    assert len(flying) == SLOTS
    idle = [timed(night.tick) for _ in range(20)]
    found["tick, nothing new (median)"] = statistics.median(idle)
    ticks, busy, number, began = [], [], 0, time.perf_counter()
    for _ in range(rounds):  # three units end between two ticks, three are begun
        for _ in range(3):
            number += 1
            night.finish(flying.pop(0), number)
        begun, cpu = time.perf_counter(), time.process_time()
        plan = night.tick()
        ticks.append(time.perf_counter() - begun)
        busy.append(time.process_time() - cpu)
        flying += night.order(plan)
        assert len(flying) == SLOTS
    found["units a second, begun and ended"] = number / (time.perf_counter() - began)
    found["tick (median)"] = statistics.median(ticks)
    found["tick (95 %)"] = statistics.quantiles(ticks, n=20)[-1]
    found["tick, CPU (median)"] = statistics.median(busy)
    last = [entry.id for entry in night.keeper.state.open[-50:]]
    writes = [timed(lambda unit=unit: night.keeper.update(lambda state: raised(state, unit))) for unit in last]
    found["state write (median)"] = statistics.median(writes)
    night.book.close()
    found["journal, MB"] = night.book.journal._log.path.stat().st_size / 1e6  # noqa: SLF001
    found["journal opened again"] = timed(lambda: Book.open(home.journal(night.book.ledger.night)).close())
    return found


def main() -> int:
    given = argparse.ArgumentParser()
    given.add_argument("--units", type=int, default=10_000)
    given.add_argument("--rounds", type=int, default=300)
    options = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.units, options.rounds)
    for what, number in found.items():
        bound = BOUNDS.get(what)
        print(f"{what:<34} {number:10.4f}" + (f"   bound {bound}" if bound else ""))
    return any(found[what] > bound for what, bound in BOUNDS.items())


if __name__ == "__main__":
    sys.exit(main())
