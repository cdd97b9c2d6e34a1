"""One model call through the real SDK: whole, or a ModelError whose kind says what is worth doing."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from workers.errors import ModelError
from workers.model import client as client_module
from workers.model.catalog import Parameters
from workers.model.client import Answer, ModelClient, Patience
from workers.orders import AgentOrder
from workers.session.events import Usage
from workers.session.surface import Request

MODEL = "claude-sonnet-5-5"
ASKED = Request(
    [{"type": "text", "text": "unit: a"}],
    [{"name": "bash", "description": "Run.", "input_schema": {"type": "object"}}],
    [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
)
PARAMETERS = Parameters(2000, {"type": "adaptive"}, {"effort": "low"})
LONG = {"text": "a long answer, cut somewhere in the middle of it"}


async def until(condition: Callable[[], object], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


class Caller:
    """A client, and what the server that it talks to was asked."""

    def __init__(self, server: Any, client: ModelClient) -> None:
        self.server = server
        self.client = client

    async def __call__(self, **more: Any) -> Answer:
        return await self.client.call(MODEL, ASKED, PARAMETERS, **more)

    async def fails(self) -> ModelError:
        """Call, expect an error, and expect that it was asked for once: no retry that nobody can cancel."""
        with pytest.raises(ModelError) as caught:
            await self()
        assert len(self.server.requests) == 1
        return caught.value


Connect = Callable[..., Caller]


@pytest.fixture
async def connect(rehearse: Any) -> AsyncIterator[Connect]:
    """Make clients of a server that plays these steps."""
    async with AsyncExitStack() as opened:

        def make(*steps: dict[str, Any], **more: Any) -> Caller:
            server = rehearse({"units": {"a": {"steps": list(steps)}}, **more})
            client = ModelClient(AgentOrder(model=MODEL, base_url=server.url))
            opened.push_async_callback(client.close)
            return Caller(server, client)

        yield make


RawServer = Callable[[bytes], Awaitable[ModelClient]]


@pytest.fixture
async def raw_server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RawServer]:
    """Make a client of an HTTP server that answers every request with these bytes."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    async with AsyncExitStack() as opened:

        async def make(answer: bytes) -> ModelClient:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (line.split(b":")[1] for line in head.lower().split(b"\r\n") if b"content-len" in line), b"0"
                )
                await reader.readexactly(int(length))
                writer.write(answer)
                await writer.drain()
                writer.close()

            server = await opened.enter_async_context(await asyncio.start_server(serve, "127.0.0.1", 0))
            port = server.sockets[0].getsockname()[1]
            client = ModelClient(AgentOrder(model=MODEL, base_url=f"http://127.0.0.1:{port}"))
            opened.push_async_callback(client.close)
            return client

        yield make


def sse(*events: dict[str, Any]) -> bytes:
    frames = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + frames.encode()


START = {
    "type": "message_start",
    "message": {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
    },
}
STOP = {"type": "message_stop"}


def ends(reason: str | None, **usage: int) -> dict[str, Any]:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": {"output_tokens": 7, **usage},
    }


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


