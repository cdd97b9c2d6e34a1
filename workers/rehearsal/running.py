"""Ways to run a rehearsal server: in a thread beside synchronous code, or alone until somebody stops it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workers.rehearsal.script import Script
from workers.rehearsal.server import RehearsalServer

__all__ = ["how_to_use", "running", "serve"]

_START_SECONDS = 10


@contextmanager
def running(
    script: Script,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str = "rehearsal",
    record_bodies: bool = True,
) -> Iterator[RehearsalServer]:
    """Run a server in a thread with an event loop of its own, until the block ends. Raises ServerStartError."""
    server = RehearsalServer(script, host=host, port=port, key=key, record_bodies=record_bodies)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_run, args=(loop,), name="rehearsal", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(_START_SECONDS)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(_START_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def how_to_use(server: RehearsalServer) -> str:
    """Return where the server listens and how to point a worker at it."""
    return (
        f"rehearsal on {server.url}\n"
        f"  export ANTHROPIC_BASE_URL={server.url}\n"
        f"  export ANTHROPIC_API_KEY={server.key}\n"
        f"what was asked: GET {server.url}/rehearsal/requests (with the key)"
    )


def serve(
    script_path: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    announce: Callable[[str], None] = lambda _text: None,
) -> str:
    """Play a script until cancelled (Ctrl-C); `announce` gets the address once it listens, the return value sums up.

    Raises ScriptError or ServerStartError.
    """
    server = RehearsalServer(Script.load(script_path), host=host, port=port)
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(server, announce))
    return f"rehearsal ended: {len(server.requests)} requests"


async def _serve(server: RehearsalServer, announce: Callable[[str], None]) -> None:
    await server.start()
    try:
        announce(how_to_use(server))
        await asyncio.Event().wait()
    finally:
        await server.stop()
