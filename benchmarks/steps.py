"""What a step costs late in a long session: `python -m benchmarks.steps [STEPS]`.

One turn loop (the worker's own: session log, surface, hooks, tools) with the real SDK against a rehearsal server in a
process of its own. CPU of this process a step, from a session's opening to its end: as the mean over sessions of twenty
steps, half of them before and half after a session of 500, and over that one (the median of three rounds); beside it
the bare SDK with the same growing histories. The bound: a step of the long session costs at most 1.3 times one of a
session of twenty. Exits with 1 when it does not hold.
"""

import asyncio
import gc
import json
import os
import resource
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.night import KEY, MODEL, serving
from workers.agents.bundle import Bundle
from workers.model.client import ModelClient, warm
from workers.orders import AgentOrder
from workers.rehearsal import Script, Step, TextBlock, ToolBlock, UnitScript
from workers.session import events as ev
from workers.session.session import Session
from workers.tools import Workspace, built_in
from workers.turn.hooks import Hook
from workers.turn.hooks.images import Images
from workers.turn.hooks.repair import Repair
from workers.turn.hooks.shorten import Shorten
from workers.turn.hooks.trim import Trim
from workers.turn.loop import Progress, TurnLoop
from worktrees.process import base_environment

FEW = 20
SHORT_SESSIONS = 10
ROUNDS = 3
BOUND = 1.3
Costs = list[float]
"""CPU seconds of each step of a session, its opening counted to the first and its end to the last."""


def cpu() -> float:
    """Seconds of user and system time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Marks:
    """The loop's gate: lets everything pass, and looks at the CPU before every step."""

    def __init__(self) -> None:
        self.at: list[float] = []

    async def before_step(self) -> None:
        self.at.append(cpu())

    async def before_effect(self) -> None:
        return

    def progress(self, _state: Progress) -> None:
        return


class OneAgent:
    """Always the same bundle."""

    def __init__(self, agent: AgentOrder, system: list[ev.Block]) -> None:
        self.bundle = Bundle(agent, system, built_in())

    async def fresh(self) -> Bundle:
        return self.bundle

    def logged(self, _session: Session) -> Bundle:
        return self.bundle


async def ours(client: ModelClient, agent: AgentOrder, folder: Path, unit: str, steps: int) -> Costs:
    """Return what the steps of one session of the worker's own loop cost."""
    began = cpu()
    tree = folder / "tree"
    tree.mkdir(parents=True)
    (tree / "README").write_text("A line of a project.\n" * 20)
    session = Session.open(folder / "1" / "session.jsonl")
    system = [{"type": "text", "text": "You work."}]
    tools = [tool.schema for tool in built_in().values()]
    session.append(
        ev.SessionStart(night="n", unit=unit, attempt=1, base="b", digest="d", model=MODEL, system=system, tools=tools)
    )
    marks = Marks()
    hooks: list[Hook] = [Images(), Shorten(folder / "scratch"), Repair(), Trim()]
    loop = TurnLoop(
        session,
        agents=OneAgent(agent, system),
        call=lambda model, request, asked, _ready, _on_broken: client.call(model, request, asked),
        workspace=Workspace(tree, base_environment(), "bench-steps"),
        gate=marks,
        hooks=hooks,
    )
    goal = ev.UserMessage(source="goal", content=[{"type": "text", "text": f"unit: {unit}\n\nLook."}])
    ended = await loop.run_turn(goal)
    session.close()
    if ended.reason != "completed" or len(marks.at) != steps:
        raise SystemExit(f"the session ended as {ended} after {len(marks.at)} steps")
    return _between([began, *marks.at[1:], cpu()])