async def test_a_whole_answer(connect: Connect) -> None:
    """Blocks come in order and in the API's own JSON; usage, stop reason and request id with them; text streams."""
    call = connect(
        {
            "blocks": [{"thinking": "hm"}, {"text": "Hello there."}, {"tool": "bash", "input": {"command": "ls"}}],
            "usage": {"input_tokens": 5, "output_tokens": 6},
            "chunk": 4,
        }
    )
    heard: list[str] = []
    answer = await call(on_text=heard.append)
    assert [sorted(found) for found in answer.content] == [
        ["signature", "thinking", "type"],
        ["text", "type"],
        ["id", "input", "name", "type"],
    ]
    assert answer.content[2]["input"] == {"command": "ls"}
    assert (answer.stop_reason, answer.unreadable) == ("tool_use", {})
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (5, 6)
    assert answer.request_id.startswith("req_")
    assert "".join(heard) == "Hello there."
    assert len(heard) > 1
    asked = call.server.requests[0].body
    assert {key: asked[key] for key in ("max_tokens", "thinking", "output_config", "stream")} == {
        "max_tokens": 2000,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
        "stream": True,
    }


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"status": 400}, "invalid"),
        ({"status": 404}, "invalid"),
        ({"status": 401}, "auth"),
        ({"status": 403}, "auth"),
        ({"status": 402}, "spend_limit"),
        ({"status": 413}, "too_large"),
        ({"status": 413, "html": True}, "too_large"),
        ({"status": 400, "html": True}, "invalid"),
        ({"status": 408}, "transient"),
        ({"status": 409}, "transient"),
        ({"status": 429}, "rate_limit"),
        ({"status": 429, "code": "enforced_spend_limit_reached"}, "spend_limit"),
        ({"status": 429, "code": "contract_spend_limit_reached"}, "spend_limit"),
        ({"status": 500}, "transient"),
        ({"status": 504}, "transient"),
        ({"status": 529}, "transient"),
        ({"status": 502, "html": True}, "transient"),
        ({"error_event": "overloaded_error"}, "transient"),
        ({"error_event": "api_error"}, "transient"),
        ({"error_event": "rate_limit_error"}, "rate_limit"),
        ({"error_event": "invalid_request_error"}, "invalid"),
        ({"error_event": "authentication_error"}, "auth"),
        ({"error_event": "billing_error"}, "spend_limit"),
        ({"error_event": "request_too_large"}, "too_large"),
        ({"cut": "before_response"}, "transient"),
        ({"cut": "before_response", "how": "fin"}, "transient"),
        ({"cut": "after_start"}, "transient"),
        ({"cut": "mid_block"}, "transient"),
        ({"cut": "mid_block", "how": "fin"}, "transient"),
        ({"eof": "after_start"}, "transient"),
        ({"eof": "mid_block"}, "transient"),
        ({"empty": True}, "transient"),
        ({"bad_json": True}, "transient"),
    ],
    ids=str,
)
async def test_every_failure_has_a_kind(connect: Connect, fault: dict[str, Any], kind: str) -> None:
    """Each row of the failure table: one attempt, an error of the right kind with its facts; then the step plays."""
    call = connect({"blocks": [LONG], "chunk": 8, "fault": fault})
    error = await call.fails()
    assert error.kind == kind
    if "status" in fault:
        assert error.status == fault["status"]
    if not fault.get("html") and ("status" in fault or "error_event" in fault):
        assert error.error_type
        assert error.request_id.startswith("req_")
    assert (await call()).content == [{"type": "text", **LONG}]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Tue, 17 Nov 2026 20:00:00 GMT"}, None),
        ({}, None),
    ],
)
async def test_retry_after(connect: Connect, headers: dict[str, str], seconds: float | None) -> None:
    """The header's seconds are in the error; the client itself waits for nothing."""
    call = connect({"blocks": [LONG], "fault": {"status": 429, "headers": headers}})
    assert (await call.fails()).retry_after == seconds


