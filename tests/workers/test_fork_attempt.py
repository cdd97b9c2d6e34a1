"""An order that goes on from a prefix of another attempt: real git, real SDK, real commands."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from attempt_stand import AttemptStand

from workers.model.client import ModelClient
from workers.notes import NAME
from workers.orders import AgentOrder, ForkPoint, UnitReport
from workers.session import events as ev
from workers.session.replay import replay


def bash(command: str) -> dict[str, Any]:
    return {"blocks": [{"tool": "bash", "input": {"command": command}}]}


DONE = {"blocks": [{"text": "Done."}]}
NOTE = bash("echo kept > kept; echo 'no luck' >> \"$OVERNIGHT_SCRATCH/notes.md\"")
TRY = bash("test -e ../../../../go && touch done; true")


@pytest.fixture
async def stand(make_repository: Any, rehearse: Any, tmp_path: Path) -> AsyncIterator[AttemptStand]:
    """A unit whose first attempt fails twice at verify: a look, an end, another try, an end."""
    async with AsyncExitStack() as opened:
        repository = make_repository({"README.md": "# A\n"}, name="here/repository")
        # A fork says something else after an answer that was heard: the rehearsal takes that for a rewritten past.
        server = rehearse({"units": {"a": {"steps": [NOTE, DONE, TRY, DONE, DONE, DONE]}}, "strict_prefix": False})
        client = ModelClient(AgentOrder(model="m", base_url=server.url))
        opened.push_async_callback(client.close)
        base = repository.git("rev-parse", "HEAD")
        home = tmp_path / "here" / "home"
        yield AttemptStand(repository, home, server, client, base, {"rounds": 2})


def index(events: list[Any], kind: type, number: int) -> int:
    return [seq for seq, event in enumerate(events) if isinstance(event, kind)][number]


async def failed(stand: AttemptStand) -> list[Any]:
    report = await stand.run()
    assert isinstance(report, UnitReport)
    assert (report.verdict, report.steps) == ("fail", 4)
    return stand.events()


async def test_a_fork_goes_on_at_the_last_checkpoint_of_its_prefix(stand: AttemptStand) -> None:
    """In a fresh worktree with the files of that checkpoint, told so, and told of a verify it had not heard of."""
    events = await failed(stand)
    at = index(events, ev.VerifyResult, 0) + 1
    first = next(event for event in events if isinstance(event, ev.Checkpoint))
    report = await stand.run(attempt=2, fork=ForkPoint(attempt=1, at=at), run="test -f kept")
    assert isinstance(report, UnitReport)
    assert (report.verdict, report.attempt) == ("pass", 2), report.note
    mine = stand.events(2)
    copied = [event for event in events[:at] if not isinstance(event, ev.Claim)]
    assert mine[: len(copied)] == copied
    assert mine[len(copied)] == ev.SessionFork(source=1, at=at, attempt=2)
    told = [event for event in mine if isinstance(event, ev.UserMessage)][-1]
    assert told.source == "runtime"
    assert "Verify failed with exit code 1: `test -f done`" in told.content[0]["text"]
    assert f"Files are as of the last checkpoint {first.commit}" in told.content[0]["text"]
    assert report.commit == first.commit  # nothing was changed behind it
    assert stand.repository.git("show", f"{report.commit}:kept") == "kept"
    assert stand.repository.git("rev-parse", f"{report.commit}^") == stand.base
    assert all(row.ok for row in replay(mine))


async def test_a_fork_pays_and_counts_what_it_does_itself(stand: AttemptStand) -> None:
    """Its budget, its rounds and its report begin at the fork: nothing is booked or used up twice."""
    events = await failed(stand)
    paid = sum(event.cost for event in events if isinstance(event, ev.AssistantMessage))
    report = await stand.run(attempt=2, fork=ForkPoint(attempt=1, at=len(events)), run="test -f kept", budget=paid)
    assert isinstance(report, UnitReport)
    assert (report.verdict, report.turns, report.steps) == ("pass", 1, 1)
    assert report.cost is not None
    assert Decimal(0) < report.cost < paid


async def test_a_fork_has_all_its_rounds(stand: AttemptStand) -> None:
    """Those that the copied events used up are not missing: it fails at verify twice before it gives up."""
    events = await failed(stand)
    report = await stand.run(attempt=2, fork=ForkPoint(attempt=1, at=len(events)))
    assert isinstance(report, UnitReport)
    assert (report.verdict, report.steps) == ("fail", 2)


async def test_a_fork_before_the_first_turn_is_a_fresh_start(stand: AttemptStand) -> None:
    """It gets the goal, with the notes that the other attempt left, in a tree on the order's base."""
    await failed(stand)
    assert (stand.places.scratch / NAME).read_text() == "no luck\n"
    await stand.run(attempt=2, fork=ForkPoint(attempt=1, at=1))
    told = next(event for event in stand.events(2) if isinstance(event, ev.UserMessage))
    assert told.source == "goal"
    assert told.content[0]["text"].endswith("which earlier attempts wrote:\n\nno luck")


async def test_a_fork_that_was_cut_off_goes_on_and_is_not_forked_again(stand: AttemptStand) -> None:
    """Its next epoch needs the source no more."""
    events = await failed(stand)
    point = ForkPoint(attempt=1, at=index(events, ev.StepStart, 2))
    stand.lease.asked_to_stop = "stopped"
    released = await stand.run(attempt=2, fork=point)
    assert released.kind == "release"
    assert released.cost == 0
    stand.places.session(1).unlink()
    stand.lease.asked_to_stop = ""
    report = await stand.run(attempt=2, epoch=2, fork=point, run="test -f kept")
    assert isinstance(report, UnitReport)
    assert report.verdict == "pass"
    assert sum(isinstance(event, ev.SessionFork) for event in stand.events(2)) == 1


async def test_a_fork_whose_source_is_not_there_is_for_a_person(stand: AttemptStand) -> None:
    """Blocked, with the reason; no model call was made."""
    report = await stand.run(attempt=2, fork=ForkPoint(attempt=1, at=3))
    assert isinstance(report, UnitReport)
    assert (report.verdict, report.steps) == ("block", 0)
    assert "cannot go on from attempt 1" in report.note


async def test_an_agent_has_a_folder_of_its_own_and_verify_does_not(stand: AttemptStand) -> None:
    """The scratch folder is in the environment of its commands alone, private, and outside the worktree."""
    report = await stand.run(run='test -z "$OVERNIGHT_SCRATCH"')
    assert isinstance(report, UnitReport)
    assert report.verdict == "pass"
    assert stand.places.scratch.stat().st_mode & 0o777 == 0o700
    assert stand.places.worktrees not in stand.places.scratch.parents
