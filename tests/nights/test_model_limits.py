"""Nights that meet limits of the model: a rate limit pauses the fleet, a spend limit ends hand-out, prices are told."""

from __future__ import annotations

from collections.abc import Callable

from night_stand import QUICK, Project, bash, check_night, makes, orders, plays, says, until

MakeNight = Callable[..., Project]
EIGHT = tuple(f"unit-{number}" for number in range(8))
PAUSE = 6.0
"""Seconds of `retry-after`: far more than a pause needs to be known everywhere, far less than a person's patience."""


def test_one_429_pauses_eight_workers_together(night: MakeNight) -> None:
    """At most one request arrives during the pause, whichever process met the limit; no attempt or loss comes of it."""
    steps = {unit: makes("made.txt", looks=25, latency=0.1) for unit in EIGHT}
    limited = {"status": 429, "headers": {"retry-after": str(PAUSE)}}
    steps["unit-3"][12] = bash("ls", latency=0.1, fault=limited)
    project = night(plays(steps))
    for unit in EIGHT:
        project.unit(unit, "test -f made.txt")

    run = project.start("run", "-j", "8")
    until(lambda: any(record.status == 429 for record in project.server.requests), "a limit is met")
    shown = project.overnight("status")
    ended = run.wait()

    assert "waits for the model" in shown.out
    assert "waiting     for the model's limits" in ended.out

    assert ended.code == 0, ended.text
    assert sorted(project.ids("passed")) == list(EIGHT)
    check_night(project, EIGHT)
    assert orders(project) == [(unit, 1, 1) for unit in EIGHT]
    (at,) = [record.finished for record in project.server.requests if record.status == 429]
    assert at is not None
    arrived = [record.time - at for record in project.server.requests]
    assert sum(0.3 < moment < PAUSE for moment in arrived) <= 1
    assert any(moment < 0 for moment in arrived)
    assert sum(moment >= PAUSE for moment in arrived) > 8 * 5  # all of them had much left to do


def test_a_spend_limit_ends_the_hand_out(night: MakeNight) -> None:
    """Exit 3 with the reason; no attempt is spent, nothing more is handed out; the next run goes on where it was."""
    reached = {"status": 429, "code": "enforced_spend_limit_reached", "message": "the workspace has no money left"}
    steps = [bash("ls"), bash("touch made.txt", fault=reached), says("Done.")]
    project = night(plays({"unit-1": steps, "unit-2": makes("made.txt"), "unit-3": makes("made.txt")}))
    for unit in ("unit-1", "unit-2", "unit-3"):
        project.unit(unit, "test -f made.txt")

    ended = project.overnight("run", "-j", "1")

    assert ended.code == 3, ended.text
    assert "spend limit is reached" in ended.out
    assert "no money left" in ended.out
    assert project.ids("open") == ["unit-1", "unit-2", "unit-3"]
    assert project.calls("unit-2") == 0

    assert project.overnight("run", "-j", "1").code == 0
    assert [order[1] for order in orders(project)] == [1, 1, 1, 1]
    assert project.ids("passed") == ["unit-1", "unit-2", "unit-3"]


def test_an_unknown_price_needs_to_be_told(night: MakeNight) -> None:
    """A money limit refuses to start without it, at no cost; `--price` is enough, and what was spent is exact."""
    usage = {"usage": {"input_tokens": 100_000, "output_tokens": 10_000}}
    script = plays({"unit-1": [bash("touch made.txt", **usage), says("Done.", **usage)]}, models={"own-model": {}})
    project = night(script, config=f'{QUICK}[model]\nname = "own-model"\n')
    project.unit("unit-1", "test -f made.txt")

    refused = project.overnight("run")
    assert refused.code == 2
    assert "--price IN/OUT" in refused.err
    assert project.calls("unit-1") == 0
    wrong = project.overnight("run", "--price", "cheap")
    assert wrong.code == 2
    assert '"3/15"' in wrong.err

    ended = project.overnight("run", "--price", "5/20")
    assert ended.code == 0, ended.text
    assert "$1.4" in ended.out  # twice half a dollar in and a fifth of one out, and what the cache wrote
