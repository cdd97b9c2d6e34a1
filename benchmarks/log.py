"""What the session log costs: `python -m benchmarks.log [EVENTS]`. Every row has the bound that issue 2 sets for it.

Open: a log of 100,000 events is opened for writing, with its surface. Step: what one step costs a session (its five
events, the surface and its hash, the request and its bytes, two flushes), at event 100,000 against event 100. The long
log has been compacted every 400 steps, as a model's window makes it, the last time twenty steps ago: so both requests
are of a size. What a request costs that was never compacted (14 MB: no window takes it) stands beside it, without a
bound. Barriers: appends and flushes against a plain write + fdatasync of the same bytes, taken in turns. Compaction:
what ten of them add to a file.
"""

import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

from workers.log import Log, Record, encode, read
from workers.session import events as ev
from workers.session.session import Session
from workers.session.surface import request

STEPS_A_WINDOW = 400
STEPS_EARLY = 19
START = [
    ev.SessionStart(
        night="1117-k3v",
        unit="round-totals",
        attempt=1,
        base="a" * 40,
        digest="d" * 64,
        model="claude-sonnet-5-5",
        system=[{"type": "text", "text": "You are a coding agent. " * 40}],
        tools=[{"name": "bash", "input_schema": {"type": "object"}}],
    ),
    ev.TurnStart(turn=1),
    ev.UserMessage(source="goal", content=[{"type": "text", "text": "Round half-even."}]),
]


def before_tools(step: int, digest: str) -> list[Any]:
    """Return what is flushed before a step's tool runs."""
    call = {"type": "tool_use", "id": f"toolu_{step}", "name": "bash", "input": {"command": f"sed -n {step}p a.py"}}
    answer = [{"type": "text", "text": "Let me look at the next line of this file, then decide. "}, call]
    return [
        ev.StepStart(step=step, model="claude-sonnet-5-5", max_tokens=128_000, request=digest),
        ev.AssistantMessage(content=answer, stop_reason="tool_use", cost=Decimal("0.0012"), request_id=f"req_{step}"),
        ev.ToolCall(call_id=f"toolu_{step}", name="bash"),
    ]


def after_tools(step: int) -> list[Any]:
    """Return what follows it."""
    return [
        ev.ToolResult(call_id=f"toolu_{step}", content="    total += line.amount\n" * 16, facts={"exit_code": 0}),
        ev.StepEnd(step=step, stop_reason="tool_use"),
    ]


def history(events: int, *, compacted: bool = False) -> Iterator[Any]:
    """Yield a long session; with compactions the last one comes as many steps before its end as a short one has."""
    yield from START
    last = (events - len(START)) // 5
    for step in range(1, last + 1):
        yield from before_tools(step, "0" * 64)
        yield from after_tools(step)
        if compacted and (last - step) % STEPS_A_WINDOW == STEPS_EARLY:
            yield ev.Compaction(summary="What was done so far. " * 50, steps=step)


