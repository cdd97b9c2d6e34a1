"""A project, the real `overnight` command on it, and the model's part played from a script: what nights need."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from dispatcher.home import Home
from dispatcher.journal import MergeDone, Ordered, Reported, RunStarted, read_journal
from dispatcher.state import Bucket, State, parse, read
from workers.log import read as read_log
from workers.rehearsal import RehearsalServer, Script, running

OVERNIGHT = Path(sys.executable).with_name("overnight")
INJECTED = Path(__file__).with_name("injected")
"""On PYTHONPATH it makes a night's own processes die at named calls, or their clocks jump."""
PATIENCE = 120.0
"""Seconds until a run that should have ended is a failure: far more than it takes, machines are noisy."""

SHARED = "[engine]\nbeat = 0.2\nlost_after = 15\nfence = 1\n"
"""Losses are noticed after three seconds instead of ten; the slots are shared among as many processes as usual."""
QUICK = f"{SHARED}processes = 1\n"
"""The same with one worker process, for nights in which nobody dies: another one takes two seconds of CPU to start."""

NAMES = ("create-foo", "create-bar", "create-baz", "create-qux", "create-quux")
_OURS = ("GIT_", "ANTHROPIC_", "OVERNIGHT_", "XDG_")


# -- what the model answers ---------------------------------------------------------------------------------------


def bash(command: str, **more: Any) -> dict[str, Any]:
    """A step that runs a command."""
    return {"blocks": [{"tool": "bash", "input": {"command": command}}], **more}


def says(text: str, **more: Any) -> dict[str, Any]:
    """A step that ends the turn."""
    return {"blocks": [{"text": text}], **more}


def asks(question: str) -> dict[str, Any]:
    """A step that asks a person."""
    return {"blocks": [{"tool": "ask", "input": {"question": question}}]}


def makes(path: str, text: str = "made", *, looks: int = 0, **more: Any) -> list[dict[str, Any]]:
    """The steps of a unit that looks around for some steps, writes a file, and says so."""
    return [*[bash("ls", **more) for _ in range(looks)], bash(f"echo {text} > {path}", **more), says("Done.", **more)]


