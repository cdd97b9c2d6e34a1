"""`POST /v1/messages`: plays what the stage decides, streamed or not, with its delays and its faults."""

import asyncio
import json
import socket
import struct
import time
from collections.abc import Iterable, Iterator

from tornado.iostream import StreamClosedError

from workers.rehearsal.endpoints import ERROR_TYPES, Backstage, RecordedEndpoint
from workers.rehearsal.refusal import Refusal
from workers.rehearsal.script import Fault
from workers.rehearsal.stage import Performance
from workers.rehearsal.stream import PING, block_frames, end_frames, error_frame, start_frames

__all__ = ["Messages"]

# Long enough for a client on this machine to have read what was sent before its connection is cut.
_SETTLE = 0.02
_STATUS_OF = {kind: status for status, kind in ERROR_TYPES.items()}


class _ClientLeftError(Exception):
    """The client closed its connection: nothing more is to be played to it."""


class Messages(RecordedEndpoint):
    """`POST /v1/messages`, streamed or not."""

    def initialize(self, backstage: Backstage) -> None:
        """Start with a client that is there."""
        super().initialize(backstage)
        self._gone = asyncio.Event()
        self._severed = False

    def on_connection_close(self) -> None:
        """Note that the client left; whoever waits in `_wait` wakes up."""
        super().on_connection_close()
        if not self._severed and not self.backstage.closing:
            self.record.disconnected = time.time()
        self._gone.set()

    async def post(self) -> None:
        """Decide, record, play."""
        asker, decision = self.backstage.stage.decide(self.request.body, self.request.headers)
        self._keep_body()
        if asker is not None:
            digest = "" if isinstance(decision, Refusal) else decision.request_hash
            self.record.session = asker.session
            self.backstage.recording.identified(
                self.record, asker.scene.unit, asker.scene.attempt, asker.scene.step, digest
            )
        self._limit_headers()
        if isinstance(decision, Refusal):
            self.refuse(decision)
            return
        self.record.usage = decision.answer.usage.as_json()
        self.record.fault = decision.fault.kind if decision.fault else ""
        try:
            await self._perform(decision)
        except (_ClientLeftError, StreamClosedError):
            if not self._finished:
                self.detach().close()

    def _keep_body(self) -> None:
        if not self.backstage.recording.bodies:
            return
        try:
            self.record.body = json.loads(self.request.body)
        except ValueError:
            self.record.body = None

    def _limit_headers(self) -> None:
        limits = self.backstage.stage.limits()
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + limits["reset"]))
        for kind, factor in (("requests", 1), ("tokens", 500), ("input-tokens", 400), ("output-tokens", 100)):
            self.set_header(f"anthropic-ratelimit-{kind}-limit", str(limits["limit"] * factor))
            self.set_header(f"anthropic-ratelimit-{kind}-remaining", str(limits["remaining"] * factor))
            self.set_header(f"anthropic-ratelimit-{kind}-reset", ends)

    # --- playing

    async def _perform(self, show: Performance) -> None:
        await self._wait(show.latency)
        fault = show.fault
        if fault is not None and fault.status is not None:
            self._fail(fault, fault.status)
        elif fault is not None and fault.cut == "before_response":
            await self._sever(fault.how)
        elif show.stream:
            await self._stream(show)
        else:
            await self._plain(show)

    def _fail(self, fault: Fault, status: int) -> None:
        for name, value in fault.headers.items():
            self.set_header(name, value)
        if fault.html:
            self.set_status(status, "Refused")
            self.record.status = status
            self.set_header("Content-Type", "text/html")
            self.finish(f"<html><body><h1>{status}</h1>{fault.message or ''}</body></html>")
            return
        kind = fault.type or ERROR_TYPES.get(status, "api_error")
        message = fault.message or f"the script plays {status} here"
        self.refuse(Refusal(message, status, kind), code=fault.code)

    async def _stream(self, show: Performance) -> None:
        self.record.status = 200
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("Cache-Control", "no-cache")
        if show.fault is not None and show.fault.empty:
            await self.finish()
            return
        await self._send(start_frames(show.answer), 0)
        if show.fault is not None and await self._spoil(show, show.fault):
            return
        await self._wait(show.think_time)
        for index in range(len(show.answer.blocks)):
            await self._send(block_frames(show.answer, index, show.step.chunk), show.pace)
        self.write(b"".join(end_frames(show.answer)))
        await self.finish()

    async def _spoil(self, show: Performance, fault: Fault) -> bool:
        """Play a fault in the middle of a stream; say whether the answer ends with it."""
        if "mid_block" in {fault.cut, fault.eof}:
            await self._send(_up_to_mid_block(show), show.pace)
        match fault.kind:
            case "stall":
                await self.flush()
                await self._wait(fault.stall or 0)
                return False
            case "pings":
                await self._ping(fault.pings or 0)
                return False
            case "cut":
                await self._sever(fault.how)
                return True
            case "error_event":
                kind = fault.error_event or "api_error"
                self.write(error_frame(kind, fault.message or f"the script plays {kind} here"))
            case "bad_json":
                self.write(b'event: content_block_start\ndata: {"type": "content_block_start", "index\n\n')
        await self.finish()
        return True

    async def _ping(self, seconds: float) -> None:
        ends, pause = time.monotonic() + seconds, min(1.0, seconds / 4)
        while time.monotonic() < ends:
            self.write(PING)
            await self.flush()
            await self._wait(pause)

    async def _plain(self, show: Performance) -> None:
        """Answer without a stream; faults that only a stream can have become their nearest relation."""
        fault = show.fault
        body = json.dumps(show.answer.message())
        await self._wait(show.think_time + ((fault.stall or fault.pings or 0) if fault else 0))
        if fault is not None and (fault.cut or fault.eof):
            await self._sever(fault.how)
            return
        if fault is not None and fault.error_event:
            status = _STATUS_OF.get(fault.error_event, 500)
            self.refuse(Refusal(fault.message or "the script plays it", status, fault.error_event))
            return
        if fault is not None and (fault.empty or fault.bad_json):
            body = body[: len(body) // 2] if fault.bad_json else ""
        self.record.status = 200
        self.set_header("Content-Type", "application/json")
        await self.finish(body)

    async def _send(self, frames: Iterable[bytes], pace: float) -> None:
        """Send frames: all at once, or one every `pace` seconds."""
        if pace <= 0:
            self.write(b"".join(frames))
            await self.flush()
            return
        for frame in frames:
            self.write(frame)
            await self.flush()
            await self._wait(pace)

    async def _wait(self, seconds: float) -> None:
        """Wait; raises _ClientLeftError as soon as the client is gone."""
        if seconds > 0:
            try:
                await asyncio.wait_for(self._gone.wait(), seconds)
            except TimeoutError:
                return
        if self._gone.is_set():
            raise _ClientLeftError

    async def _sever(self, how: str) -> None:
        """End the connection the hard way: with a reset, or closed in the middle of the answer."""
        await asyncio.sleep(_SETTLE)
        self._severed = True
        self.record.finished = time.time()
        stream = self.detach()
        if how == "rst" and stream.socket is not None:
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.close()


def _up_to_mid_block(show: Performance) -> Iterator[bytes]:
    """Yield all blocks but the last, and of that the start and about half of its deltas."""
    last = len(show.answer.blocks) - 1
    if last < 0:
        return
    for index in range(last):
        yield from block_frames(show.answer, index, show.step.chunk)
    sent = max(len(show.answer.arguments[last]), *(len(str(value)) for value in show.answer.blocks[last].values()))
    frames = list(block_frames(show.answer, last, max(1, min(show.step.chunk, sent // 4))))
    yield from frames[: min(len(frames) - 1, max(2, len(frames) // 2))]
