"""A worker's process in small, to be killed: takes a session up, repairs it, runs one turn, and says how it ended."""

import asyncio
import sys
from pathlib import Path

from loop_stand import GOAL, START, FakeGate, LoopStand

from workers.model.client import ModelClient
from workers.orders import AgentOrder
from workers.rehearsal import RehearsalServer
from workers.session import events as ev
from workers.session.session import Session

RESUMED = ev.UserMessage(source="runtime", content=[{"type": "text", "text": "You were interrupted. Go on."}])


async def main(path: Path, tree: Path, url: str) -> None:
    """Run a turn that says hello first where the session is new."""
    agent = AgentOrder(model="claude-sonnet-5-5", base_url=url)
    client = ModelClient(agent)
    session = Session.open(path)
    if not session.events:
        session.append(START)
    session.repair()
    given = any(isinstance(event, ev.UserMessage) for event in session.events)
    stand = LoopStand(_nobody(), client, session, FakeGate(path), tree, agent)
    ended = await stand.loop().run_turn(RESUMED if given else GOAL)
    sys.stdout.write(f"{ended.reason} {ended.facts}\n")
    await client.close()
    session.close()


def _nobody() -> RehearsalServer:
    """The server is the test's."""
    return None  # type: ignore[return-value]


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
