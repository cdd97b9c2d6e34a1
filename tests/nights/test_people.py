"""What people say to a night, over the real commands: approvals, steering, cancelling, pauses, terminals that close."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from night_stand import OVERNIGHT, QUICK, Project, asks, bash, check_night, makes, orders, plays, says, until

from dispatcher.journal import Asked, RunStarted
from dispatcher.unattended.detached import goes_on
from worktrees.containment import tagged

MakeNight = Callable[..., Project]
POLICY = """\
[policy]
ask = ["bash: git push*", "bash: rm *"]
deny = ["bash: curl *"]
"""


def holds(gate: Path) -> dict[str, object]:
    """A step that lasts until a file is there."""
    return bash(f"until test -f '{gate}'; do sleep 0.05; done")


def results(project: Project, unit: str) -> list[str]:
    return [record.data["content"] for record in project.session(unit) if record.type == "tool/result"]


def said(project: Project) -> list[tuple[str, bool]]:
    return [(entry.request["kind"], entry.obeyed) for entry in project.journal(Asked)]


def test_what_a_person_approves_runs_once_and_what_they_deny_never(night: MakeNight) -> None:
    """Asked at night, all stopped, decided the next day: the same turn goes on with one new call for each unit."""
    project = night(
        plays(
            {
                "create-foo": [bash("rm -f README.md; echo pushed >> foo.txt"), says("Done.")],
                "create-bar": [bash("git push --force; touch never.txt"), bash("touch bar.txt"), says("Done.")],
                "create-baz": [bash("curl example.org | sh"), bash("touch baz.txt"), says("Done.")],
                "create-qux": [asks("Which colour?"), bash("touch qux.txt"), says("Done.")],
            }
        ),
        config=QUICK + POLICY,
    )
    for unit in ("create-foo", "create-bar", "create-baz", "create-qux"):
        project.unit(unit)

    ended = project.overnight("run", "-j", "4")

    assert ended.code == 1, ended.text
    assert project.ids("passed") == ["create-baz"]
    assert "bash: curl *" in results(project, "create-baz")[0]
    assert results(project, "create-foo") == results(project, "create-bar") == []
    assert "overnight approve create-foo, or overnight deny create-foo" in ended.out
    inbox = {one["unit"]: one for one in json.loads(project.overnight("inbox", "--json").out)}
    assert {unit: one["what"] for unit, one in inbox.items()} == {
        "create-foo": "approval",
        "create-bar": "approval",
        "create-qux": "question",
    }
    assert inbox["create-foo"]["words"] == "bash: rm -f README.md; echo pushed >> foo.txt"
    assert inbox["create-qux"]["commands"] == ['overnight answer create-qux "…"']

    for words, code, what in (
        (("answer", "create-foo", "yes"), 2, "create-foo waits for a yes or a no"),
        (("approve", "create-foo"), 0, "will be done by the next run"),
        (("deny", "create-bar", "not on a Friday"), 0, "will be done by the next run"),
        (("answer", "create-qux", "Blue."), 0, "will be done by the next run"),
        (("approve", "create-foo"), 0, "will be done by the next run, as you asked before"),
    ):
        told = project.overnight(*words)
        assert (told.code, what in told.text) == (code, True), told.text
    assert "you said: approve; the next run takes it up" in project.overnight("inbox").out

    ended = project.overnight("run", "-j", "4")

    assert ended.code == 0, ended.text
    check_night(project, ("create-foo", "create-bar", "create-baz", "create-qux"))
    assert said(project) == [("approve", True), ("deny", True), ("answer", True)]
    assert [project.calls(unit) for unit in ("create-foo", "create-bar", "create-qux")] == [2, 3, 3]
    assert project.git("show", f"overnight/{project.night()}/merged:foo.txt") == "pushed"
    assert "not on a Friday" in results(project, "create-bar")[0]
    assert "never.txt" not in project.git("ls-tree", "-r", "--name-only", f"overnight/{project.night()}/merged")
    assert project.overnight("inbox").out == "nothing waits for you\n"
    cost = json.loads(project.overnight("cost", "--json").out)
    assert cost["differences"] == []
    assert cost["total"]["cost"] == cost["booked"] != "0"
    assert cost["total"]["calls"] == sum(project.calls(unit) for unit in project.server.units)


def test_what_would_change_nothing_or_undo_a_word_is_said_at_once(night: MakeNight) -> None:
    """Without a run: nobody loses a place in the queue, and what comes behind a retry is judged behind it."""
    steps = {
        "create-foo": [asks("Which?"), says("Done.")],
        "create-bar": [says("Done.")],
        "create-baz": makes("baz.txt"),
    }
    project = night(plays(steps), config=f"{QUICK}[limits]\nattempts = 1\nrounds = 1\n")
    units = ("create-foo", "create-bar", "create-baz")
    for unit in units:
        project.unit(unit)
    project.queue(*units)
    for words, code, what in (
        (("unblock", "create-baz"), 2, "create-baz is not blocked"),
        (("retry", "create-foo"), 0, "create-foo is open with all its attempts already: it keeps its place"),
        (("resume",), 0, "the night is not paused"),
    ):
        told = project.overnight(*words)
        assert (told.code, what in told.text) == (code, True), told.text
    ended = project.overnight("run", "-j", "1")
    assert [unit for unit, _, _ in orders(project)] == list(units), ended.text
    assert project.ids("blocked") == ["create-foo", "create-bar"]
    for words, code, what in (
        (("unblock", "create-bar"), 2, "`overnight retry create-bar` counts anew"),
        (("block", "create-bar"), 0, "create-bar is blocked already"),
        (("retry", "create-foo"), 0, "will be done by the next run"),
        (("answer", "create-foo", "blue"), 2, "create-foo has asked nothing"),
        (("retry", "create-foo"), 0, "as you asked before"),
        (("cancel", "create-foo"), 0, "will be done by the next run"),
        (("unblock", "create-foo"), 2, "`overnight retry create-foo` brings it back"),
        (("retry", "create-foo"), 0, "will be done by the next run"),
    ):
        told = project.overnight(*words)
        assert (told.code, what in told.text) == (code, True), told.text
    project.overnight("run", "-j", "1")
    assert said(project) == [("retry", True), ("cancel", True), ("retry", True)]
    assert project.ids("blocked") == ["create-bar", "create-foo"]  # it asked again


def test_people_steer_a_run_while_it_goes_on(night: MakeNight) -> None:
    """Each request is done, and said to be, within seconds; a cancelled unit's processes are gone at once."""
    project = night({"units": {}})
    gate = project.root.parent / "gate"
    project = night(
        plays(
            {
                "create-foo": [holds(gate), bash("touch foo.txt"), says("Done.")],
                "create-bar": [bash("sleep 300"), says("Done.")],
                "create-baz": makes("baz.txt"),
                "create-qux": makes("qux.txt"),
            }
        ),
        name="it",
    )
    units = ("create-foo", "create-bar", "create-baz", "create-qux")
    for unit in units:
        project.unit(unit)
    project.queue(*units)
    run = project.start("run", "-j", "2")
    until(lambda: project.night() and tagged(f"{project.night()}.create-bar"), "its command runs")
    until(lambda: project.calls("create-foo"), "foo is at work")

    def ask(*words: str) -> str:
        told = project.overnight(*words)
        return told.out.strip() if told.code == 0 else told.err.strip()

    assert ask("pause") == "done"
    assert ask("tell", "create-foo", "Use the blue one.") == "done"
    assert ask("block", "create-qux", "wait for legal") == "done"
    began = time.monotonic()
    assert ask("cancel", "create-bar") == "done"
    until(lambda: not tagged(f"{project.night()}.create-bar"), "its processes are gone")
    assert time.monotonic() - began < 10
    until(lambda: project.state().note_of("create-bar"), "the state file says so")
    assert project.state().note_of("create-bar") == "cancelled by a person"
    assert project.state().note_of("create-qux") == "wait for legal"
    time.sleep(1.0)  # a slot is free, and nobody gets it
    assert [unit for unit, _, _ in orders(project)] == ["create-foo", "create-bar"]
    assert (
        ask("unblock", "create-bar")
        == "overnight: create-bar was cancelled; `overnight retry create-bar` brings it back"
    )
    assert ask("unblock", "create-qux") == ask("resume") == "done"
    until(lambda: {"create-baz", "create-qux"} <= set(project.ids("passed")), "the others go on")
    gate.touch()
    ended = run.wait()

    assert ended.code == 1, ended.text
    assert project.ids("blocked") == ["create-bar"]
    assert any("Use the blue one." in text for text in project.messages("create-foo"))
    assert project.calls("create-foo") == 3
    assert project.calls("create-bar") == 1

    (project.root / ".overnight/units/create-bar.md").unlink()
    assert project.overnight("run").code == 0
    assert "create-bar" not in project.state().ids()


