"""N units x S steps at a given latency through the whole pool, beside a bare-SDK loop on the same server.

    python -m benchmarks.night --units 40 --steps 20 --latency 1.0 --slots 40

Prints, as a table and as JSON: first to last model call against the ideal ceil(N/slots) x S x latency; the workers' own
CPU a step beside the bare SDK's; the memory of all workers; the time from an applied report to the next unit's first
call (from a second, short night with fewer slots than units).
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from dispatcher.config import EngineConfig
from dispatcher.engine import Engine
from dispatcher.home import Home
from dispatcher.journal import Reported, read_journal
from workers.rehearsal import Script, Step, TextBlock, ToolBlock
from worktrees.repository import Repository

KEY = "rehearsal"
MODEL = "claude-sonnet-5-5"
OVERNIGHT = [str(Path(sys.executable).with_name("overnight"))]


@dataclass(frozen=True)
class Load:
    """What is played: `steps` model calls a unit, the last of which ends the turn; `latency` in seconds."""

    units: int
    steps: int
    latency: float
    slots: int

    @property
    def ideal(self) -> float:
        """Seconds from the first call to the last answer if nothing but the model took time."""
        return math.ceil(self.units / self.slots) * self.steps * self.latency

    def names(self) -> list[str]:
        """The units' ids."""
        return [f"unit-{number:03}" for number in range(self.units)]

    def script(self) -> Script:
        """Three edits, one look and one command in turn; then an answer."""
        looks = {"command": "view", "path": "README"}
        plays = [
            Step(blocks=(TextBlock(text="Next edit."), _edit("one")), repeat=1),
            Step(blocks=(_edit("two"),)),
            Step(blocks=(ToolBlock(tool="str_replace_based_edit_tool", input=looks),)),
            Step(blocks=(_edit("three"),)),
            Step(blocks=(ToolBlock(tool="bash", input={"command": "ls | wc -l"}),)),
        ]
        steps = [plays[number % len(plays)] for number in range(self.steps - 1)]
        return Script(latency=self.latency, default=(*steps, Step(blocks=(TextBlock(text="Done."),))))


def _edit(name: str) -> ToolBlock:
    path = f"{name}-{{{{unit}}}}.txt"
    text = "A line of text in a file.\n" * 20
    return ToolBlock(tool="str_replace_based_edit_tool", input={"command": "create", "path": path, "file_text": text})


@dataclass(frozen=True)
class Server:
    """The rehearsal server's address, and the process to ask for its tallies."""

    address: str
    process: "subprocess.Popen[str]"

    def tallies(self) -> dict[str, dict[str, float]]:
        """Return the first and last call of every unit, in seconds of the clock."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("tallies\n")
        self.process.stdin.flush()
        found: dict[str, dict[str, float]] = json.loads(self.process.stdout.readline())
        return found


@contextlib.contextmanager
def serving(script: Script, folder: Path) -> Iterator[Server]:
    """Serve the script from a process of its own, without keeping bodies."""
    path = folder / "script.json"  # JSON is YAML
    path.write_text(script.model_dump_json(exclude_defaults=True))
    argv = [sys.executable, "-m", "benchmarks.serve", str(path)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Server(process.stdout.readline().strip(), process)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def project(folder: Path, load: Load) -> Path:
    """Make a repository with `load.units` units and a Python verify."""
    root = folder / "repo"
    (root / ".overnight" / "units").mkdir(parents=True)
    (root / "README").write_text("A project.\n" * 50)
    for index in range(50):
        (root / f"module_{index}.py").write_text("VALUE = 1\n" * 100)
    # Every hand-out reserves its unit's limit: the night's must cover all slots.
    (root / ".overnight" / "config.toml").write_text('[limits]\nnight = "$10000"\n')
    run = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "base"]):
        subprocess.run([*run, *command], cwd=root, check=True)
    for name in load.names():
        verify = f"python3 -c \"open('one-{name}.txt')\""
        front = json.dumps(verify)
        (root / ".overnight" / "units" / f"{name}.md").write_text(f"---\nverify: {front}\n---\n\nWrite three files.\n")
    return root


class Sampler(threading.Thread):
    """Looks at the run's worker processes twice a second: their CPU so far, and their memory at its highest."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.cpu: dict[int, float] = {}
        self.memory = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.5):
            workers = [pid for pid in _children(self.pid) if b"worker" in _command(pid)]
            for pid in workers:
                self.cpu[pid] = max(self.cpu.get(pid, 0.0), _cpu(pid))
            self.memory = max(self.memory, sum(_pss(pid) for pid in workers))


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _cpu(pid: int) -> float:
    """Seconds of user and system time of the process itself, without its children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pss(pid: int) -> int:
    """Bytes of memory, shared pages split among their users."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


async def idle_cpu(folder: Path) -> float:
    """CPU seconds that a worker process has spent once it is up and waits for its first order."""
    home = Home(folder / "idle")
    home.make()
    engine = Engine(home, slots=1, config=EngineConfig())
    await engine.start()
    try:
        # ASYNC110: nothing but a look at /proc tells that the child has become Celery.
        while not (found := [pid for pid in _children(os.getpid()) if b"worker" in _command(pid)]):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        pid = found[0]
        before = -1.0
        while (now := _cpu(pid)) > before or now < 0.5:  # until it has come to rest
            before = now
            await asyncio.sleep(1.0)
        return now
    finally:
        await engine.stop()


