"""The commands that look back at nights which are over: prune, log, replay and fsck, on files without a run."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from old_nights import COST, OldNight, session

from dispatcher.cli import overnight
from dispatcher.errors import BadInput, DispatcherError, WriterLocked
from dispatcher.home import Home
from dispatcher.shown.log_view import LogView
from workers.closed import packed
from workers.session import events as ev
from worktrees.files import FileLock

NIGHT = "1130-old"


class Place:
    """A repository that is looked at, with one finished night behind it."""

    def __init__(self, root: Path, base: Path) -> None:
        self.home = Home.for_repository(root / ".git", {"OVERNIGHT_HOME": str(base)}, root)
        self.old = OldNight(self.home, NIGHT).passed()

    def __call__(self, *words: str, told: str = "") -> Result:
        return CliRunner().invoke(overnight, list(words), input=told)

    def refused(self, kind: type[DispatcherError], *words: str) -> str:
        done = self(*words)
        assert isinstance(done.exception, kind), done.output
        return str(done.exception)

    @property
    def session(self) -> Path:
        return self.home.session(NIGHT, "a", 1)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    root = tmp_path / "repository"
    root.mkdir()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("OVERNIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(root)
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    as_somebody = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run([*as_somebody, "commit", "--quiet", "--allow-empty", "--message", "start"], check=True)
    return Place(root, tmp_path / "home")


def test_prune_compresses_lists_asks_and_deletes(place: Place) -> None:
    """A no leaves everything readable, a yes deletes what was listed and nothing else."""
    no = place("prune", "--sessions-older-than", "0d", told="n\n")
    assert "compressed 1 session logs" in no.output
    assert f"would be lost:\n  {NIGHT}  Ours  1 units passed" in no.output
    assert "1 sessions, idle for 0 days" in no.output
    assert no.exit_code == 1  # click's own; the boundary makes a 3 of an abort
    assert packed(place.session).exists()
    yes = place("prune", "--sessions-older-than", "0d", "--yes")
    assert (yes.exit_code, yes.output.splitlines()[-1]) == (0, "deleted")
    assert not packed(place.session).exists()
    assert place.home.journal(NIGHT).exists()
    place("prune", "--sessions-older-than", "0d", "--journals-older-than", "0d", "--yes")
    assert place.home.all_nights() == []


def test_prune_keeps_what_the_config_says(place: Place, tmp_path: Path) -> None:
    """Thirty and a hundred and eighty days, unless the config has other periods."""
    assert "nothing to prune" in place("prune").output
    config = tmp_path / "repository" / ".overnight" / "config.toml"
    config.parent.mkdir()
    config.write_text('[keep]\nsessions = "0d"\njournals = "1d"\n')
    assert place("prune", "--yes").output.splitlines()[-1] == "deleted"


def test_prune_refuses_what_makes_no_sense(place: Place) -> None:
    """Journals before their sessions, periods that are none, and while a run may be writing."""
    assert "never deleted before its sessions" in place.refused(BadInput, "prune", "--journals-older-than", "1d")
    wrong = place("prune", "--sessions-older-than", "soon")
    assert (wrong.exit_code, '"30d"' in wrong.output) == (2, True)
    with FileLock(place.home.writer_lock):
        assert "is held by" in place.refused(WriterLocked, "prune")


def test_an_old_nights_sessions_can_be_read_when_compressed(place: Place) -> None:
    """By log, replay and fsck alike."""
    plain = [place(what, "a", "--night", NIGHT).output for what in ("log", "replay")]
    place("prune")
    assert packed(place.session).exists()
    again = [place(what, "a", "--night", NIGHT).output for what in ("log", "replay")]
    assert again == plain
    assert "report      pass" in again[0]
    assert place("fsck").exit_code == 1  # the merge is made up: its commit is not here
    assert f"a passed as {'e' * 8}" in place("fsck").output


def test_replay_says_which_request_differs(place: Place) -> None:
    """Exit 1, a line for the step; and the step's request as JSON."""
    done = place("replay", "a", "--night", NIGHT)
    assert done.exit_code == 1
    assert "    4  turn 1  step 1  differs: sent r, the log gives " in done.output
    row = json.loads(place("replay", "a", "--night", NIGHT, "--json").output)
    assert (row["ok"], row["recorded"]) == (False, "r")
    asked = json.loads(place("replay", "a", "--night", NIGHT, "--step", "1").output)
    assert asked["messages"][0]["role"] == "user"
    assert "has no step 2" in place.refused(BadInput, "replay", "a", "--night", NIGHT, "--step", "2")


