"""One night in which everything ordinary happens at once, looked at from all sides; then the answer in the morning."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from night_stand import (
    Ended,
    Project,
    Sampler,
    asks,
    bash,
    check_night,
    makes,
    orders,
    plays,
    project_with,
    says,
    until,
)

from dispatcher.journal import Asked, Edited, MergeFailed, Reported, Verified

UNITS = ("create-foo", "mend-it", "second-try", "never", "edit-one", "edit-two", "ask-me", "late", "typed", "holds")
CONFIG = """\
[verify]
run = "test -f README.md"
[merge]
verify = "test -f README.md && ! grep -q '<<<<' *"
[limits]
attempts = 2
rounds = 2
[engine]
beat = 0.2
lost_after = 15
fence = 1
"""


def script(gate: Path) -> dict[str, Any]:
    wrong = [bash("echo wrong > try.txt"), says("I think so.")]
    right = [bash("echo right > try.txt"), says("Now it is right.")]
    return plays(
        {
            "create-foo": makes("foo.txt", looks=1),
            "mend-it": [bash("echo wrong > mend.txt"), says("Done."), bash("echo right > mend.txt"), says("Mended.")],
            "second-try": {"steps": wrong, "attempts": {2: right}},
            "never": {
                "steps": [bash("echo wrong > never.txt"), says("?")],
                "attempts": {3: makes("never.txt", "right")},
            },
            "edit-one": {
                "attempts": {
                    1: [bash("sed -i s/line/one/ shared.txt"), says("One.")],
                    2: [bash("echo one >> shared.txt"), says("One.")],
                }
            },
            "edit-two": {
                "attempts": {
                    1: [bash("sed -i s/line/two/ shared.txt"), says("Two.")],
                    2: [bash("echo two >> shared.txt"), says("Two.")],
                }
            },
            "ask-me": [bash("echo v1 > ask.txt"), asks("Keep the v1 endpoint?"), says("Kept.")],
            "late": makes("late.txt"),
            "typed": makes("typed.txt"),
            "holds": [bash(f"until test -f '{gate}'; do sleep 0.05; done"), *makes("holds.txt")],
        }
    )


def write_units(project: Project) -> None:
    quoted = "'test \"$(cat {})\" = right'"
    project.unit("create-foo")
    project.unit("mend-it", quoted.format("mend.txt"))
    project.unit("second-try", quoted.format("try.txt"), limits="{rounds: 1}")
    project.unit("never", quoted.format("never.txt"), limits="{rounds: 1}")
    project.unit("edit-one", "grep -q one shared.txt")
    project.unit("edit-two", "grep -q two shared.txt")
    project.unit("ask-me", "test -f ask.txt")
    project.unit("late", "test -f foo.txt && test -f late.txt", after="create-foo")
    project.unit("holds")
    project.queue(*(f"{unit}: Write typed.txt" if unit == "typed" else unit for unit in UNITS))


@dataclass
class Looks:
    """What was seen of the night, when."""

    project: Project
    sampler: Sampler
    dirt: str = ""
    during: dict[str, Ended] = field(default_factory=dict)
    flower: dict[str, Any] = field(default_factory=dict)
    flower_refused: int = 0
    password_in_ps: bool = True
    first: Ended = field(default_factory=lambda: Ended(-1, "", ""))
    first_state: dict[str, list[str]] = field(default_factory=dict)
    first_notes: dict[str, str] = field(default_factory=dict)
    after_first: dict[str, Ended] = field(default_factory=dict)
    calls_before: int = 0
    asked: list[Ended] = field(default_factory=list)
    second: Ended = field(default_factory=lambda: Ended(-1, "", ""))
    last: Ended = field(default_factory=lambda: Ended(-1, "", ""))


@pytest.fixture(scope="module")
def looks(module_folder: Path) -> Iterator[Looks]:
    gate = module_folder / "gate"
    with project_with(module_folder, script(gate), name="Projekt ünïcode 夜", config=CONFIG) as project:
        project.write("shared.txt", "line\n")
        project.git("add", "shared.txt")
        project.git("commit", "-q", "-m", "shared")
        write_units(project)
        project.write("README.md", "# Edited by hand, not committed\n")
        project.write("notes/mine.txt", "untracked\n")
        seen = Looks(project, Sampler(project.state_path, frozenset(UNITS)))
        seen.dirt = dirt(project)
        with seen.sampler.looking():
            first_run(seen, gate)
            second_run(seen)
        yield seen


def dirt(project: Project) -> str:
    status = project.git("status", "--porcelain", "-uall", "--", ":!.overnight")
    contents = [project.root.joinpath(name).read_text() for name in ("README.md", "notes/mine.txt", "shared.txt")]
    return "\n".join([status, *contents, project.git("rev-parse", "HEAD"), project.git("symbolic-ref", "HEAD")])


def first_run(seen: Looks, gate: Path) -> None:
    project = seen.project
    run = project.start("run", "-j", "10", "--flower", "--json")
    until(lambda: len(project.ids("passed")) == 7 and len(project.ids("blocked")) == 2, "all but the one that holds")
    for words in (
        ("status", "--json"),
        ("status",),
        ("report", "--json"),
        ("log", "holds"),
        ("log", "ask-me", "--json"),
    ):
        seen.during[" ".join(words)] = project.overnight(*words)
    address = next(line["text"] for line in lines_of(run.out.read_text()) if line.get("event") == "flower")
    seen.flower_refused = flower(address, with_password=False)[0]
    seen.password_in_ps = (urlsplit(address).password or "").encode() in b"".join(command_lines())
    seen.flower = until(lambda: whole(flower(address)[1]), "Flower knows every unit")
    gate.touch()
    seen.first = run.wait()
    seen.first_state = {bucket: project.ids(bucket) for bucket in ("open", "tried", "passed", "blocked")}
    seen.first_notes = {unit: project.state().note_of(unit) for unit in project.ids("blocked")}
    seen.after_first = {
        what: project.overnight(*what.split()) for what in ("status --json", "report", "report --json", "log never")
    }


def second_run(seen: Looks) -> None:
    project = seen.project
    seen.calls_before = project.calls("ask-me")
    seen.asked = [
        project.overnight("answer", "ask-me", "Keep it, for now."),
        project.overnight("answer", "create-foo", "Nobody asked."),
        project.overnight("retry", "never"),
        project.overnight("retry", "create-foo"),
    ]
    seen.second = project.overnight("run", "-j", "2")
    seen.last = project.overnight("run")


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def command_lines() -> Iterator[bytes]:
    """What everybody on this machine can read of every process."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield (process / "cmdline").read_bytes()


