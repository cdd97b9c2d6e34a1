"""`run --at`: what could not work is said while somebody is there, and a run that waits can be seen and called off."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from os import kill

import pytest
from night_stand import Project, makes, plays, until

from dispatcher.unattended.detached import goes_on
from worktrees.files import lock_holder

MakeNight = Callable[..., Project]
KEYLESS = {"ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": ""}


def later() -> str:
    return f"{datetime.now().astimezone() + timedelta(hours=2):%H:%M}"


@pytest.fixture
def project(night: MakeNight) -> Iterator[Project]:
    """A project with one good unit; nothing waits there when the test has ended."""
    made = night(plays({"create-foo": makes("foo.txt")}))
    made.unit("create-foo")
    with ExitStack() as opened:
        opened.enter_context(nobody_left(made))
        yield made


@contextmanager
def nobody_left(project: Project) -> Iterator[None]:
    """A run in the background is no child of the test, and would wait for hours."""
    try:
        yield
    finally:
        if goes_on(project.home):
            with suppress(ValueError, IndexError, ProcessLookupError):
                kill(int(lock_holder(project.home.run_lock).partition("pid ")[2].split()[0]), signal.SIGKILL)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda one: one.extra_env.update(KEYLESS), "ANTHROPIC_API_KEY"),
        (lambda one: one.unit("create-bar", after="nobody"), "nobody"),
    ],
    ids=["key", "after"],
)
def test_what_a_run_would_refuse_is_refused_before_it_waits(
    project: Project, spoil: Callable[[Project], object], words: str
) -> None:
    """With the exit code and the words of a plain run, also in the background; nothing waits afterwards."""
    spoil(project)
    plain = project.overnight("run")
    assert (plain.code, words in plain.err) == (2, True), plain.text
    said = plain.err.strip()
    waiting = project.overnight("run", "--at", later())
    assert (waiting.code, waiting.err.strip()) == (2, said)
    detached = project.overnight("run", "--detach", "--at", later())
    assert (detached.code, said in detached.text) == (2, True), detached.text
    assert not goes_on(project.home)


def test_a_price_that_is_none_is_refused_before_it_waits(project: Project) -> None:
    """What the command line says is looked at first."""
    refused = project.overnight("run", "--at", later(), "--price", "cheap")
    assert (refused.code, "--price" in refused.err) == (2, True), refused.text


def test_a_detached_run_that_waits_is_seen_and_called_off(project: Project) -> None:
    """`status` and `attach` say until when; a second run is refused; `stop` ends it, and nothing was begun."""
    at = later()
    begun = project.overnight("run", "--detach", "--at", at)
    assert begun.code == 0, begun.text
    assert f"waits until {at}" in project.overnight("status").out
    assert json.loads(project.overnight("status", "--json").out)["waits_until"] == at
    attached = project.start("attach")
    until(lambda: f"until {at}, 1 unit file" in attached.out.read_text(), "it is seen")
    for again in (("run", "--detach"), ("run", "--at", at)):
        refused = project.overnight(*again)
        assert (refused.code, f"waits until {at}" in refused.err) == (2, True), refused.text

    stopped = project.overnight("stop")

    assert (stopped.code, stopped.out) == (0, "done\n"), stopped.text
    until(lambda: not goes_on(project.home), "it is over")
    assert "stopped: asked to stop, before its time had come" in attached.wait().out
    assert list(project.home.dropbox.glob("*.json")) == []
    assert project.night() == ""
    assert project.server.units == {}
    assert json.loads(project.overnight("status", "--json").out)["waits_until"] == ""
    assert (project.overnight("stop").code, project.overnight("run").code) == (2, 0)


def test_called_off_in_json_with_exit_3(project: Project) -> None:
    """A script reads how it ended, as it does of any other run."""
    run = project.start("run", "--json", "--at", later())
    until(lambda: "waiting" in run.out.read_text(), "it waits")
    assert project.overnight("stop").code == 0
    ended = run.wait()
    last = json.loads(ended.out.splitlines()[-1])
    assert (ended.code, last["event"], last["code"], last["reason"]) == (3, "ended", 3, "stopped")


def test_a_forgotten_pause_is_said_at_every_start(project: Project) -> None:
    """By a run at once, by one that waits, by one in the background; it waits until somebody resumes."""
    assert project.overnight("pause").out == "will be done by the next run\n"
    words = "nothing is handed out until `overnight resume`"
    at = later()
    begun = project.overnight("run", "--detach", "--at", at)
    assert (begun.code, f"paused: {words}" in begun.out) == (0, True), begun.text
    assert words in project.home.run_log.read_text()
    assert f"paused: {words}" in project.overnight("status").out
    assert project.overnight("stop").code == 0
    until(lambda: not goes_on(project.home), "it is over")
    first = project.start("run")
    until(lambda: words in first.out.read_text(), "the run that journals it says so")
    first.signal(signal.SIGINT)
    assert first.wait().code == 3

    second = project.start("run")

    until(lambda: f"paused      {words}" in second.out.read_text(), "and the next one")
    assert project.calls("create-foo") == 0
    assert project.overnight("resume").out == "done\n"
    ended = second.wait()
    assert (ended.code, project.ids("passed")) == (0, ["create-foo"]), ended.text
