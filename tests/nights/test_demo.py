"""`overnight demo`: one whole night for real, and the judges of it on their own."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from click.testing import CliRunner

from dispatcher.cli import demo
from dispatcher.demo.checks import PASSED, check
from dispatcher.demo.performance import perform
from dispatcher.demo.requests import Rebuilt, asked_twice, differences, is_prefix, rebuild
from dispatcher.journal import Lost, read_journal
from workers.rehearsal import Record
from workers.session.session import read_session


class Silence:
    def evening(self, state):
        self.state = state

    def said(self, line):
        """Nobody looks on."""

    def did(self, line):
        """Nobody looks on."""


def test_the_night_goes_as_told(tmp_path, monkeypatch):
    """A night with a killed worker, a conflict and a question ends as told, and its logs are the source of it all."""
    root = tmp_path / "stage"
    root.mkdir()
    audience = Silence()
    night = perform(root, audience)
    assert [one for one in check(night) if not one.ok] == []
    assert night.killed is not None
    assert night.answered
    assert audience.state.count("\n- ") == 8
    _each_request_follows_from_its_log(night)
    _a_kill_costs_at_most_one_answer_a_unit(night)
    _the_command_says_how_it_went(night, monkeypatch)


def _each_request_follows_from_its_log(night):
    folder = night.stage.home.night(night.night) / "units"
    paths = sorted(folder.glob("*/*/session.jsonl"))
    assert len(paths) == len(PASSED) + 3  # split-bill's two attempts, and the second one of discount-coupon
    for path in paths:
        unit, attempt = path.parent.parent.name, int(path.parent.name)
        received = [one.body for one in night.requests if (one.unit, one.attempt) == (unit, attempt)]
        from_the_log = [one.body for one in rebuild(read_session(path))]
        assert received
        for body in received:
            parts = {name: body[name] for name in ("system", "tools", "messages")}
            assert any(parts == {name: one[name] for name in parts} for one in from_the_log)
        for earlier, later in pairwise(received):
            assert is_prefix(earlier, later)


def _a_kill_costs_at_most_one_answer_a_unit(night):
    lost = [entry for _, entry in read_journal(night.stage.home.journal(night.night)) if isinstance(entry, Lost)]
    assert 1 <= asked_twice(night.requests) <= len({entry.unit for entry in lost if entry.claimed})


def _the_command_says_how_it_went(night, monkeypatch):
    monkeypatch.setattr(demo, "perform", lambda _root, _audience: night)
    told = CliRunner().invoke(demo.command, ["--json"])
    assert (told.exit_code, json.loads(told.output)["ok"]) == (0, True)
    monkeypatch.setattr(demo, "perform", lambda _root, _audience: replace(night, exit_code=0))
    otherwise = CliRunner().invoke(demo.command, ["--json"])
    facts = json.loads(otherwise.output)
    assert (otherwise.exit_code, facts["ok"]) == (1, False)
    assert [one["differs"] for one in facts["checks"] if not one["ok"]] == ["exit code 0"]


def _request(*texts, **others):
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]} for text in texts], **others}


def test_a_request_that_is_not_in_the_log_is_named():
    """A received request that no step of the log gives is a difference, with the parts that no step has."""
    log = [Rebuilt(_request("a", model="m"), answered=True)]
    assert differences(log, [_request("a", model="m"), _request("b", model="m")]) == [
        "request 2 is not in the log (messages)"
    ]


def test_an_answered_step_must_have_been_asked():
    """A step with an answer whose request nobody received is a difference; one without an answer may be none."""
    log = [Rebuilt(_request("a"), answered=False), Rebuilt(_request("a", "b"), answered=True)]
    assert differences(log, [_request("a", "b")]) == []
    assert differences(log, [_request("a")]) == ["step 2: the request in the log was never received"]


def test_asking_the_same_again_is_no_difference():
    """A request that was sent again, because its first answer was cut off, follows from the same step."""
    log = [Rebuilt(_request("a"), answered=True)]
    assert differences(log, [_request("a"), _request("a")]) == []


@pytest.mark.parametrize(("later", "is_one"), [(("a", "b"), True), (("a",), True), (("b", "a"), False), ((), False)])
def test_only_adding_keeps_the_prefix(later, is_one):
    """Messages that were sent must begin the later ones; `cache_control` may move."""
    earlier = _request("a")
    earlier["messages"][0]["content"][0]["cache_control"] = {"type": "ephemeral"}
    assert is_prefix(earlier, _request(*later)) is is_one


def test_an_answer_asked_for_again_counts_once_each_time():
    """The same step of the same attempt counts as asked twice, even when the request looks different."""
    asked = [("a", 1, 0), ("a", 1, 1), ("a", 1, 1), ("b", 1, 0), ("a", 2, 0), ("a", 1, 1)]
    records = [
        Record(n=1, time=0, path="", headers={}, unit=unit, attempt=attempt, step=step, request_hash=str(number))
        for number, (unit, attempt, step) in enumerate(asked)
    ]
    assert asked_twice(records) == 2
