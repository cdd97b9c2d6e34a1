"""The rehearsal server in a process of its own, without bodies: prints its address, then the tallies for each line."""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from workers.rehearsal import RehearsalServer, Script


async def main() -> None:
    """Serve until standard input ends; every line of it is answered with the units' first and last calls as JSON."""
    server = RehearsalServer(Script.load(Path(sys.argv[1])), record_bodies=False)
    await server.start()
    print(server.url, flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps({unit: asdict(tally) for unit, tally in server.units.items()}), flush=True)
    await server.stop()


if __name__ == "__main__":
    asyncio.run(main())
