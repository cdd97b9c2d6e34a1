"""One hand-out of one unit: real git, real SDK, real commands; what is reported, and what a crash may not cost."""

import asyncio
import errno
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from attempt_stand import AttemptStand, Killed

from workers.model.client import ModelClient
from workers.orders import AgentOrder, Answered, Price, Release, Rule, UnitReport
from workers.session import events as ev
from workers.session.repair import UNKNOWN_OUTCOME, interrupted_turn_closers
from workers.session.session import Session
from workers.session.surface import surface
from worktrees.containment import tagged
from worktrees.files import FileLock

Stand = Callable[..., AttemptStand]
FILES = {"README.md": "# A\n", "tests/test_a.sh": "test -f done\n"}
DOLLARS = {
    "input_tokens": 1_000_000,
    "output_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}


def step(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"blocks": list(blocks), **more}


def text(words: str) -> dict[str, Any]:
    return {"text": words}


def bash(command: str) -> dict[str, Any]:
    return {"tool": "bash", "input": {"command": command}}


MAKES = step(text("I make it."), bash("touch done"))
DONE = step(text("Done."))
ASKS = step({"tool": "ask", "input": {"question": "Which?"}})


@pytest.fixture
async def stand(make_repository: Any, rehearse: Any, tmp_path: Path) -> AsyncIterator[Stand]:
    """Make the stand of one unit that plays these steps, with options of its orders: `stand(step, …, rounds=2)`."""
    async with AsyncExitStack() as opened:

        def make(*steps: dict[str, Any], name: str = "here", **options: Any) -> AttemptStand:
            repository = make_repository(FILES, name=f"{name}/repository")
            server = rehearse({"units": {"a": {"steps": list(steps)}}})
            client = ModelClient(AgentOrder(model="m", base_url=server.url))
            opened.push_async_callback(client.close)
            base = repository.git("rev-parse", "HEAD")
            return AttemptStand(repository, tmp_path / name / "home", server, client, base, options)

        yield make


async def test_pass(stand: Stand) -> None:
    """Work that verifies is a pass with commit and tree, on the hand-out's own ref, its last event the report."""
    at = stand(MAKES, DONE)
    report = await at.run()
    assert isinstance(report, UnitReport)
    assert (report.verdict, report.attempt, report.epoch, report.digest) == ("pass", 1, 1, "d")
    assert (report.summary, report.turns, report.steps) == ("Done.", 1, 2)
    assert report.cost == sum(event.cost for event in at.of(ev.AssistantMessage)) > 0
    assert report.commit is not None
    assert at.repository.git("rev-parse", f"refs/overnight/{at.night}/a/1.1") == report.commit
    assert at.repository.git("rev-parse", f"{report.commit}^{{tree}}") == report.tree
    assert at.repository.git("rev-parse", f"{report.commit}^") == at.base
    assert at.repository.git("diff", "--name-only", at.base, report.commit) == "done"
    assert at.repository.git("status", "--porcelain") == ""  # the checkout of the person is not touched
    assert at.worktrees() == []
    assert at.events()[-1] == ev.Report(report=report.model_dump(mode="json"))
    assert at.told()[0].startswith(f"goal: unit: a\nattempt: 1\nnight: {at.night}\n\nMake it.")


async def test_nothing_to_change(stand: Stand) -> None:
    """A unit whose verify is green at once passes with the base as its commit."""
    at = stand(DONE, run="true")
    report = await at.run()
    assert (report.verdict, report.commit) == ("pass", at.base)


async def test_a_failed_verify_is_the_next_turns_message(stand: Stand) -> None:
    """What verify said is what the next turn begins with; mended, the same session passes."""
    at = stand(DONE, MAKES, DONE, run="test -f done || { echo no such thing; exit 4; }")
    report = await at.run()
    assert (report.verdict, report.turns) == ("pass", 2)
    message = at.told()[1]
    assert message.startswith("verify: Verify failed with exit code 4")
    assert "no such thing" in message
    assert [(event.passed, event.exit_code) for event in at.of(ev.VerifyResult)] == [(False, 4), (True, 0)]


async def test_verify_sees_the_commit_and_nothing_else(stand: Stand) -> None:
    """Verify runs in a clean tree: ignored files and processes that the agent left do not speak in it."""
    at = stand(step(bash("echo done > .gitignore; touch done")), DONE, rounds=1)
    report = await at.run()
    assert (report.verdict, report.note) == ("fail", "[exit code 1]")


async def test_rounds_used_up(stand: Stand) -> None:
    """After the last round the unit fails, with the line that says most as its note and verify's output."""
    at = stand(DONE, DONE, DONE, rounds=2, run="echo 'ValueError: no'; echo; echo bye; exit 1")
    report = await at.run()
    assert (report.verdict, report.note, report.commit) == ("fail", "ValueError: no", None)
    assert report.output == "ValueError: no\n\nbye\n[exit code 1]"
    assert len(at.of(ev.VerifyResult)) == 2
    assert len(at.server.requests) == 2
    assert at.worktrees() == []


async def test_a_question_and_its_answer(stand: Stand) -> None:
    """A question blocks the unit and keeps its files; with the answer the same session goes on to a pass."""
    at = stand(step(bash("touch do"), ASKS["blocks"][0]), step(bash("mv do done")), DONE)
    report = await at.run()
    assert (report.verdict, report.question, report.note) == ("block", "Which?", "Which?")
    assert isinstance(at.events()[report.pause_seq], ev.Pause)
    assert at.worktrees() == ["a.1"]
    again = await at.run(epoch=2)  # nobody has answered: the same report, no model call
    assert (again.verdict, again.epoch, again.pause_seq) == ("block", 2, report.pause_seq)
    assert len(at.server.requests) == 1
    answered = await at.run(epoch=3, answers=(Answered(text="The second.", seq=report.pause_seq),))
    assert (answered.verdict, answered.epoch, answered.turns) == ("pass", 3, 1)
    assert len(at.server.requests) == 3
    results = at.server.requests[1].body["messages"][-1]["content"]
    assert [block["content"] for block in results] == ["(no output)", "The second."]


MYSTERY = AgentOrder(
    model="rehearsal-plain",
    price=Price(input=Decimal(3), output=Decimal(15), cache_read=Decimal(3), cache_write=Decimal(3)),
)
NOTHING_CACHED = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
DEAR = {"usage": {"input_tokens": 0, "output_tokens": 2_000_000, **NOTHING_CACHED}}


async def test_a_paused_turn_keeps_its_price(stand: Stand) -> None:
    """The config names another model by the time of the answer: the turn goes on on its own, at its own price."""
    at = stand(ASKS, step(bash("true"), **DEAR), DONE)
    there = {"base_url": at.server.url}
    report = await at.run(agent=MYSTERY.model_copy(update=there), budget=Decimal(5))
    assert report.question == "Which?"
    report = await at.run(
        agent=AgentOrder(model="claude-sonnet-5-5", **there),
        budget=Decimal(5),
        epoch=2,
        answers=(Answered(text="This.", seq=report.pause_seq),),
    )
    assert (report.verdict, report.note) == ("fail", "unit limit $5")
    assert [request.body["model"] for request in at.server.requests] == ["rehearsal-plain"] * 2
    assert Decimal(30) < report.cost < Decimal(31)


async def test_a_paused_turn_whose_price_nobody_knows(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of a version that did not note it: under a money limit nothing is called, and a person hears why."""
    at = stand(ASKS, MAKES, DONE)
    there = {"base_url": at.server.url}
    with monkeypatch.context() as patched:
        patched.setattr("workers.turn.loop.price_of", lambda *_: None)
        report = await at.run(agent=MYSTERY.model_copy(update=there))
    said = {
        "answers": (Answered(text="This.", seq=report.pause_seq),),
        "agent": AgentOrder(model="claude-sonnet-5-5", **there),
    }
    refused = await at.run(epoch=2, **said)
    assert (refused.verdict, refused.question) == ("block", None)
    assert "'rehearsal-plain'" in refused.note
    assert "overnight retry" in refused.note
    assert len(at.server.requests) == 1
    assert (await at.run(epoch=3, **said, budget=None)).verdict == "pass"  # no limit, nothing to measure


PROTECTED = {"protect": ("tests/**",), "run": "sh tests/test_a.sh"}
CHEATS = step(bash("echo true > tests/test_a.sh; echo true > tests/more.sh"))


async def test_protected_paths_are_taken_back(stand: Stand) -> None:
    """A changed test is put back before verify, the model is told, and the commit that lands has the base's."""
    at = stand(CHEATS, DONE, MAKES, DONE, **PROTECTED)
    report = await at.run()
    assert report.verdict == "pass"
    assert at.of(ev.Checkpoint)[0].taken_back == ["tests/more.sh", "tests/test_a.sh"]
    assert "Protected paths: `tests/**`" in at.told()[0]
    assert "Taken back before it ran" in at.told()[1]
    assert "tests/more.sh, tests/test_a.sh" in at.told()[1]
    assert at.repository.git("diff", "--name-only", at.base, report.commit) == "done"


async def test_what_was_taken_back_is_told_after_a_crash_too(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between verify and the next turn does not swallow what was taken back."""
    at = stand(CHEATS, DONE, MAKES, DONE, **PROTECTED)
    with monkeypatch.context() as patched:
        kill_at(patched, lambda _, event: isinstance(event, ev.VerifyResult))
        with pytest.raises(Killed):
            await at.run()
    assert (await at.run(epoch=2)).verdict == "pass"
    assert "tests/more.sh, tests/test_a.sh" in at.told()[1]


async def test_may_edit(stand: Stand) -> None:
    """A protected path that the unit may edit stays edited."""
    at = stand(step(bash("echo true > tests/test_a.sh")), DONE, **PROTECTED, may_edit=("tests/test_a.sh",))
    report = await at.run()
    assert report.verdict == "pass"
    assert at.repository.show(report.commit, "tests/test_a.sh") == "true"


# -- crashes ----------------------------------------------------------------------------------------------------------


def kill_at(monkeypatch: pytest.MonkeyPatch, here: Callable[[int, Any], bool], *, durable: bool = True) -> None:
    """Die when the event with that seq was appended: with everything so far on disk, or with what was flushed alone."""
    append = Session.append

    def one_by_one(self: Session, *batch: Any) -> int:
        first = len(self.events)
        for event in batch:
            seq = append(self, event)
            if here(seq, event):
                if durable:
                    self._log.flush()
                raise Killed
        return first

    monkeypatch.setattr(Session, "append", one_by_one)


# The calls of steps 2 and 4 do the same: whichever is cut off before it ran is made up for by the other.
LONG = [
    step({"thinking": "hm"}, text("I look."), bash("echo one >> work"), bash("cat README.md")),
    step(text("Done, I think.")),
    step(text("I make it."), bash("touch done")),
    step(text("Done.")),
    step(bash("touch done")),
    step(text("Done.")),
]


@pytest.mark.parametrize("part", range(3))
async def test_killed_at_every_event(stand: Stand, part: int) -> None:
    """Killed after any event, the next epoch ends in a pass, asks for no answer that was in the log, and loses none."""
    whole = stand(*LONG, name="whole")
    assert (await whole.run()).verdict == "pass"
    told = whole.events()
    assert len(told) > 25
    for seq in range(part, len(told), 3):
        durable = seq // 3 % 3 != 1 or isinstance(told[seq], ev.TurnStart)
        at = stand(*LONG, name=f"k{seq}")
        with pytest.MonkeyPatch.context() as patched:
            kill_at(patched, lambda found, _, seq=seq: found == seq, durable=durable)
            with pytest.raises(Killed):
                await at.run()
        before = at.events()
        answers = sum(isinstance(event, ev.AssistantMessage) for event in before)
        asked = len(at.server.requests)
        report = await at.run(epoch=2)
        assert (report.verdict, report.epoch) == ("pass", 2), f"killed after event {seq}"
        assert all(record.step >= answers for record in at.server.requests[asked:])
        after = at.events()
        assert after[: len(before)] == before
        assert interrupted_turn_closers(after) == []
        assert surface(after).unanswered == []
        assert at.told()[0].startswith("goal: ")
        failed = sum(not event.passed for event in at.of(ev.VerifyResult))
        assert sum(message.startswith("verify: ") for message in at.told()) == failed
        assert at.repository.git("rev-parse", f"{report.commit}^{{tree}}") == report.tree
        assert report.cost == sum(event.cost for event in at.of(ev.AssistantMessage))


async def test_a_pass_that_was_not_reported_yet(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between verify's yes and the report, the next epoch reports it: no model, no tree, no second verify."""
    at = stand(MAKES, DONE)
    with monkeypatch.context() as patched:
        kill_at(patched, lambda _, event: isinstance(event, ev.VerifyResult))
        with pytest.raises(Killed):
            await at.run()
    asked = len(at.server.requests)
    report = await at.run(epoch=2)
    assert (report.verdict, report.epoch) == ("pass", 2)
    assert at.repository.git("rev-parse", f"{report.commit}^{{tree}}") == report.tree
    assert (len(at.of(ev.VerifyResult)), len(at.server.requests)) == (1, asked)


async def test_a_yes_is_no_yes_to_what_another_session_asks(stand: Stand) -> None:
    """A session begun anew (its log was on another host) asks again, and a later no holds against the earlier yes."""
    at = stand(step(bash("echo ran >> effect")), MAKES, DONE)
    agent = at.order().agent.model_copy(update={"policy": (Rule(what="bash: echo *", then="ask"),)})
    first = await at.run(agent=agent)
    yes = Answered(text="", seq=first.pause_seq, call=first.pause_call, approved=True)
    at.places.session(1).unlink()
    second = await at.run(agent=agent, epoch=2, answers=(yes,))
    assert (second.pause_seq, second.verdict) == (first.pause_seq, "block")
    no = Answered(text="No.", seq=second.pause_seq, call=second.pause_call, approved=False)
    report = await at.run(agent=agent, epoch=3, answers=(yes, no))
    assert report.verdict == "pass"
    assert "effect" not in at.repository.git("ls-tree", "--name-only", report.commit).split()


@pytest.mark.parametrize("durable", [True, False])
async def test_an_approved_call_runs_once_wherever_it_is_killed(stand: Stand, *, durable: bool) -> None:
    """Killed at every event after a person's yes: the stored command runs once, or was cut off and is not run again."""
    told_of = []
    steps = [step(bash("echo ran >> effect")), MAKES, DONE, MAKES, DONE]  # one of the two makers may be cut off as well
    for killed_at in range(9):
        at = stand(*steps, name=f"{durable}-{killed_at}")
        agent = at.order().agent.model_copy(update={"policy": (Rule(what="bash: echo *", then="ask"),)})
        blocked = await at.run(agent=agent)
        assert (blocked.verdict, blocked.approval) == ("block", "bash: echo ran >> effect")
        answers = (Answered(text="", seq=blocked.pause_seq, approved=True),)
        first = len(at.events()) + 1  # behind the next claim
        with pytest.MonkeyPatch.context() as patched:
            kill_at(patched, lambda seq, _, last=first + killed_at: seq >= last, durable=durable)
            with pytest.raises(Killed):
                await at.run(agent=agent, epoch=2, answers=answers)
        report = await at.run(agent=agent, epoch=3, answers=answers)
        assert report.verdict == "pass"
        landed = at.repository.git("ls-tree", "--name-only", report.commit).split()
        ran = at.repository.show(report.commit, "effect").split() if "effect" in landed else []
        is_unknown = at.of(ev.ToolResult)[0].content == UNKNOWN_OUTCOME
        assert ran == ["ran"] or (ran == [] and is_unknown)
        told_of.append(is_unknown)
    assert not all(told_of)
    assert any(told_of) or not durable


async def test_killed_while_a_question_waits(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the stored question and its report, the next epoch reports it without a model call."""
    at = stand(ASKS, MAKES, DONE)
    with monkeypatch.context() as patched:
        kill_at(patched, lambda _, event: isinstance(event, ev.Pause))
        with pytest.raises(Killed):
            await at.run()
    report = await at.run(epoch=2)
    assert (report.verdict, report.question) == ("block", "Which?")
    assert len(at.server.requests) == 1
    answers = (Answered(text="This.", seq=report.pause_seq),)
    with monkeypatch.context() as patched:
        kill_at(patched, lambda _, event: isinstance(event, ev.ToolResult))
        with pytest.raises(Killed):
            await at.run(epoch=3, answers=answers)
    assert (await at.run(epoch=4, answers=answers)).verdict == "pass"


async def test_a_tree_that_is_gone_is_made_again(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another host the tree is as of the last checkpoint, and the model is told which and that the rest is gone."""
    at = stand(step(bash("touch kept")), DONE, step(bash("touch lost")), MAKES, DONE)
    with monkeypatch.context() as patched:
        kill_at(patched, lambda _, event: isinstance(event, ev.StepEnd) and event.step == 3)
        with pytest.raises(Killed):
            await at.run()
    shutil.rmtree(at.places.worktrees)
    report = await at.run(epoch=2)
    assert report.verdict == "pass"
    assert at.repository.git("diff", "--name-only", at.base, report.commit).split() == ["done", "kept"]
    made = at.of(ev.Checkpoint)[0].commit
    assert f"last checkpoint {made}" in at.told()[-1]


async def test_the_tree_is_adopted_with_its_files(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same host the files that were not committed yet are still there, and the model is told to look."""
    at = stand(step(bash("touch done")), DONE)
    with monkeypatch.context() as patched:
        kill_at(patched, lambda _, event: isinstance(event, ev.StepEnd))
        with pytest.raises(Killed):
            await at.run()
    report = await at.run(epoch=2)
    assert (report.verdict, len(at.server.requests)) == ("pass", 2)
    assert "Your worktree is as it was left" in at.told()[1]


async def test_processes_of_a_dead_holder_are_killed_first(stand: Stand) -> None:
    """What an earlier holder left running under the unit's tag is dead before its tree is adopted."""
    at = stand({**MAKES, "fault": {"status": 529}}, DONE)
    assert (await at.run()).reason == "model"
    left = await asyncio.create_subprocess_exec("sleep", "60", env={"OVERNIGHT_TAG": at.places.tag})
    assert (await at.run(epoch=2)).verdict == "pass"
    assert await asyncio.wait_for(left.wait(), 5) == -9
    assert tagged(at.places.tag) == []


# -- who may work -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"epoch": 2}, {"epoch": 1}, {"attempt": 1, "epoch": 9}], ids=str)
async def test_an_old_order_is_refused(stand: Stand, changes: dict[str, Any]) -> None:
    """An epoch that is not newer, or an attempt that is older, gets nothing: no call, no event, no report."""
    at = stand(MAKES, DONE)
    first = {"attempt": 2, "epoch": 1} if "attempt" in changes else {"epoch": 2}
    assert (await at.run(**first)).verdict == "pass"
    asked, events = len(at.server.requests), at.events(first.get("attempt", 1))
    assert await at.run(**changes) is None
    assert (len(at.server.requests), at.events(first.get("attempt", 1))) == (asked, events)


async def test_a_busy_unit(stand: Stand) -> None:
    """While another process on this host holds the unit's lock the order goes back as busy, which is no loss."""
    at = stand(MAKES, DONE)
    with FileLock(at.places.lock):
        released = await at.run()
    assert isinstance(released, Release)
    assert (released.reason, released.epoch) == ("busy", 1)
    assert at.server.requests == []
    assert (await at.run()).verdict == "pass"  # the refused epoch was never used up


async def test_a_report_is_sent_again(stand: Stand) -> None:
    """A session that ends in a verdict repeats it under the new epoch, without a model, a tree or a verify."""
    at = stand(MAKES, DONE)
    first = await at.run()
    asked, made = len(at.server.requests), len(at.of(ev.Checkpoint))
    again = await at.run(epoch=2)
    assert again == first.model_copy(update={"epoch": 2})
    assert (len(at.server.requests), len(at.of(ev.Checkpoint))) == (asked, made)
    assert again.task_id == f"{at.night}.a.1.2"


async def test_a_new_attempt_is_a_new_session(stand: Stand) -> None:
    """The next attempt starts from the base with a fresh context, which has the notes of those before."""
    at = stand(DONE, rounds=1)
    assert (await at.run()).verdict == "fail"
    assert (await at.run(attempt=2, notes=("test_backoff timed out",))).verdict == "fail"
    told = [event.content[0]["text"] for event in at.events(2) if isinstance(event, ev.UserMessage)]
    assert len(told) == 1
    assert "Earlier attempts did not pass:\n- test_backoff timed out" in told[0]


async def test_a_verify_that_was_edited_is_run_anew(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass under a digest that is no longer in force is verified again under the new one, without a model call."""
    at = stand(MAKES, DONE)
    with monkeypatch.context() as patched:
        kill_at(patched, lambda _, event: isinstance(event, ev.VerifyResult))
        with pytest.raises(Killed):
            await at.run()
    report = await at.run(epoch=2, digest="new", run="test -e done")
    assert (report.verdict, report.digest, len(at.server.requests)) == ("pass", "new", 2)
    assert [(event.digest, event.command) for event in at.of(ev.VerifyResult)] == [
        ("d", "test -f done"),
        ("new", "test -e done"),
    ]


async def test_a_lost_lease_says_nothing_more(stand: Stand) -> None:
    """Once the lease is lost no event is written, nothing is reported, and the tree is left as it is."""
    at = stand(MAKES, step(bash("touch more")), DONE)
    lost_at: list[int] = []

    def lose(state: Any) -> None:
        if state.step == 2 and not at.lease.lost:
            at.lease.lost = True
            lost_at.append(len(at.events()))

    at.watch = lose
    assert await at.run() is None
    assert len(at.events()) == lost_at[0]
    assert len(at.server.requests) == 1
    assert at.worktrees() == ["a.1"]
    at.lease.lost, at.watch = False, lambda _: None
    assert (await at.run(epoch=2)).verdict == "pass"


async def test_an_unconfirmed_lease_waits(stand: Stand) -> None:
    """With no beat confirmed in time nobody aborts: the unit waits for the next confirmation, then goes on."""
    at = stand(MAKES, DONE)
    at.lease.stale = True
    task = asyncio.create_task(at.run())
    await asyncio.sleep(0.3)
    at.hear()  # a beat that was not confirmed
    await asyncio.sleep(0.1)
    assert not task.done()
    assert at.server.requests == []
    at.lease.stale = False
    at.hear()
    assert (await task).verdict == "pass"


# -- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", ["stopped", "shutdown"])
async def test_a_wish_to_stop(stand: Stand, wish: str) -> None:
    """A stop ends the turn at the next step, commits the work and releases the unit; the next epoch goes on from it."""
    at = stand(MAKES, step(bash("touch more")), DONE)

    def stop(state: Any) -> None:
        if state.tool.startswith("bash"):
            at.lease.asked_to_stop = wish

    at.watch = stop
    released = await at.run()
    assert isinstance(released, Release)
    assert (released.reason, released.steps) == (wish, 1)
    assert released.cost is not None
    kept = at.of(ev.Checkpoint)[-1].commit
    assert at.repository.git("diff", "--name-only", at.base, kept) == "done"
    assert at.worktrees() == ["a.1"]
    at.lease.asked_to_stop, at.watch = "", lambda _: None
    assert (await at.run(epoch=2)).verdict == "pass"
    assert "taken this session up again" in at.told()[1]


@pytest.mark.parametrize(
    "steps",
    [
        [step(bash("touch kept"), usage=DOLLARS), MAKES, DONE],
        [step(text("Done."), usage=DOLLARS), MAKES, DONE],  # the last step's cost counts as well
    ],
    ids=["in a turn", "between turns"],
)
async def test_out_of_money(stand: Stand, steps: list[dict[str, Any]]) -> None:
    """A unit that has spent its limit makes no further call: it fails with the limit as its note, its work kept."""
    at = stand(*steps, budget=Decimal(2))
    report = await at.run()
    assert (report.verdict, report.note, report.cost) == ("fail", "unit limit $2", Decimal(2))
    assert len(at.server.requests) == 1
    assert len(at.of(ev.Checkpoint)) == len(at.of(ev.VerifyResult)) + 1


async def test_out_of_the_runs_money(stand: Stand) -> None:
    """That is no failure: the work is kept, the unit handed back, and with more money the same session goes on."""
    at = stand(step(bash("touch kept")), MAKES, DONE)
    report = await at.run(budget=Decimal("0.000001"), budget_of="run")
    assert isinstance(report, Release)
    assert (report.reason, report.detail) == ("budget", "the run's money is used up")
    assert len(at.of(ev.Checkpoint)) == 1
    more = await at.run(epoch=2, budget=Decimal(5))
    assert (more.verdict, len(at.server.requests)) == ("pass", 3)


async def test_an_unknown_price_without_a_limit(stand: Stand) -> None:
    """The cost is None, and all goes on."""
    at = stand(MAKES, DONE, model="rehearsal-plain", budget=None)
    report = await at.run()
    assert (report.verdict, report.cost) == ("pass", None)


async def test_an_unknown_price_under_a_limit(stand: Stand) -> None:
    """No call follows the first that has no price: the limit would mean nothing."""
    at = stand(MAKES, DONE, model="rehearsal-plain", budget=Decimal("0.01"))
    report = await at.run()
    assert (report.verdict, report.steps) == ("block", 1)
    assert "what its calls cost is unknown" in report.note


async def test_out_of_time(stand: Stand) -> None:
    """When the time is up the model call is cancelled, the work is kept, and the unit fails saying so."""
    at = stand(MAKES, step(text("Done."), think_time=30), seconds=1.2)
    began = time.monotonic()
    report = await at.run()
    assert time.monotonic() - began < 6
    assert (report.verdict, report.note) == ("fail", "out of time after 0.02 min")
    assert at.server.requests[1].disconnected is not None
    kept = at.of(ev.Checkpoint)[-1].commit
    assert at.repository.git("diff", "--name-only", at.base, kept) == "done"
    assert at.of(ev.TurnEnd)[-1].reason == "aborted"


async def test_out_of_time_in_a_command(stand: Stand) -> None:
    """A command that outlasts the unit's time is killed with it."""
    at = stand(step(bash("touch done; sleep 60")), seconds=1.2)
    report = await at.run()
    assert report.verdict == "fail"
    assert tagged(at.places.tag) == []


async def test_cancelled(stand: Stand) -> None:
    """A cancelled attempt leaves no process and no lock behind, and the next epoch goes on."""
    at = stand(step(bash("touch done; sleep 60")), DONE)
    task = asyncio.create_task(at.run())
    async with asyncio.timeout(10):
        while not tagged(at.places.tag):  # noqa: ASYNC110  # a process tells nobody that it is there
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tagged(at.places.tag) == []
    FileLock(at.places.lock).acquire()
    Session.open(at.places.session(1)).close()


@pytest.mark.parametrize("after", [0.0, 0.02, 0.05, 0.08, 0.12, 0.2, 0.3])
async def test_cancelled_at_any_moment(stand: Stand, after: float) -> None:
    """Whenever the cancellation comes, the session and the unit are free at once for the next epoch, which passes."""
    at = stand(MAKES, DONE, MAKES, DONE)
    task = asyncio.create_task(at.run())
    await asyncio.sleep(after)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        assert tagged(at.places.tag) == []
    assert (await at.run(epoch=2)).verdict == "pass"


# -- trouble ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"status": 529}, "model"),
        ({"status": 429}, "model"),
        ({"status": 401}, "key"),
        ({"status": 402}, "spend"),
        ({"status": 429, "code": "enforced_spend_limit_reached"}, "spend"),
    ],
    ids=str,
)
async def test_trouble_that_is_not_the_units(stand: Stand, fault: dict[str, Any], reason: str) -> None:
    """What the API or the key is to blame for releases the unit with the reason; the next epoch goes on."""
    at = stand({**MAKES, "fault": fault}, DONE)
    released = await at.run()
    assert isinstance(released, Release)
    assert released.reason == reason
    assert released.detail
    assert (await at.run(epoch=2)).verdict == "pass"


async def test_what_its_owner_must_see(stand: Stand) -> None:
    """A refusal, and a request that the API will never take, block the unit with the reason."""
    at = stand(step(text("No."), stop="refusal"))
    report = await at.run()
    assert (report.verdict, report.note) == ("block", "the model refused to go on")
    other = stand(step(text("x"), fault={"status": 400, "message": "too odd"}), name="other")
    report = await other.run()
    assert (report.verdict, report.note) == ("block", "the model call failed: too odd")


async def test_an_answer_that_was_cut_short(stand: Stand) -> None:
    """The turn after an overlong answer is told why; each costs a round, and the last one fails the unit."""
    cut = step(text("Half"), stop="max_tokens")
    at = stand(cut, MAKES, DONE)
    assert (await at.run()).verdict == "pass"
    assert at.told()[1].startswith("runtime: agent_output_limit_exceeded")
    other = stand(cut, cut, cut, rounds=2, name="other")
    report = await other.run()
    assert report.verdict == "fail"
    assert "output limit" in report.note
    assert len(other.server.requests) == 2


async def test_cut_short_and_killed(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is told as well when the process died in between (spec A15)."""
    at = stand(step(text("Half"), stop="max_tokens"), MAKES, DONE)
    with monkeypatch.context() as patched:
        kill_at(patched, lambda _, event: isinstance(event, ev.TurnEnd))
        with pytest.raises(Killed):
            await at.run()
    assert (await at.run(epoch=2)).verdict == "pass"
    assert at.told()[1].startswith("runtime: agent_output_limit_exceeded")


async def test_a_repository_inside_the_tree(stand: Stand) -> None:
    """A nested repository cannot be committed: the model is told to remove it, and can."""
    at = stand(step(bash("git init -q sub; touch sub/f done")), DONE, step(bash("rm -rf sub")), DONE)
    report = await at.run()
    assert report.verdict == "pass"
    assert "is a git repository inside the worktree" in at.told()[1]


async def test_setup(stand: Stand, tmp_path: Path) -> None:
    """Setup runs once in the unit's tree, however often it is taken up, and once in each verify's."""
    at = stand(step(text("x"), fault={"status": 529}), DONE, run="true", setup=f"pwd >> {tmp_path}/ran")
    assert (await at.run()).reason == "model"
    assert (await at.run(epoch=2)).verdict == "pass"
    ran = [Path(line).name for line in (tmp_path / "ran").read_text().split()]
    assert ran == ["a.1", "a.1.verify"]


async def test_a_failed_setup(stand: Stand) -> None:
    """A setup that fails is for a person to see, and costs no token."""
    at = stand(MAKES, DONE, setup="echo 'error: no network' >&2; exit 3")
    report = await at.run()
    assert (report.verdict, report.note) == ("block", "setup failed: error: no network")
    assert at.server.requests == []
    assert not at.of(ev.SetupResult)[0].ok


@pytest.mark.parametrize("call", ["fdatasync", "replace"])
async def test_a_full_disk(stand: Stand, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, under the log or under the agent's edit, releases the unit; with room again it passes."""
    edit = {"tool": "str_replace_based_edit_tool", "input": {"command": "create", "path": "x/done", "file_text": ""}}
    at = stand(step(bash("mkdir x")), step(edit), step(bash("touch done")), DONE)
    real, full = getattr(os, call), [False]

    def fail(*args: Any, **more: Any) -> Any:
        if full[0] and (call == "fdatasync" or "src_dir_fd" in more):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **more)

    def fill(state: Any) -> None:
        full[0] = state.step == 2

    monkeypatch.setattr(os, call, fail)
    at.watch = fill
    released = await at.run()
    assert isinstance(released, Release)
    assert released.reason == "disk"
    assert "No space left" in released.detail
    monkeypatch.undo()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "rehearsal")
    at.watch = lambda _: None
    assert (await at.run(epoch=2)).verdict == "pass"


async def test_a_home_that_cannot_be_made(stand: Stand) -> None:
    """A home that is no folder releases the unit with the reason."""
    at = stand(MAKES, DONE)
    at.home.write_text("")
    released = await at.run()
    assert (released.reason, bool(released.detail)) == ("disk", True)