async def bare(client: Any, unit: str, steps: int) -> Costs:
    """Return what the calls of the SDK alone with the same growing history cost."""
    marks = [cpu()]
    tools = [tool.schema for tool in built_in().values()]
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": f"unit: {unit}\n\nLook."}]
    for _ in range(steps):
        async with client.messages.stream(model=MODEL, max_tokens=1000, messages=messages, tools=tools) as stream:
            answer = await stream.get_final_message()
        content = [block.to_dict() for block in answer.content]
        text = "".join(f"{number:6}\tA line of a project.\n" for number in range(1, 21))
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": text}
            for block in content
            if block["type"] == "tool_use"
        ]
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
        marks.append(cpu())
    return _between(marks)


def _between(marks: list[float]) -> Costs:
    return [after - before for before, after in pairwise(marks)]


async def measure(of: Callable[[str, int], Awaitable[Costs]], steps: int) -> tuple[float, float, float]:
    """Return milliseconds a step: of sessions of twenty, of a long one, and of that one's last twenty.

    Of three rounds the one whose ratio is the median. The first session of all is not counted: it pays for the
    connection and for what is made once a process.
    """
    await of("warm", FEW)
    rounds = [await measure_once(of, at, steps) for at in range(ROUNDS)]
    return sorted(rounds, key=lambda found: found[1] / found[0])[ROUNDS // 2]


async def measure_once(of: Callable[[str, int], Awaitable[Costs]], at: int, steps: int) -> tuple[float, float, float]:
    """Return one round: half of the short sessions come before the long one, half after it."""
    half = SHORT_SESSIONS // 2
    short = [await of(f"short-{at}-{number}", FEW) for number in range(half)]
    long = await of(f"long-{at}", steps)
    short += [await of(f"short-{at}-{number}", FEW) for number in range(half, SHORT_SESSIONS)]
    return 1000 * mean(map(mean, short)), 1000 * mean(long), 1000 * mean(long[-FEW:])


async def both(address: str, folder: Path, steps: int) -> dict[str, tuple[float, float, float]]:
    """Measure the bare SDK and the loop."""
    import anthropic  # noqa: PLC0415  # only this yardstick talks to the SDK directly

    async with anthropic.AsyncAnthropic(base_url=address, api_key=KEY, max_retries=0) as yardstick:
        found = {"bare SDK": await measure(lambda unit, count: bare(yardstick, f"bare-{unit}", count), steps)}
    agent = AgentOrder(model=MODEL, base_url=address, context_cap=10_000_000)
    client = ModelClient(agent)
    found["loop"] = await measure(lambda unit, count: ours(client, agent, folder / unit, f"ours-{unit}", count), steps)
    await client.close()
    return found


def plays(steps: int) -> tuple[Step, ...]:
    """Return a script of so many steps: all but the last look at a file."""
    look = ToolBlock(tool="str_replace_based_edit_tool", input={"command": "view", "path": "README"})
    looks = Step(blocks=(TextBlock(text="Let me look at it once more."), look))
    return (*(looks,) * (steps - 1), Step(blocks=(TextBlock(text="Done."),)))


def main() -> int:
    """Measure and print."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    os.environ["ANTHROPIC_API_KEY"] = KEY
    long = UnitScript(steps=plays(steps))
    units = {f"{who}-long-{at}": long for who in ("bare", "ours") for at in range(ROUNDS)}
    script = Script(units=units, default=plays(FEW))
    warm()
    gc.collect()
    gc.freeze()  # as a worker does: no collection walks through what was imported
    with tempfile.TemporaryDirectory(prefix="bench-") as name, serving(script, Path(name)) as server:
        rows = asyncio.run(both(server.address, Path(name), steps))
    for what, (short, all_of_it, last) in rows.items():
        print(
            f"{what:<10} of {FEW} steps {short:6.2f} ms   of {steps} {all_of_it:6.2f} ms ({all_of_it / short:.2f}x)"
            f"   its last {FEW} {last:6.2f} ms ({last / short:.2f}x)"
        )
    ratio = rows["loop"][1] / rows["loop"][0]
    print(json.dumps({"steps": steps, "milliseconds": rows, "ratio": ratio, "bound": BOUND}))
    return ratio > BOUND


if __name__ == "__main__":
    sys.exit(main())