def flower(address: str, *, with_password: bool = True) -> tuple[int, dict[str, Any]]:
    parts = urlsplit(address)
    request = urllib.request.Request(f"http://{parts.hostname}:{parts.port}/api/tasks")
    if with_password:
        request.add_header(
            "Authorization", "Basic " + b64encode(f"{parts.username}:{parts.password}".encode()).decode()
        )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code, {}
    except OSError:
        return 0, {}


def whole(tasks: dict[str, Any]) -> dict[str, Any]:
    return tasks if {name.split(".")[1] for name in tasks} == set(UNITS) else {}


# -- how it ended -----------------------------------------------------------------------------------------------------


def test_the_run_ends_with_1_because_a_person_is_needed(looks: Looks) -> None:
    """Seven pass at once or on a second try, the rest waits in `blocked` with its reason."""
    assert looks.first.code == 1, looks.first.text
    assert sorted(looks.first_state["passed"]) == sorted(set(UNITS) - {"never", "ask-me"})
    assert sorted(looks.first_state["blocked"]) == ["ask-me", "never"]
    assert looks.first_state["open"] == looks.first_state["tried"] == []
    assert looks.first_notes["ask-me"] == "Keep the v1 endpoint?"
    assert looks.first_notes["never"].startswith("2 attempts used up")


def test_what_passed_is_on_the_merged_branch_and_tested_there(looks: Looks) -> None:
    """Every passed unit once, the tip verified by every distinct verify, the files as the units left them."""
    project = looks.project
    check_night(project, UNITS)
    branch = f"overnight/{project.night()}/merged"
    assert {"foo.txt", "mend.txt", "late.txt"} <= set(project.git("ls-tree", "--name-only", branch).splitlines())
    shared = project.git("show", f"{branch}:shared.txt")
    assert "one" in shared
    assert "two" in shared
    tree = project.git("rev-parse", f"{branch}^{{tree}}")
    verified = {entry.command for entry in project.journal(Verified) if entry.tree == tree and entry.passed}
    assert "grep -q one shared.txt" in verified
    assert "grep -q two shared.txt" in verified


def test_the_main_checkout_is_never_touched(looks: Looks) -> None:
    """Uncommitted work, untracked files and the branch that is checked out are as they were."""
    assert dirt(looks.project) == looks.dirt
    worktrees = looks.project.git("worktree", "list", "--porcelain")
    assert worktrees.count("worktree ") == 1, worktrees


