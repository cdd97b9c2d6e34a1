"""A performance: the real `overnight run` over the project, killed and answered in the middle, against the script.

What is done to the run from outside: the worker process that holds `receipt` is killed, and the question of `vat` is
answered while the run goes on. Whether all went as told is for `checks`.
"""

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dispatcher.demo.stage import Stage, script_file
from dispatcher.errors import EngineError
from dispatcher.opening import read_state
from dispatcher.state import Bucket
from workers.rehearsal import Record, Script, running
from workers.session import events as ev
from workers.session.session import read_session

__all__ = ["ANSWER", "ASKING", "KILLED", "SLOTS", "Audience", "Performance", "perform"]

SLOTS = 4
KILLED = "receipt"
"""The unit whose worker is killed, while it waits for its third answer."""
ASKING = "vat"
"""The unit whose question is answered once the killed worker's unit is at work again."""
ANSWER = "7 percent, as for food"

_MOST_SECONDS = 180.0
_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0


class Audience(Protocol):
    """Who looks on."""

    def evening(self, state: str) -> None:
        """See the state file before the run."""
        ...

    def said(self, line: str) -> None:
        """Hear a line of the run."""
        ...

    def did(self, line: str) -> None:
        """Hear what was done to the run."""
        ...


@dataclass(frozen=True)
class Performance:
    """What there is to look at afterwards. `requests` are those that the script's server received, in order."""

    stage: Stage
    night: str
    exit_code: int
    killed: int | None
    answered: bool
    seconds: float
    requests: tuple[Record, ...]


def perform(root: Path, audience: Audience) -> Performance:
    """Run the night in the empty folder `root` and return what came of it.

    Raises EngineError when it cannot be run, or does not end; nothing of it runs any more then.
    """
    # A thread of this process is enough for the model: all that this process does meanwhile is wait.
    with running(Script.load(script_file())) as server:
        stage = Stage.build(root, url=server.url, key=server.key)
        audience.evening(stage.state_text)
        started = time.monotonic()
        with _run(stage) as run:
            story = _Story(stage, run.pid, audience, lambda: _is_asking(server.requests))
            _follow(run, story, audience, started + _MOST_SECONDS)
        state = read_state(stage.repository)
        return Performance(
            stage=stage,
            night=state.night if state is not None else "",
            exit_code=run.returncode,
            killed=story.killed,
            answered=story.answered,
            seconds=time.monotonic() - started,
            requests=tuple(server.requests),
        )


@contextmanager
def _run(stage: Stage) -> Iterator[subprocess.Popen[str]]:
    """Start the run; whatever happens in the block, it has ended afterwards."""
    run = stage.start("run", "-j", str(SLOTS))
    try:
        yield run
    finally:
        if run.poll() is None:
            run.terminate()
            with suppress(subprocess.TimeoutExpired):
                run.wait(_END_SECONDS)
        run.kill()
        run.wait()
        if run.stdout is not None:
            run.stdout.close()


def _follow(run: subprocess.Popen[str], story: "_Story", audience: Audience, deadline: float) -> None:
    """Show the run's lines and let the story happen until the run ends."""
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(run, lines), name="demo-reader", daemon=True).start()
    while time.monotonic() < deadline:
        with suppress(queue.Empty):
            line = lines.get(timeout=_LOOK_SECONDS)
            if line is None:
                run.wait(_END_SECONDS)
                return
            audience.said(line.rstrip("\n"))
        story.go_on()
    raise EngineError(f"the run did not end within {_MOST_SECONDS:g} s", component="demo")


def _read(run: subprocess.Popen[str], lines: "queue.Queue[str | None]") -> None:
    assert run.stdout is not None
    with suppress(ValueError):  # closed under us: the run was given up
        for line in run.stdout:
            lines.put(line)
    lines.put(None)


@dataclass
class _Story:
    """What is done to the run from outside, each once, when its moment has come."""

    stage: Stage
    run: int
    audience: Audience
    is_asking: Callable[[], bool]
    killed: int | None = None
    answered: bool = False
    _night: str = field(default="")

    def go_on(self) -> None:
        """Do what is due now."""
        if not self._night:
            state = read_state(self.stage.repository)
            self._night = state.night if state is not None else ""
        elif self.killed is None:
            self._kill()
        elif not self.answered:
            self._answer()

    def _kill(self) -> None:
        """Kill the worker process in the middle of a model call, as the kernel would for want of memory."""
        if not self.is_asking():
            return
        process = int(_claims(self._session())[-1].holder.rpartition(":")[2])
        if _parent(process) != self.run:  # never a stranger's: numbers are given again
            return
        os.kill(process, signal.SIGKILL)
        self.killed = process
        self.audience.did(f"kill -9 {process}: the worker process that {KILLED} is at work in")

    def _answer(self) -> None:
        """Answer as a person would, once the killed worker's unit is at work again."""
        state = read_state(self.stage.repository)
        if len(_claims(self._session())) < 2 or state is None or state.bucket_of(ASKING) is not Bucket.blocked:
            return
        self.answered = True
        self.audience.did(f'overnight answer {ASKING} "{ANSWER}"')
        self.audience.did(self.stage.overnight("answer", ASKING, ANSWER).strip())

    def _session(self) -> list[Any]:
        return read_session(self.stage.home.session(self._night, KILLED, 1))


def _is_asking(requests: Iterable[Record]) -> bool:
    """Tell whether the unit waits for its third answer."""
    return any(one.unit == KILLED and one.step == 2 for one in requests)


def _claims(history: list[Any]) -> list[ev.Claim]:
    return [event for event in history if isinstance(event, ev.Claim)]


def _parent(process: int) -> int | None:
    """Return the parent of a process, None when it is gone."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])  # behind the name, which may hold anything: state, parent