def night(load: Load) -> dict[str, float]:
    """Run one night and return what was measured."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, serving(load.script(), Path(name)) as server:
        folder = Path(name)
        root = project(folder, load)
        env = {
            **os.environ,
            "OVERNIGHT_HOME": str(folder / "home"),
            "ANTHROPIC_BASE_URL": server.address,
            "ANTHROPIC_API_KEY": KEY,
        }
        run = subprocess.Popen(
            [*OVERNIGHT, "run", "-j", str(load.slots), "--json"], cwd=root, env=env, stdout=subprocess.PIPE, text=True
        )
        sampler = Sampler(run.pid)
        sampler.start()
        output, _ = run.communicate()
        sampler.done.set()
        sampler.join()
        if run.returncode != 0:
            raise SystemExit(f"the night ended with exit code {run.returncode}:\n{output}")
        calls = server.tallies()
        spent = sum(sampler.cpu.values()) - len(sampler.cpu) * asyncio.run(idle_cpu(folder))
        seconds = (
            max(row["last"] for row in calls.values()) - min(row["first"] for row in calls.values()) + load.latency
        )
        gaps = handover(root, env, calls, load)
        return {
            "seconds": seconds,
            "ideal": load.ideal,
            "share_of_ideal": load.ideal / seconds,
            "cpu_ms_per_step": 1000 * spent / (load.units * load.steps),
            "worker_processes": len(sampler.cpu),
            "workers_mb": sampler.memory / 1e6,
            "handover_ms": 1000 * statistics.median(gaps) if gaps else math.nan,
        }


def handover(root: Path, env: Mapping[str, str], calls: Mapping[str, dict[str, float]], load: Load) -> list[float]:
    """Return the seconds from each applied report to the first call that came next, for orders given after it."""
    home = Home.for_repository(Repository.discover(root).common_dir, env)
    journal = next(home.nights.glob("*/journal.jsonl"))
    reported = sorted(
        datetime.fromisoformat(moment).timestamp()
        for moment, entry in read_journal(journal)
        if isinstance(entry, Reported)
    )
    firsts = sorted(row["first"] for row in calls.values())[load.slots :]
    return [first - at for at, first in zip(reported, firsts, strict=False)]


async def bare(address: str, load: Load) -> float:
    """Return the CPU milliseconds a step of the SDK alone: one loop, as many coroutines, the same growing history."""
    import anthropic  # noqa: PLC0415  # only this yardstick talks to the SDK directly

    client = anthropic.AsyncAnthropic(base_url=address, api_key=KEY, max_retries=0)

    async def one(name: str) -> None:
        messages: list[dict[str, object]] = [{"role": "user", "content": f"unit: {name}\nattempt: 1\n\nWrite."}]
        for _ in range(load.steps):
            async with client.messages.stream(model=MODEL, max_tokens=1000, messages=messages) as stream:  # type: ignore[arg-type]
                answer = await stream.get_final_message()
            content = [block.to_dict() for block in answer.content]
            messages.append({"role": "assistant", "content": content})
            results = [
                {"type": "tool_result", "tool_use_id": block["id"], "content": "Wrote it."}
                for block in content
                if block["type"] == "tool_use"
            ]
            messages.append({"role": "user", "content": results or "go on"})

    await one("warm-up")
    before = resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.gather(*(one(f"bare-{name}") for name in load.names()[: load.slots]))
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    await client.close()
    return 1000 * used / (min(load.slots, load.units) * load.steps)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--units", type=int, default=40)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--latency", type=float, default=1.0, help="seconds")
    parser.add_argument("--slots", type=int, default=40)
    given = parser.parse_args()
    load = Load(given.units, given.steps, given.latency, given.slots)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, serving(load.script(), Path(name)) as server:
        bare_ms = asyncio.run(bare(server.address, load))
    found = night(load)
    short = night(Load(units=16, steps=4, latency=0.2, slots=4))
    rows = {
        "load": " ".join(f"{key}={value}" for key, value in asdict(load).items()),
        "first to last model call": f"{found['seconds']:.1f} s, {found['share_of_ideal']:.0%} of the ideal",
        "worker CPU a step": f"{found['cpu_ms_per_step']:.2f} ms",
        "bare SDK CPU a step": f"{bare_ms:.2f} ms: ratio {found['cpu_ms_per_step'] / bare_ms:.2f}",
        "memory of all workers": f"{found['workers_mb']:.0f} MB in {found['worker_processes']:.0f} processes",
        "report applied to next first call": f"{short['handover_ms']:.0f} ms (median; 16 units on 4 slots)",
    }
    for what, value in rows.items():
        print(f"{what:<36} {value}")
    print(json.dumps({**found, "bare_ms": bare_ms, "handover_ms": short["handover_ms"], "at": time.strftime("%F")}))


if __name__ == "__main__":
    main()