def test_at_every_moment_the_state_file_tells_the_truth(looks: Looks) -> None:
    """It parses, `grep` agrees with the parsed file, every unit is in exactly one bucket, revisions only grow."""
    assert looks.sampler.wrong == []
    revisions = [int(text.split("rev ")[1].split(".")[0]) for text in looks.sampler.texts if "rev " in text]
    assert len(set(revisions)) > 5
    assert revisions == sorted(revisions)


# -- rounds, attempts, conflicts, order -------------------------------------------------------------------------------


def test_a_failed_verify_is_the_next_turns_message(looks: Looks) -> None:
    """Within one attempt: verify's output goes to the model, which mends its work."""
    goal, verify = looks.project.messages("mend-it")
    assert "unit: mend-it" in goal
    assert "failed with exit code 1" in verify
    assert looks.project.count("mend-it", "verify/result") == 2


def test_a_second_attempt_is_told_what_failed(looks: Looks) -> None:
    """The first attempt goes to `tried` with its count, the next is a fresh context that knows why."""
    assert any("- second-try  " in text and "(1 of 2)" in text.split("## passed")[0] for text in looks.sampler.texts)
    (first,) = looks.project.messages("second-try", 1)
    (second,) = looks.project.messages("second-try", 2)
    assert "Earlier attempts did not pass" not in first
    assert "Earlier attempts did not pass:\n- attempt 1:" in second
    assert orders(looks.project).count(("second-try", 2, 1)) == 1


def test_of_two_units_that_touch_the_same_line_one_is_done_again_on_the_new_base(looks: Looks) -> None:
    """The conflict is a note, costs no verify failure, and the next attempt starts from what was merged."""
    failed = looks.project.journal(MergeFailed)
    assert [entry.why for entry in failed] == ["conflict"]
    (loser,) = failed
    assert loser.unit in ("edit-one", "edit-two")
    assert loser.note == "merge conflict in shared.txt"
    bases = {
        entry.attempt: entry.base
        for entry in looks.project.journal()
        if entry.type == "order" and entry.unit == loser.unit
    }
    assert set(bases) == {1, 2}
    winner = "one" if loser.unit == "edit-two" else "two"
    assert looks.project.git("show", f"{bases[1]}:shared.txt") == "line"
    assert looks.project.git("show", f"{bases[2]}:shared.txt") == winner
    assert "merge conflict in shared.txt" in looks.project.messages(loser.unit, 2)[0]


def test_a_unit_that_waits_for_another_starts_from_what_that_one_made(looks: Looks) -> None:
    """`after` holds the order back until the other is merged, and the base holds it."""
    entries = looks.project.journal()
    kinds = [(entry.type, getattr(entry, "unit", "")) for entry in entries]
    assert kinds.index(("order", "late")) > kinds.index(("merge/done", "create-foo"))
    base = next(entry.base for entry in entries if entry.type == "order" and entry.unit == "late")
    assert looks.project.git("cat-file", "-t", f"{base}:foo.txt") == "blob"


def test_a_goal_typed_into_the_state_file_becomes_a_unit(looks: Looks) -> None:
    """Its goal moves to a unit file, the line keeps its id alone, and it passes under the config's verify."""
    assert "Write typed.txt" in (looks.project.root / ".overnight/units/typed.md").read_text()
    assert "typed:" not in looks.project.state_path.read_text()
    assert "Write typed.txt" in looks.project.messages("typed")[0]


# -- looking on -------------------------------------------------------------------------------------------------------


def test_status_report_and_log_answer_while_a_run_goes_on(looks: Looks) -> None:
    """From the files alone, with what is in flight."""
    during = looks.during
    assert {what: ended.code for what, ended in during.items()} == dict.fromkeys(during, 0)
    status = json.loads(during["status --json"].out)
    assert status["in_flight"] == ["holds"]
    assert status["buckets"]["open"] == ["holds"]
    assert "holds  (at work)" in during["status"].out
    assert json.loads(during["report --json"].out)["questions"] == {"ask-me": "Keep the v1 endpoint?"}
    assert "holds" in during["log holds"].out
    assert lines_of(during["log ask-me --json"].out)[0]["type"] == "session/start"