def plays(units: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A script: for each unit its steps, or a mapping with `steps` and `attempts`."""
    return {
        "units": {unit: steps if isinstance(steps, dict) else {"steps": steps} for unit, steps in units.items()}
    } | more


# -- the project and its command ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All that it said."""
        return self.out + self.err


@dataclass
class Started:
    """A command that goes on in the background; its output is in files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def wait(self, seconds: float = PATIENCE) -> Ended:
        """Return how it ended."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"still running after {seconds} s:\n{self.out.read_text()}") from None
        return Ended(code, self.out.read_text(), self.err.read_text())

    def signal(self, number: int) -> None:
        """Send a signal to the command alone."""
        os.kill(self.process.pid, number)

    def kill(self) -> Ended:
        """End it as a crash would."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@dataclass
class Project:
    """A repository with units, its home, and the server that plays the model."""

    root: Path
    base: Path  # OVERNIGHT_HOME
    server: RehearsalServer
    extra_env: dict[str, str] = field(default_factory=dict)
    _started: list[Started] = field(default_factory=list)

    # setting up

    def git(self, *args: str) -> str:
        """Run git as a person would, and return what it printed."""
        done = subprocess.run(
            ["git", "-C", str(self.root), *args], env=_git_env(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def write(self, path: str, text: str) -> Path:
        """Write a file of the checkout."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def config(self, text: str) -> None:
        """Write the config."""
        self.write(".overnight/config.toml", text)

    def unit(self, name: str, verify: str | None = None, **front: str) -> Path:
        """Write a unit file; without a verify it must create the file named by the last word of its id."""
        lines = {"verify": verify or f"test -f {made_by(name)}", **front}
        matter = "".join(f"{key}: {value}\n" for key, value in lines.items())
        path = self.write(f".overnight/units/{name}.md", f"---\n{matter}---\n\nDo {name}.\n")
        now = time.time_ns()  # finer than the file system's clock: the order in which units are written is the queue's
        os.utime(path, ns=(now, now))
        return path

    def queue(self, *units: str) -> None:
        """Write a state file by hand, as somebody who wants an order does."""
        lines = "".join(f"- {unit}\n" for unit in units)
        heads = "# Loop State: By hand\n# A unit lives in exactly one bucket.\n\n## tried\n\n## passed\n\n"
        self.write(".overnight/state.md", f"{heads}## open\n{lines}\n## blocked\n")

    # running

    @property
    def env(self) -> dict[str, str]:
        """The environment of every command."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        ours = {
            "HOME": str(self.base.parent),
            "OVERNIGHT_HOME": str(self.base),
            "ANTHROPIC_BASE_URL": self.server.url,
            "ANTHROPIC_API_KEY": self.server.key,
        }
        return {name: value for name, value in {**outside, **ours, **self.extra_env}.items() if value}

    def start(self, *args: str) -> Started:
        """Start `overnight …` in the background."""
        number = len(self._started)
        out, err = (self.base.parent / f"command-{number}.{kind}" for kind in ("out", "err"))
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = subprocess.Popen(
                [OVERNIGHT, *args], cwd=self.root, env=self.env, stdin=subprocess.DEVNULL, stdout=to_out, stderr=to_err
            )
        started = Started(process, out, err)
        self._started.append(started)
        return started

    def overnight(self, *args: str, seconds: float = PATIENCE) -> Ended:
        """Run `overnight …` to its end."""
        return self.start(*args).wait(seconds)

    def inject(self, **settings: str) -> None:
        """Let the processes of later commands die, or their clocks jump, as `injected/sitecustomize.py` reads it."""
        paths = [str(INJECTED), os.environ.get("PYTHONPATH", "")]
        self.extra_env |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), **settings}

    def close(self) -> None:
        """End whatever a failed test left behind, and say what was said: pytest shows it when the test has failed."""
        for number, started in enumerate(self._started):
            started.end()
            said = "".join(file.read_text(errors="replace")[-4000:] for file in (started.out, started.err))
            sys.stdout.write(f"-- command {number}: exit {started.process.returncode}\n{said}\n")

    # looking

    @property
    def state_path(self) -> Path:
        """The state file."""
        return self.root / ".overnight/state.md"

    def state(self) -> State:
        """Read the state file."""
        return read(self.state_path)[0]

    def ids(self, bucket: str) -> list[str]:
        """Return the units in a bucket."""
        return list(self.state().ids(Bucket(bucket)))

    @property
    def home(self) -> Home:
        """The repository's own folder."""
        return Home.for_repository(self.root / ".git", {"OVERNIGHT_HOME": str(self.base)}, self.root)

    def night(self) -> str:
        """Return the night's id, "" before the first run."""
        try:
            return self.state().night
        except Exception:  # noqa: BLE001 - broken on purpose, or not there yet: the journal's folder still says
            found = list(self.home.nights.glob("*"))
            return found[0].name if found else ""

    def journal(self, kind: type | None = None) -> list[Any]:
        """Return the journal's entries, those of a kind."""
        night = self.night()
        entries = [entry for _, entry in read_journal(self.home.journal(night))] if night else []
        return [entry for entry in entries if kind is None or isinstance(entry, kind)]

    def session(self, unit: str, attempt: int = 1) -> list[Any]:
        """Return the records of a session's log, torn tail or not."""
        return list(read_log(self.home.session(self.night(), unit, attempt)).records)

    def messages(self, unit: str, attempt: int = 1) -> list[str]:
        """Return the texts of the user messages in a session."""
        found = [record.data for record in self.session(unit, attempt) if record.type == "user/message"]
        return ["".join(block["text"] for block in data["content"]) for data in found]

    def count(self, unit: str, kind: str, attempt: int = 1) -> int:
        """Return how many events of a type a session has."""
        return sum(record.type == kind for record in self.session(unit, attempt))

    def merged(self) -> list[str]:
        """Return the units of the merge commits on the merged branch, newest first."""
        log = self.git("log", "--first-parent", "--format=%s", f"overnight/{self.night()}/merged")
        return [line.split()[1] for line in log.splitlines() if line.startswith("Merge ")]

    def calls(self, unit: str) -> int:
        """Return how often the model was asked for a unit."""
        tally = self.server.units.get(unit)
        return tally.calls if tally is not None else 0

    def wishes(self, unit: str) -> tuple[str, int]:
        """Return what the dispatcher wishes of the holder of a unit, and the holder's beat."""
        with redis.Redis(unix_socket_path=str(self.home.socket), socket_timeout=5) as client:
            wish, beat = client.hmget(f"overnight:{self.night()}:lease:{unit}", ["wish", "beat"])
        return (wish or b"").decode(), int(beat or 0)

    def wait_until_asked_to_stop(self, unit: str) -> None:
        """Return once the holder of a unit knows that it should stop."""
        until(lambda: self.wishes(unit)[0] == "stop", f"{unit} is asked to stop")
        beat = self.wishes(unit)[1]
        until(lambda: self.wishes(unit)[1] >= beat + 2, f"{unit} has heard it")

    def workers(self) -> list[int]:
        """Return the process ids of this project's embedded Celery workers."""
        return self._processes("celery", "worker")

    def redis(self) -> list[int]:
        """Return the process id of this project's embedded Redis."""
        return self._processes("redis-server")

    def _processes(self, *words: str) -> list[int]:
        """Find our children by what they hold open: the engine's lock."""
        lock = self.home.engine_lock
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and folder.name != str(os.getpid()):
                with suppress(OSError):
                    line = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    if all(any(word in part for part in line) for word in words) and _holds(folder, lock):
                        found.append(int(folder.name))
        return sorted(found)


def _holds(folder: Path, lock: Path) -> bool:
    for link in (folder / "fd").iterdir():
        with suppress(OSError):
            if link.readlink() == lock:
                return True
    return False


def _git_env() -> dict[str, str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    pinned = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    person = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "Ann"), ("EMAIL", "a@b.c"))
    }
    return {**outside, **pinned, **person}


