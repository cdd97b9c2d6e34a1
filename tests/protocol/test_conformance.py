"""What the model says of the lease's scripts and of workers is what the real ones do."""

import random
from typing import Any

import pytest
import real_parts
import redis
from lease_scripts import Record, beat, claim, publish
from model import RUN, Bounds, State, Worker, start, steps
from real_parts import NIGHT, report_of

from dispatcher.accept import refusal
from dispatcher.ledger import Ledger
from workers.lease import LeaseTable

TOKENS = [(1, 1), (1, 2), (2, 1)]
HOLDERS = [0, 1]
ALL_ON: frozenset[str] = frozenset()


class Pair:
    """The real record in a real Redis beside the model's."""

    def __init__(self, client: redis.Redis) -> None:
        self.client, self.table = client, LeaseTable(client, NIGHT)
        self.key = f"overnight:{NIGHT}:lease:u"
        self.run_id = self.table.run_id()
        self.model: Record | None = None

    def publish(self, rng: random.Random) -> None:
        token, is_open = rng.choice(TOKENS), rng.random() < 0.6
        assert self.table.publish("u", written(token), "open" if is_open else "closed") == self.run_id
        self.model = publish(token, is_open=is_open, run=RUN)

    def claim(self, rng: random.Random) -> None:
        token, holder, is_new = rng.choice(TOKENS), rng.choice(HOLDERS), rng.random() < 0.8
        said = self.table.claim("u", written(token), str(holder), self.run_id if is_new else "earlier")
        found = claim(self.model, token, holder, said=RUN if is_new else 0, run=RUN, off=ALL_ON)
        assert said == (found is not None)
        self.model = found or self.model

    def beat(self, rng: random.Random) -> None:
        token, holder, counter = rng.choice(TOKENS), rng.choice(HOLDERS), rng.choice([1, 2, 3])
        heard = self.table.beat("u", written(token), str(holder), counter, "{}")[0]
        expected, self.model = beat(self.model, token, holder, counter, run=RUN)
        assert heard == expected

    def restart(self, rng: random.Random) -> None:
        """Redis comes back: with its data under another run_id, or somewhat earlier, or with nothing."""
        if self.model is None or rng.random() < 0.2:
            self.client.delete(self.key)
            self.model = None
            return
        self.client.hset(self.key, "run_id", "earlier")
        self.model = self.model._replace(run=0)
        if self.model.holder is not None and rng.random() < 0.5:
            self.client.hset(self.key, "beat", 0)
            self.model = self.model._replace(beat=0)

    def compare(self) -> None:
        found = self.table.poll(["u"]).get("u")
        assert (found is None) == (self.model is None)
        if found is not None and self.model is not None:
            holder = "" if self.model.holder is None else str(self.model.holder)
            assert (found.token, found.holder, found.beat) == (written(self.model.token), holder, self.model.beat)


def written(token: tuple[int, ...]) -> str:
    return ".".join(map(str, token))


@pytest.mark.parametrize("seed", range(20))
def test_the_scripts_do_what_the_model_thinks(redis_client: redis.Redis, seed: int) -> None:
    """Random publishes, claims, beats and restarts: every answer and every record are the same."""
    rng, pair = random.Random(seed), Pair(redis_client)
    for _ in range(100):
        rng.choices([pair.publish, pair.claim, pair.beat, pair.restart], [2, 3, 5, 1])[0](rng)
        pair.compare()


def walk(rng: random.Random, bounds: Bounds, length: int) -> list[tuple[str, State]]:
    """A random way through the model."""
    state, way = start(bounds), []
    for _ in range(length):
        found = list(steps(state, bounds))
        if not found:
            break
        step = rng.choice(found)
        assert not step.wrong, step
        state = step.state
        way.append((step.name, state))
    return way


@pytest.mark.parametrize("seed", range(20))
def test_random_nights_fold_into_the_ledger_that_the_model_carries(seed: int) -> None:
    """The model keeps a few facts of the journal; the whole journal of a random way says the same."""
    rng = random.Random(seed)
    bounds = Bounds(hosts=rng.choice([1, 2]), faults=3, epochs=6)
    entries: list[Any] = []
    ledger = Ledger()
    facts = start(bounds).facts
    for name, state in walk(rng, bounds, 250):
        for entry in journalled(name, facts, state.facts):
            entries.append(entry)
            ledger.add(entry)
        facts = state.facts
        of = ledger.unit("u")
        assert (of.attempt, of.epoch, of.in_flight, of.settled) == (*facts.token, facts.in_flight, facts.settled)
        assert (of.failures, of.losses) == (facts.failures, facts.losses)
        assert (of.merged is not None, of.waiting is not None) == (facts.merged, facts.waiting is not None)
    assert entries


def journalled(name: str, before: Any, after: Any) -> list[Any]:
    """Return the journal's entries of a step, told by its name."""
    words = name.split()
    if name.startswith("order ") and name.endswith("is journalled"):
        return [real_parts._entry("ordered", *after.token)]
    if "is lost (" in name:
        return [real_parts._entry("lost", *before.token, "claimed" in name)]
    if "is journalled, " in name:
        (report,) = after.reports - before.reports
        return [real_parts._entry("reported", report, "accepted" in words or "accepted," in words)]
    if name == "a new dispatcher starts":
        taken = [
            real_parts._entry("reported", report, refusal_of(before, report) is None)
            for report in sorted(after.reports - before.reports)
        ]
        return [real_parts._entry("run", False), *taken]
    kinds = {
        "the merge fails": "not merged",
        "the merge intent is journalled": "intent",
        "the merge is journalled as done": "merged",
    }
    return [real_parts._entry(kinds[name], after.attempt)] if name in kinds else []


def refusal_of(facts: Any, report: Any) -> str | None:
    return refusal(report_of(report), real_parts._ledger(facts).unit("u"), has_commit=True)


def test_the_model_can_tell_a_good_night() -> None:
    """The shortest way from a unit to its merge goes through every part once."""
    state, bounds = start(Bounds(faults=0)), Bounds(faults=0)
    wanted = ["order 1.1 is j", "order (1, 1) is p", "worker 0 claims", "worker 0 works", "worker 0: pass is f"]
    wanted += ["worker 0: (1, 1, 'pass') is in", "(1, 1, 'pass') is sent", "(1, 1, 'pass') is journalled, accepted"]
    wanted += [
        "the merge intent",
        "the merged branch",
        "the merge is journalled",
        "the state file",
        "(1, 1, 'pass') is d",
    ]
    for name in wanted:
        state = next(step.state for step in steps(state, bounds) if step.name.startswith(name))
    assert (state.bucket, state.git.merges, state.workers) == ("passed", 1, (Worker(), Worker()))