@pytest.mark.parametrize("fault", [{"stall": 5}, {"pings": 5}], ids=str)
async def test_a_silent_stream_is_given_up(
    connect: Connect, fault: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence, and pings alone, end as a transient error after the stall time, and the connection is closed."""
    monkeypatch.setattr(client_module, "_STALL_SECONDS", 0.3)
    call = connect({"blocks": [LONG], "fault": fault})
    error = await call.fails()
    assert error.kind == "transient"
    await until(lambda: call.server.requests[0].disconnected)


async def test_a_hang_before_the_answer(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never begins to answer is given up too."""
    monkeypatch.setattr(client_module, "_STALL_SECONDS", 0.2)
    call = connect({"blocks": [LONG], "latency": 5})
    assert (await call.fails()).kind == "transient"


async def test_a_slow_stream_is_no_silent_one(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that goes on all the time may take longer than the stall time."""
    monkeypatch.setattr(client_module, "_STALL_SECONDS", 0.3)
    call = connect({"blocks": [{"text": "x" * 40}], "chunk": 4, "pace": 0.06})
    assert (await call()).stop_reason == "end_turn"


async def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection is transient."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    client = ModelClient(AgentOrder(model=MODEL, base_url="http://127.0.0.1:1"))
    with pytest.raises(ModelError) as caught:
        await client.call(MODEL, ASKED, PARAMETERS)
    assert caught.value.kind == "transient"
    await client.close()


async def test_cancelling_closes_the_connection(connect: Connect) -> None:
    """A cancelled call ends within moments and the server sees its client leave."""
    call = connect({"blocks": [LONG], "think_time": 10})
    task = asyncio.create_task(call())
    await until(lambda: call.server.requests and call.server.requests[0].status)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: call.server.requests[0].disconnected)
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    "stop", [[], [ends("end_turn")], [STOP], [ends(None), STOP]], ids=["eof", "open", "bare", "null"]
)
async def test_half_an_answer_is_an_error(raw_server: RawServer, stop: list[dict[str, Any]]) -> None:
    """Without both a stop reason and `message_stop` there is no answer."""
    hello = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi"})
    client = await raw_server(sse(START, *hello, *stop))
    with pytest.raises(ModelError) as caught:
        await client.call(MODEL, ASKED, PARAMETERS)
    assert caught.value.kind == "transient"


async def test_a_stranger_passes(raw_server: RawServer) -> None:
    """Events, blocks, deltas and stop reasons that a later API adds do not break an answer; blocks come unchanged."""
    stranger = {"type": "hologram", "depth": 3}
    text = block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi"}, {"type": "mood_delta", "m": 1})
    client = await raw_server(
        sse(START, {"type": "weather", "sun": 1}, *block(0, stranger), *text, ends("sundown", input_tokens=9), STOP)
    )
    answer = await client.call(MODEL, ASKED, PARAMETERS)
    assert answer.content == [stranger, {"type": "text", "text": "Hi"}]
    assert answer.stop_reason == "sundown"
    assert answer.usage == Usage(input_tokens=9, output_tokens=7)


async def test_what_must_not_go_back_is_dropped(raw_server: RawServer) -> None:
    """Blank text and unsigned thinking are left out; a signed block with empty thinking is kept as it came."""
    signed = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    client = await raw_server(
        sse(
            START,
            *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": " \n"}),
            *block(
                1, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "x"}
            ),
            *block(
                2,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "signature_delta", "signature": "c2ln"},
            ),
            ends("end_turn"),
            STOP,
        )
    )
    assert (await client.call(MODEL, ASKED, PARAMETERS)).content == [signed]


@pytest.mark.parametrize(
    ("raw", "given"),
    [
        ('{"a": {"b": [1, null]}}', {"a": {"b": [1, None]}}),
        ("", {}),
        ('{"a": 1', None),
        ('{"a": 1} x', None),
        ("[1]", None),
        ('"a"', None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        ('{"a": "\\ud83d"}', None),
        ('{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        ('{"a": ' + "[" * 100_000, None),
    ],
    ids=range(11),
)
async def test_arguments_are_read_strictly(raw_server: RawServer, raw: str, given: dict[str, Any] | None) -> None:
    """Only a JSON object that can be stored and sent is trusted; else the raw text is kept beside an empty one."""
    halves = [{"type": "input_json_delta", "partial_json": part} for part in (raw[:5], raw[5:])]
    client = await raw_server(
        sse(
            START,
            *block(0, {"type": "tool_use", "id": "t", "name": "bash", "input": {}}, *halves),
            ends("tool_use"),
            STOP,
        )
    )
    answer = await client.call(MODEL, ASKED, PARAMETERS)
    assert answer.content == [{"type": "tool_use", "id": "t", "name": "bash", "input": given or {}}]
    assert answer.unreadable == ({} if given is not None else {"t": raw})


async def test_check(connect: Connect, raw_server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up costs no message: a known model passes, an unknown one is invalid, a refused key is auth."""
    call = connect()
    await call.client.check(MODEL)
    with pytest.raises(ModelError) as caught:
        await call.client.check("claude-nobody")
    assert caught.value.kind == "invalid"
    assert "claude-nobody" in str(caught.value)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "wrong")
    stranger = ModelClient(AgentOrder(model=MODEL, base_url=call.server.url))
    with pytest.raises(ModelError) as caught:
        await stranger.check(MODEL)
    assert caught.value.kind == "auth"
    await stranger.close()
    bare = await raw_server(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
    await bare.check(MODEL)  # an endpoint without the look-up


async def test_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key anywhere the error says what to set."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    with pytest.raises(ModelError, match="set ANTHROPIC_API_KEY") as caught:
        ModelClient(AgentOrder(model=MODEL))
    assert caught.value.kind == "auth"


async def test_key_command(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that a command prints is the one that is used, whatever the environment has."""
    call = connect({"blocks": [LONG]})
    monkeypatch.setenv("ANTHROPIC_API_KEY", "wrong")
    client = ModelClient(AgentOrder(model=MODEL, base_url=call.server.url, key_command="echo rehearsal"))
    assert (await client.call(MODEL, ASKED, PARAMETERS)).stop_reason == "end_turn"
    await client.close()


@pytest.mark.parametrize(
    ("command", "words"),
    [("echo locked >&2; exit 2", "exit 2.*locked"), ("true", "exit 0"), ("sleep 9", "within 0.2 s")],
)
async def test_key_command_fails(command: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that fails, prints nothing or hangs is an error that says so."""
    monkeypatch.setattr(client_module, "_KEY_SECONDS", 0.2)
    with pytest.raises(ModelError, match=words) as caught:
        ModelClient(AgentOrder(model=MODEL, key_command=command))
    assert caught.value.kind == "auth"


# -- patience ---------------------------------------------------------------------------------------------------------

WHOLE = Answer([], "end_turn", Usage(), "r", {})


def tries(*errors: ModelError) -> tuple[Callable[[], Awaitable[Answer]], list[float]]:
    """An attempt that raises these in turn and then answers, and when it was made."""
    left, made = list(errors), []

    async def attempt() -> Answer:
        made.append(time.monotonic())
        if left:
            raise left.pop(0)
        return WHOLE

    return attempt, made


def limited(seconds: float | None) -> ModelError:
    return ModelError("rate_limit", "slow down", retry_after=seconds)


OVERLOADED = ModelError("transient", "overloaded")


async def test_one_pause_for_all() -> None:
    """A 429 with `retry-after` pauses every caller of the process until then, and each hears of it."""
    patience = Patience(base=0.01)
    first, first_made = tries(limited(0.3))
    second, second_made = tries()
    heard: list[float] = []
    task = asyncio.create_task(patience.call(first))
    await asyncio.sleep(0.05)
    assert 0.2 < patience.paused_for <= 0.3
    assert await patience.call(second, waiting=heard.append) is WHOLE
    assert await task is WHOLE
    assert len(second_made) == 1
    assert second_made[0] - first_made[0] >= 0.3
    assert first_made[1] - first_made[0] >= 0.3
    assert 0.2 < heard[0] <= 0.3
    assert patience.paused_for == 0


async def test_a_pause_is_capped() -> None:
    """However long the header says, the pause is no longer than the cap."""
    patience = Patience(base=0.01, cap=0.1)
    attempt, made = tries(limited(3600))
    await patience.call(attempt)
    assert 0.1 <= made[1] - made[0] < 2


async def test_rate_limits_never_run_out() -> None:
    """Rate limits spend no tries; other failures do, and the last one is raised."""
    patience = Patience(tries=3, base=0.001, cap=0.001)
    attempt, made = tries(*[limited(0.0)] * 6)
    assert await patience.call(attempt) is WHOLE
    assert len(made) == 7
    attempt, made = tries(OVERLOADED, limited(0.0), OVERLOADED, OVERLOADED)
    with pytest.raises(ModelError, match="overloaded"):
        await patience.call(attempt)
    assert len(made) == 4


@pytest.mark.parametrize("kind", ["spend_limit", "auth", "invalid", "too_large"])
async def test_what_waiting_will_not_mend(kind: Any) -> None:
    """Errors that would come again are raised at once."""
    attempt, made = tries(ModelError(kind, "no"))
    with pytest.raises(ModelError):
        await Patience().call(attempt)
    assert len(made) == 1


async def test_pauses_grow_up_to_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that name no time double the pause each time; none is ever shorter than a breath."""
    monkeypatch.setattr("random.uniform", lambda _, high: high)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds, 2))

    monkeypatch.setattr(client_module.asyncio, "sleep", sleep)
    patience = Patience(base=1, cap=10, tries=9)
    attempt, _ = tries(*[OVERLOADED] * 5)
    await patience.call(attempt)
    assert slept == [2, 4, 8, 10, 10]
    pauses = []
    for waits in (1, 2, 3, 4):
        patience = Patience(base=1, cap=10)
        await patience._back_off(limited(None), waits)
        pauses.append(round(patience.paused_for))
    assert pauses == [2, 4, 8, 10]
    patience = Patience(base=1, cap=10)
    await patience._back_off(limited(0), 1)
    assert patience.paused_for == pytest.approx(0.1, abs=0.02)


async def test_every_wait_of_a_call_makes_the_next_one_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rate limits without a time count as waits too: an API that only says "slow down" is asked ever more rarely."""
    counted: list[int] = []

    async def back_off(_: Patience, __: ModelError, waits: int) -> None:
        counted.append(waits)

    monkeypatch.setattr(Patience, "_back_off", back_off)
    attempt, _ = tries(limited(None), OVERLOADED, limited(None), limited(None))
    await Patience().call(attempt)
    assert counted == [1, 2, 3, 4]


@pytest.mark.parametrize("error", [limited(60), ModelError("transient", "overloaded", retry_after=60)])
async def test_waiting_can_be_cancelled(error: ModelError) -> None:
    """A cancel ends the wait at once, that of a pause and that of a back-off."""
    attempt, made = tries(error)
    task = asyncio.create_task(Patience().call(attempt))
    await asyncio.sleep(0.02)
    task.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 0.5
    assert len(made) == 1


async def test_against_a_server(connect: Connect) -> None:
    """A server that is overloaded, then limits, then answers: one whole answer in the end."""
    faults = [{"status": 529}, {"status": 429, "headers": {"retry-after": "0.1"}}, {"cut": "mid_block"}]
    call = connect({"blocks": [LONG], "fault": faults})
    answer = await Patience(base=0.01).call(call)
    assert answer.content == [{"type": "text", **LONG}]
    assert len(call.server.requests) == 4