def test_what_is_not_there_is_named(place: Place) -> None:
    """A night, a unit, an attempt, a turn."""
    assert "there is no night '../x'" in place.refused(BadInput, "log", "a", "--night", "../x")
    assert "has no session in night" in place.refused(BadInput, "log", "b", "--night", NIGHT)
    assert "cannot be a unit" in place.refused(BadInput, "log", "../a", "--night", NIGHT)
    assert "has no attempt 2; there are 1" in place.refused(BadInput, "log", "a", "--night", NIGHT, "--attempt", "2")
    assert "has no turn 7; there are 1" in place.refused(BadInput, "log", "a", "--night", NIGHT, "--turn", "7")


def test_fsck_finds_damage(place: Place) -> None:
    """Exit 2 for what cannot be read; a state file that is broken is named with its line."""
    place.session.write_bytes(place.session.read_bytes().replace(b'"turn":1', b'"turn":2', 1))
    done = place("fsck")
    assert done.exit_code == 2
    assert f"{place.session}: line 3 (byte " in done.output
    state = Path(".overnight/state.md")
    state.parent.mkdir()
    state.write_text("## tried\n")
    assert ".overnight/state.md: line 1: " in place("fsck").output


def test_fsck_rebuilds_the_state_file_of_the_last_night(place: Place) -> None:
    """Where the file is gone; not while a run holds the lock."""
    with FileLock(place.home.writer_lock):
        assert "is held by" in place.refused(WriterLocked, "fsck", "--rebuild-state")
    assert not Path(".overnight/state.md").exists()
    assert f"is that of night {NIGHT}, rev 3" in place("fsck", "--rebuild-state").output
    assert f"Night {NIGHT}, rev 3" in Path(".overnight/state.md").read_text()


def test_what_the_model_sees_no_longer_is_marked(place: Place) -> None:
    """A `~` stands before what a compaction took away, and a `+` for the number of what closes a cut-off turn."""
    told = session("a", "fail", 2, NIGHT)
    place.old.log("a", 2, [*told[:7], ev.Compaction(summary="Short.", steps=1)])
    lines = place("log", "a", "--night", NIGHT).output.splitlines()
    assert any(line.startswith("    5  ~") for line in lines)
    assert not any(line.startswith("    3  ~") for line in lines)  # the first message stays
    assert "    +  turn end    interrupted: closed after a crash" in lines


def shown(view: LogView, events: list[Any]) -> list[str]:
    now = datetime.now(UTC).isoformat()
    return [line for seq, event in enumerate(events) for line in view.lines(event, seq, now)]


def test_a_fork_costs_what_it_did_itself() -> None:
    """The total leaves out what was copied; the turns that can be shown do not."""
    view = LogView(as_json=False)
    told = session("a", "fail")
    shown(view, [*told[:6], ev.SessionFork(source=1, at=6, attempt=2), ev.TurnStart(turn=2), *told[4:]])
    assert view.total().split() == ["total", "1", "turn", "1", "step", f"${COST:.4f}"]
    assert view.turns == [1, 2]


def test_one_turn_is_shown_with_what_followed_it() -> None:
    """And nothing of another one; an unknown price is not a zero."""
    view = LogView(as_json=True, turn=2)
    told = session("a", "fail")
    unpriced = told[5].model_copy(update={"cost": None})
    lines = shown(view, [*told[:8], ev.TurnStart(turn=2), unpriced, ev.TurnEnd(turn=2, reason="completed"), told[8]])
    assert [json.loads(line)["seq"] for line in lines] == [8, 9, 10, 11]
    assert view.total().endswith("price unknown")


def test_nothing_that_a_model_says_reaches_the_terminal_or_leaves_the_runtime() -> None:
    """Control characters, in a tool's name too, and raw reasoning."""
    block = {"type": "tool_use", "id": "c", "name": "x\x1b]0;y\x07", "input": {"command": "\x9b31m"}}
    answer = ev.AssistantMessage(content=[{"type": "thinking", "thinking": "secret"}, block], stop_reason="tool_use")
    plain = "".join(shown(LogView(as_json=False), [answer]))
    as_json = "".join(shown(LogView(as_json=True), [answer]))
    for text in (plain, as_json):
        assert not any(char in text for char in "\x1b\x07\x9b")
        assert "secret" not in text