def test_the_report_says_what_a_person_must_do(looks: Looks) -> None:
    """The question with the command that answers it, and what used up its attempts."""
    report = looks.after_first["report"].out
    assert "8 passed and merged" in report
    assert '"Keep the v1 endpoint?"  → overnight answer ask-me' in report
    assert "never  2 attempts used up" in report
    assert "not verified: nothing" in report
    facts = json.loads(looks.after_first["report --json"].out)
    assert facts["tip"] == looks.project.git("rev-parse", f"{facts['branch']}") or looks.second.code == 0
    assert "attempt 2 of 2" in looks.after_first["log never"].out


def test_json_output_is_one_object_a_line(looks: Looks) -> None:
    """Each with its time; the events name what happened."""
    lines = lines_of(looks.first.out)
    assert all("time" in line for line in lines[:-1])
    assert lines[-1] == {"event": "ended", "code": 1, "reason": "done", "detail": "some did not pass, or need you"}
    assert {"preflight", "order", "report", "tip"} <= {line.get("event") for line in lines}


def test_every_unit_that_passed_is_told_of_once(looks: Looks) -> None:
    """Whenever in a tick its merge ended."""
    told = [line["text"] for line in lines_of(looks.first.out) if line.get("event") == "passed"]
    assert sorted(told) == sorted(looks.first_state["passed"])
    assert len(told) == 8


def test_flower_shows_every_unit_under_its_readable_id(looks: Looks) -> None:
    """With the printed password, which no command line shows: live turn, step and cost; without it nothing."""
    assert looks.flower_refused == 401
    assert not looks.password_in_ps
    night = looks.project.night()
    assert {f"{night}.{unit}.1.1" for unit in UNITS} <= set(looks.flower)
    holds = looks.flower[f"{night}.holds.1.1"]
    assert holds["state"] not in ("SUCCESS", "FAILURE", "PENDING")
    assert holds["result"].startswith("turn 1 step 1 $0.")


# -- the morning ------------------------------------------------------------------------------------------------------


def test_an_answer_lets_the_same_session_go_on_with_one_call(looks: Looks) -> None:
    """No new attempt, no call asked again: the answer is the tool's result, and the turn goes on."""
    project = looks.project
    assert project.calls("ask-me") == looks.calls_before + 1
    assert [order for order in orders(project) if order[0] == "ask-me"] == [("ask-me", 1, 1), ("ask-me", 1, 2)]
    assert project.count("ask-me", "session/start") == 1
    body = [record.body for record in project.server.requests if record.unit == "ask-me"][-1]
    assert body is not None
    assert "Keep it, for now." in json.dumps(body["messages"][-1])


def test_a_retry_gives_a_unit_its_attempts_back(looks: Looks) -> None:
    """In a fresh context that knows what was tried before."""
    assert [order for order in orders(looks.project) if order[0] == "never"] == [
        ("never", 1, 1),
        ("never", 2, 1),
        ("never", 3, 1),
    ]
    assert "attempt 2:" in looks.project.messages("never", 3)[0]


def test_requests_that_make_no_sense_are_refused_at_once(looks: Looks) -> None:
    """An answer that nobody asked for, a retry of what has passed: exit 2, and nothing is in the journal."""
    assert [ended.code for ended in looks.asked] == [0, 2, 0, 2]
    assert "create-foo has asked nothing" in looks.asked[1].err
    assert "create-foo has passed" in looks.asked[3].err
    asked = [(entry.request["kind"], entry.request["unit"], entry.obeyed) for entry in looks.project.journal(Asked)]
    assert asked == [("answer", "ask-me", True), ("retry", "never", True)]


def test_the_second_run_ends_with_0_and_a_third_has_nothing_to_do(looks: Looks) -> None:
    """All passed; nothing is handed out again, and nothing is asked of a model."""
    assert looks.second.code == 0, looks.second.text
    assert sorted(looks.project.ids("passed")) == sorted(UNITS)
    assert looks.last.code == 0, looks.last.text


def test_every_report_was_journalled_once(looks: Looks) -> None:
    """Whatever Redis delivered twice, the journal has each hand-out's report once; nobody edited the state file."""
    reports = [entry.report.task_id for entry in looks.project.journal(Reported)]
    assert len(reports) == len(set(reports))
    assert looks.project.journal(Edited) == []


def test_git_finds_nothing_broken(looks: Looks) -> None:
    """`git fsck` is content, and the branch of every attempt that people see is there."""
    done = subprocess.run(
        ["git", "-C", str(looks.project.root), "fsck", "--strict"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    branches = looks.project.git("branch", "--format=%(refname:short)").splitlines()
    assert f"overnight/{looks.project.night()}/unit/create-foo.1" in branches