def made_by(unit: str) -> str:
    """Return the file that a unit makes."""
    return f"{unit.rsplit('-', 1)[-1]}.txt"


def make_project(folder: Path, server: RehearsalServer, *, name: str = "project", config: str = QUICK) -> Project:
    """A repository with one commit, and a config."""
    root = folder / name
    root.mkdir(parents=True)
    project = Project(root, folder / "home", server)
    project.git("init", "-q", "-b", "main")
    project.write("README.md", "# A project\n")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "first")
    project.config(config)
    return project


@contextmanager
def project_with(folder: Path, script: Mapping[str, Any], **options: Any) -> Iterator[Project]:
    """A project beside a running server that plays `script`; whatever was started is ended."""
    with running(Script.parse(script)) as server:
        project = make_project(folder, server, **options)
        try:
            yield project
        finally:
            project.close()


def until(what: Callable[[], Any], why: str, seconds: float = 60.0, every: float = 0.02) -> Any:
    """Poll until `what` says something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {why}"
        time.sleep(every)
    return found


# -- what must be true at every moment ------------------------------------------------------------------------------


@dataclass
class Sampler:
    """Looks at the state file again and again from a thread, as `grep` would, and keeps what was wrong."""

    path: Path
    units: frozenset[str]
    texts: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def looking(self) -> Iterator["Sampler"]:
        """Look until the block ends."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.003):
            if self.path.exists():
                text = self.path.read_text(encoding="utf-8")
                if not self.texts or text != self.texts[-1]:
                    self.texts.append(text)
                    self.wrong += self._look(text)

    def _look(self, text: str) -> list[str]:
        try:
            state = parse(text)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the test is about
            return [f"{error}\n{text}"]
        lines = text.splitlines()
        start = next(number for number, line in enumerate(lines) if line == "## open")
        after_open = [line.split()[1].rstrip(":") for line in _grep_a99(lines, start) if line.startswith("- ")]
        open_and_blocked = [*state.ids(Bucket.open), *state.ids(Bucket.blocked)]
        found = []
        if after_open != open_and_blocked:  # `open` and what follows it
            found.append(f"grep -A99 '## open' says {after_open}, the file {open_and_blocked}")
        if sum(line.startswith("- ") for line in lines) != len(state.ids()):
            found.append(f"grep -c '^- ' disagrees with {state.ids()}")
        if len(state.ids()) != len(set(state.ids())) or (state.rev > 1 and set(state.ids()) != self.units):
            found.append(f"not every unit in exactly one bucket: {state.ids()}")
        return found