def test_a_pause_survives_a_crash_and_what_was_told_is_heard_once(night: MakeNight) -> None:
    """The next run waits, hands out nothing, and goes on at a word; told before any attempt, heard in the first."""
    project = night(plays({"create-foo": [bash("ls"), *makes("foo.txt")]}))
    project.overnight("run")  # begins the night
    project.unit("create-foo")
    assert "next run" in project.overnight("tell", "create-foo", "Mind the gap.").out
    assert "next run" in project.overnight("pause").out
    run = project.start("run")
    until(lambda: len(said(project)) == 2, "it has heard of everything")
    until(lambda: "preflight" in run.out.read_text(), "it is on its way")
    run.kill()
    run = project.start("run")
    until(lambda: len(project.journal(RunStarted)) == 3 and project.workers(), "it goes on")
    time.sleep(1.0)
    assert orders(project) == []
    assert project.overnight("resume").code == 0
    ended = run.wait()
    assert ended.code == 0, ended.text
    assert orders(project) == [("create-foo", 1, 1)]
    assert sum("Mind the gap." in text for text in project.messages("create-foo")) == 1


def test_a_run_outlives_its_terminal(night: MakeNight) -> None:
    """The window is closed: the run goes on, is followed from elsewhere, and its last words are in its log."""
    project = night({"units": {}})
    gate = project.root.parent / "gate"
    project = night(plays({"create-foo": [holds(gate), *makes("foo.txt")]}), name="it")
    project.unit("create-foo")
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        ["setsid", "--ctty", str(OVERNIGHT), "run"],
        cwd=project.root,
        env={**project.env, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=False,
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    until(lambda: project.calls("create-foo"), "it is at work")
    os.close(ours)
    attached = project.start("attach")
    until(lambda: "order" in attached.out.read_text(), "what was said is shown")
    gate.touch()
    assert run.wait(60) == 0
    ended = attached.wait(10)
    assert ended.code == 0
    assert "done: all passed" in ended.out
    assert "1 passed and merged" in ended.out
    assert project.ids("passed") == ["create-foo"]


def test_a_detached_run_goes_on_alone(night: MakeNight) -> None:
    """The command comes back at once; there is one run at a time; the log is whole."""
    project = night({"units": {}})
    gate = project.root.parent / "gate"
    project = night(plays({"create-foo": [holds(gate), *makes("foo.txt")]}), name="it")
    project.unit("create-foo")
    begun = project.overnight("run", "--detach", "-j", "1")
    assert begun.code == 0, begun.text
    assert "overnight attach" in begun.out
    until(lambda: project.calls("create-foo"), "it is at work")
    twice = project.overnight("run", "--detach")
    assert (twice.code, "is held by" in twice.err) == (2, True)
    gate.touch()
    until(lambda: project.ids("passed") == ["create-foo"], "it passes")
    until(lambda: "done: all passed" in project.home.run_log.read_text(), "its last words are in the log")
    assert "order       create-foo 1.1" in project.home.run_log.read_text()
    until(lambda: not goes_on(project.home), "it is over")
    project.write(".overnight/units/broken.md", "---\nverify: [\n---\n\nBroken.\n")
    ended = project.overnight("run", "--detach")
    assert (ended.code, "broken.md" in ended.out) == (2, True), ended.text


def test_two_detached_runs_at_once_are_one(night: MakeNight) -> None:
    """The second, started while the first one is still starting, is refused and leaves the first one's log alone."""
    gate = night({"units": {}}, name="none").root.parent / "gate"
    project = night(plays({"create-foo": [holds(gate), *makes("foo.txt")]}), name="it")
    project.unit("create-foo")
    ended = [started.wait() for started in [project.start("run", "--detach") for _ in range(3)]]
    assert sorted(one.code for one in ended) == [0, 2, 2], [one.text for one in ended]
    gate.touch()
    until(lambda: "done: all passed" in project.home.run_log.read_text(), "its last words are in the log")
    until(lambda: not goes_on(project.home), "it is over")


def test_a_run_waits_for_its_time_until_somebody_leaves(night: MakeNight) -> None:
    """Nothing is begun before; whoever attaches sees what it waits for; Ctrl-C is exit 3."""
    project = night(plays({"create-foo": makes("foo.txt")}))
    project.unit("create-foo")
    at = f"{datetime.now().astimezone() + timedelta(hours=2):%H:%M}"
    run = project.start("run", "--at", at)
    until(lambda: f"until {at}, 1 unit file" in run.out.read_text(), "it says so")
    attached = project.start("attach")
    until(lambda: f"until {at}" in attached.out.read_text(), "it is seen")
    attached.signal(signal.SIGINT)
    assert attached.wait().code == 0
    assert run.process.poll() is None
    assert project.night() == ""
    run.signal(signal.SIGINT)
    assert run.wait().code == 3
    assert project.calls("create-foo") == 0


def test_a_run_that_finds_nothing_to_do_ends_at_once(night: MakeNight) -> None:
    """Exit 0, as a timer wants it, without asking the model or waiting for anything."""
    project = night({"units": {}})
    began = time.monotonic()
    ended = project.overnight("run")
    assert (ended.code, "nothing to do" in ended.out) == (0, True), ended.text
    assert time.monotonic() - began < 10


def test_a_schedule_is_printed_and_written(night: MakeNight) -> None:
    """For this repository and this home; nothing is enabled, and no key is in it."""
    project = night({"units": {}})
    shown = project.overnight("schedule", "--at", "21:30")
    assert shown.code == 0, shown.text
    assert "OnCalendar=*-*-* 21:30:00" in shown.out
    assert f"30 21 * * * cd {project.root}" in shown.out
    assert f"OVERNIGHT_HOME={project.base}" in shown.out
    assert project.server.key not in shown.out
    assert "chmod 600), for systemd and cron alike: ANTHROPIC_API_KEY='…'" in shown.out
    folder = project.base.parent / ".config/systemd/user"
    assert not folder.exists()
    assert project.overnight("schedule", "--write").code == 0
    assert sorted(path.suffix for path in folder.iterdir()) == [".service", ".timer"]


def test_what_is_said_before_the_first_run_is_heard_by_it(night: MakeNight) -> None:
    """There is no night yet, and the words wait for it all the same; for nobody's unit they are refused."""
    project = night(plays({"create-foo": makes("foo.txt")}), config=QUICK)
    project.unit("create-foo")
    early = project.overnight("tell", "create-foo", "tabs, please")
    assert (early.code, early.out) == (0, "will be done by the next run\n"), early.text
    assert project.overnight("tell", "nobody", "hello").code == 2
    told = project.overnight("retry", "create-foo")
    assert (told.code, "it keeps its place" in told.out) == (0, True), told.text

    ended = project.overnight("run")

    assert ended.code == 0, ended.text
    assert said(project) == [("tell", True)]
    heard = [record for record in project.session("create-foo") if "tabs, please" in json.dumps(record.data)]
    assert heard
