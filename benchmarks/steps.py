"""What a step costs late in a long session: `python -m benchmarks.steps [STEPS]`.

One turn loop (the worker's own: session log, surface, hooks, tools) with the real SDK against a rehearsal server in a
process of its own. CPU of this process a step, as the mean over the first twenty steps of one session of 500, over its
last twenty, and over all of it; beside it the bare SDK with the same growing history. The bound: a step of the long
session costs at most 1.3 times one of a session of twenty.
"""

import asyncio
import gc
import json
import os
import resource
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.night import KEY, MODEL, serving
from workers.agents.bundle import Bundle
from workers.model.client import ModelClient, warm
from workers.orders import AgentOrder
from workers.rehearsal import Script, Step, TextBlock, ToolBlock
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


async def ours(address: str, folder: Path, steps: int) -> list[float]:
    """Return the CPU seconds of every step of one session."""
    agent = AgentOrder(model=MODEL, base_url=address, context_cap=10_000_000)
    client = ModelClient(agent)
    tree = folder / "tree"
    tree.mkdir()
    (tree / "README").write_text("A line of a project.\n" * 20)
    session = Session.open(folder / "1" / "session.jsonl")
    system = [{"type": "text", "text": "You work."}]
    tools = [tool.schema for tool in built_in().values()]
    session.append(
        ev.SessionStart(night="n", unit="a", attempt=1, base="b", digest="d", model=MODEL, system=system, tools=tools)
    )
    marks = Marks()
    hooks: list[Hook] = [Images(), Shorten(folder / "scratch"), Repair(), Trim()]
    loop = TurnLoop(
        session,
        agents=OneAgent(agent, system),
        call=lambda model, request, asked, _ready: client.call(model, request, asked),
        workspace=Workspace(tree, base_environment(), "bench-steps"),
        gate=marks,
        hooks=hooks,
    )
    ended = await loop.run_turn(ev.UserMessage(source="goal", content=[{"type": "text", "text": "unit: a\n\nLook."}]))
    if ended.reason != "completed" or len(marks.at) != steps:
        raise SystemExit(f"the session ended as {ended} after {len(marks.at)} steps")
    session.close()
    await client.close()
    return [after - before for before, after in zip(marks.at, marks.at[1:], strict=False)]


async def bare(address: str, steps: int) -> list[float]:
    """Return the CPU seconds of every call of the SDK alone with the same growing history."""
    import anthropic  # noqa: PLC0415  # only this yardstick talks to the SDK directly

    client = anthropic.AsyncAnthropic(base_url=address, api_key=KEY, max_retries=0)
    tools = [tool.schema for tool in built_in().values()]
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": "unit: b\n\nLook."}]
    found = []
    for _ in range(steps - 1):
        before = cpu()
        async with client.messages.stream(model=MODEL, max_tokens=1000, messages=messages, tools=tools) as stream:  # type: ignore[arg-type]
            answer = await stream.get_final_message()
        content = [block.to_dict() for block in answer.content]
        text = "".join(f"{number:6}\tA line of a project.\n" for number in range(1, 21))
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": text}
            for block in content
            if block["type"] == "tool_use"
        ]
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
        found.append(cpu() - before)
    await client.close()
    return found


def main() -> None:
    """Measure and print."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    os.environ["ANTHROPIC_API_KEY"] = KEY
    look = ToolBlock(tool="str_replace_based_edit_tool", input={"command": "view", "path": "README"})
    plays = [Step(blocks=(TextBlock(text="Let me look at it once more."), look)) for _ in range(steps - 1)]
    script = Script(default=(*plays, Step(blocks=(TextBlock(text="Done."),))))
    warm()
    gc.collect()
    gc.freeze()  # as a worker does: no collection walks through what was imported
    with tempfile.TemporaryDirectory(prefix="bench-") as name, serving(script, Path(name)) as server:
        yardstick = asyncio.run(bare(server.address, steps))
        mine = asyncio.run(ours(server.address, Path(name), steps))
    rows = {}
    for what, found in (("loop", mine), ("bare SDK", yardstick)):
        early, late = 1000 * mean(found[5 : 5 + FEW]), 1000 * mean(found[-FEW:])
        rows[what] = (early, late)
        whole = 1000 * mean(found[5:])
        print(
            f"{what:<10} first {FEW} {early:6.2f} ms   last {FEW} {late:6.2f} ms ({late / early:.2f}x)"
            f"   all {steps} {whole:6.2f} ms ({whole / early:.2f}x)"
        )
    print(json.dumps({"steps": steps, "loop_ms": rows["loop"], "bare_ms": rows["bare SDK"]}))


if __name__ == "__main__":
    main()