def _grep_a99(lines: list[str], start: int) -> list[str]:
    return lines[start : start + 100]


def check_night(project: Project, units: tuple[str, ...]) -> None:
    """Nothing lost, in two buckets, or merged twice: in the state file, the journal, and git's history."""
    state = project.state()
    assert sorted(state.ids()) == sorted(units)
    done = [entry.unit for entry in project.journal(MergeDone)]
    assert len(done) == len(set(done)), f"merged twice in the journal: {done}"
    assert sorted(done) == sorted(state.ids(Bucket.passed))
    if done:
        assert sorted(project.merged()) == sorted(done)


def asked_again(project: Project) -> list[tuple[str, int, int]]:
    """Return every model call beyond the first for the same (unit, attempt, step) of a session."""
    return [
        (unit, attempt, step)
        for (unit, attempt, step, _), calls in project.server.repeats.items()
        for _ in range(calls - 1)
    ]


def answers_of(project: Project, units: tuple[str, ...]) -> dict[str, int]:
    """Return how many whole answers each unit's sessions hold."""
    folder = project.home.night(project.night()) / "units"
    logs = {unit: list((folder / unit).glob("*/session.jsonl")) for unit in units}
    return {
        unit: sum(record.type == "assistant/message" for log in found for record in read_log(log).records)
        for unit, found in logs.items()
    }


def orders(project: Project) -> list[tuple[str, int, int]]:
    """Return every hand-out: unit, attempt, epoch."""
    return [(entry.unit, entry.attempt, entry.epoch) for entry in project.journal(Ordered)]


def run_pids(project: Project) -> list[int]:
    """Return the process ids of the runs so far."""
    return [entry.pid for entry in project.journal(RunStarted)]


def lost_answers(project: Project, units: tuple[str, ...]) -> int:
    """Return how many model calls were made whose answer no log holds: each was asked for again, or will be."""
    return sum(project.calls(unit) for unit in units) - sum(answers_of(project, units).values())


# -- how a night ended ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class End:
    """What must be the same of a night with kills and without: who is where with which note, and the merged tree."""

    buckets: dict[str, list[tuple[str, str]]]
    tree: str


def end_of(project: Project) -> End:
    """Look at how a night has ended."""
    state = project.state()
    buckets = {str(bucket): sorted((one.id, one.note) for one in state.entries(bucket)) for bucket in Bucket}
    return End(buckets, project.git("rev-parse", f"overnight/{state.night}/merged^{{tree}}"))


def check_end(project: Project, wanted: End, units: tuple[str, ...]) -> None:
    """The night ended as wanted, each session was begun once, nothing lies about, and `fsck` agrees."""
    check_night(project, units)
    assert end_of(project) == wanted
    sessions = [log for unit in units for log in project.home.sessions(project.night(), unit).values()]
    starts = [sum(record.type == "session/start" for record in read_log(log).records) for log in sessions]
    assert starts == [1] * len(starts)
    ordered = {(unit, attempt) for unit, attempt, _ in orders(project)}
    assert len(sessions) == len(ordered), f"attempts ordered: {sorted(ordered)}"
    check_branches(project)
    check_nothing_lies_about(project)


def check_branches(project: Project) -> None:
    """Every attempt that was reported can be seen under a branch of its own."""
    told = [entry.report for entry in project.journal(Reported) if entry.accepted and entry.report.kind == "verdict"]
    wanted = {(report.unit, report.attempt): report.commit for report in told if report.commit is not None}
    branches = {(unit, attempt): f"overnight/{project.night()}/unit/{unit}.{attempt}" for unit, attempt in wanted}
    assert {key: project.git("rev-parse", branch) for key, branch in branches.items()} == wanted


def check_nothing_lies_about(project: Project) -> None:
    """No half-written file, no report on its way, no lock or process; and the records tell one story."""
    found = project.overnight("fsck")
    assert found.code == 0, found.text
    folders = (project.root / ".overnight", project.home.outbox)
    assert [path.name for folder in folders for path in folder.rglob("*.tmp")] == []
    assert project.workers() == project.redis() == []