def write(path: Path, told: Iterator[Any]) -> int:
    """Write a log at once and return how many events it has."""
    lines = [
        encode(Record(seq, "2026-11-17T20:00:00.000+00:00", event.type, event.data())) for seq, event in enumerate(told)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    return len(lines)


def row(name: str, value: float, unit: str, bound: float | None = None, more: str = "") -> bool:
    """Print a figure with its bound and return whether it holds."""
    holds = bound is None or value <= bound
    told = "" if bound is None else f"  (bound {bound:g}{unit}: {'holds' if holds else 'MISSED'})"
    print(f"{name:<44} {value:8.3f}{unit}{told}  {more}".rstrip())
    return holds


def opening(folder: Path, events: int) -> list[bool]:
    """Time opening a long log; the best of five, since everything else on the machine only ever adds."""
    path = folder / "open" / "session.jsonl"
    count = write(path, history(events))
    best, cpu, collected, hashed = [], [], [], []
    for _ in range(5):
        gc.collect()
        began, worked = time.perf_counter(), time.process_time()
        session = Session.open(path)
        best.append(time.perf_counter() - began)
        cpu.append(time.process_time() - worked)
        assert len(session.events) == count
        began = time.perf_counter()
        gc.collect()
        collected.append(time.perf_counter() - began)
        began = time.perf_counter()
        assert session.surface.digest
        hashed.append(time.perf_counter() - began)
        session.close()
        del session
    size = path.stat().st_size / 1e6
    return [
        row(f"open + surface, {count:,} events", min(best), " s", 1.0, f"{size:.1f} MB, {min(cpu):.3f} s of CPU"),
        row("  then, once: the hash of the first request", min(hashed), " s"),
        row("  then, once: a full garbage collection", min(collected), " s"),
    ]


def step_of(session: Session, step: int) -> float:
    """Make one step and return its seconds: surface and its hash, the request's bytes, log, flush, log, flush."""
    began = time.perf_counter()
    digest = session.surface.digest
    request(session.surface).body(model="claude-sonnet-5-5", max_tokens=128_000)
    session.append(*before_tools(step, digest))
    session._log.flush()  # noqa: SLF001 - without the thread that `flush` takes, which has its own noise
    session.append(*after_tools(step))
    session._log.flush()  # noqa: SLF001
    return time.perf_counter() - began


def request_of(session: Session) -> tuple[float, int]:
    """Return the seconds that a request takes to be put together, and its bytes."""
    began = time.perf_counter()
    body = request(session.surface).body(model="claude-sonnet-5-5", max_tokens=128_000)
    return time.perf_counter() - began, len(body)


def steps(folder: Path, events: int) -> list[bool]:
    """Compare a step late in a session with one early in another, taken in turns so that noise hits both."""
    early, late = folder / "early" / "session.jsonl", folder / "late" / "session.jsonl"
    counts = [write(early, history(len(START) + 5 * STEPS_EARLY)), write(late, history(events, compacted=True))]
    sessions = [Session.open(early), Session.open(late)]
    gc.collect()
    gc.disable()
    taken: list[list[float]] = [[], []]
    for number in range(300):
        for at in (0, 1):
            taken[at].append(step_of(sessions[at], counts[at] // 5 + number + 1))
    gc.enable()
    sizes = [len(session.surface.messages) for session in sessions]
    for session in sessions:
        session.close()
    first, last = (median(times) * 1000 for times in taken)
    return [
        row(f"a step at event {counts[0]:,}", first, " ms", more=f"{sizes[0]:,} messages in the end"),
        row(f"a step at event {counts[1]:,}", last, " ms", more=f"{sizes[1]:,} messages in the end"),
        row("  late / early", last / first, "x", 1.2),
        *never_compacted(folder, events),
    ]


def never_compacted(folder: Path, events: int) -> list[bool]:
    """Time a request that holds all of a long session."""
    path = folder / "whole" / "session.jsonl"
    write(path, history(events))
    session = Session.open(path)
    assert session.surface.digest
    found = [request_of(session) for _ in range(20)]
    messages = len(session.surface.messages)
    session.close()
    more = f"{messages:,} messages, {found[0][1] / 1e6:.1f} MB"
    return [
        row("  a request that was never compacted", median(seconds for seconds, _ in found) * 1000, " ms", more=more)
    ]


def barriers(folder: Path) -> list[bool]:
    """Compare appends and barriers with a plain loop over the same bytes, taken in turns."""
    told = [(event.type, event.data()) for event in before_tools(1, "0" * 64)]
    log = Log.open(folder / "barriers" / "session.jsonl")
    log.append(told)
    log.flush()
    line = (folder / "barriers" / "session.jsonl").read_bytes()
    plain = os.open(folder / "barriers" / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def ours() -> None:
        log.append(told)
        log.flush()

    def theirs() -> None:
        os.write(plain, line)
        os.fdatasync(plain)

    theirs()
    taken: dict[Callable[[], None], float] = {ours: 0.0, theirs: 0.0}
    for number in range(2_000):
        for work in (ours, theirs) if number % 2 else (theirs, ours):
            began = time.perf_counter()
            work()
            taken[work] += time.perf_counter() - began
    log.close()
    os.close(plain)
    each = [1e6 * total / 2_000 for total in taken.values()]
    return [
        row("append of 3 events + flush", each[0], " us"),
        row("plain write + fdatasync of the same bytes", each[1], " us"),
        row("  ours / plain", each[0] / each[1], "x", 1.5),
    ]


def compactions(folder: Path) -> list[bool]:
    """Compact a session ten times; what the file has beyond its history and the summaries would be a copy."""
    path = folder / "compact" / "session.jsonl"
    session = Session.open(path)
    session.append(*START)
    for number in range(10):
        for step in range(number * 40 + 1, number * 40 + 41):
            session.append(*before_tools(step, session.surface.digest), *after_tools(step))
        session.append(ev.Compaction(summary="What was done so far. " * 50, steps=number * 40))
        session._log.flush()  # noqa: SLF001
    session.close()
    summaries = sum(len(encode(record)) for record in read(path).records if record.type == "compaction")
    said = sum(len(encode(record)) for record in read(path).records if record.type != "compaction")
    return [
        row("file / history, after ten compactions", path.stat().st_size / said, "x", 1 + 1.05 * summaries / said),
    ]


def main() -> None:
    """Print every figure; exit 1 when a bound is missed."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory(prefix="overnight-log-", dir=os.environ.get("BENCH_DIR")) as name:
        folder = Path(name)
        holds = [*opening(folder, events), *steps(folder, events), *barriers(folder), *compactions(folder)]
    sys.exit(0 if all(holds) else 1)


if __name__ == "__main__":
    main()
