"""One model call through the real SDK: whole, or a ModelError whose kind says what is worth doing."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from workers.errors import ModelError
from workers.model.assembly import Answer
from workers.model.catalog import Parameters, card
from workers.model.client import ModelClient
from workers.model.headroom import Headroom
from workers.model.key import read_key
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

        def make(*steps: dict[str, Any], stall: float = 600.0, **more: Any) -> Caller:
            server = rehearse({"units": {"a": {"steps": list(steps)}}, **more})
            client = ModelClient(AgentOrder(model=MODEL, base_url=server.url), stall=stall)
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
        ({"status": 400, "message": "prompt is too long: 1000001 tokens > 1000000 maximum"}, "too_large"),
        ({"status": 400, "message": "Input is too long for requested model."}, "too_large"),
        ({"status": 400, "message": "input length and `max_tokens` exceed context limit: 9 + 9 > 10"}, "too_large"),
        ({"status": 413}, "too_large"),
        ({"status": 413, "html": True}, "too_large"),
        ({"status": 400, "html": True}, "invalid"),
        ({"status": 408}, "transient"),
        ({"status": 409}, "transient"),
        ({"status": 429}, "rate_limit"),
        ({"status": 429, "code": "enforced_spend_limit_reached"}, "spend_limit"),
        ({"status": 429, "code": "contract_spend_limit_reached"}, "spend_limit"),
        ({"status": 429, "code": "linked_organization_spend_limit_reached"}, "spend_limit"),
        ({"status": 429, "html": True}, "rate_limit"),
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
        ({"error_event": "invalid_request_error", "message": "prompt is too long: 2 tokens > 1"}, "too_large"),
        ({"error_event": "something_new"}, "transient"),
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
async def test_a_silent_stream_is_given_up(connect: Connect, fault: dict[str, Any]) -> None:
    """Silence, and pings alone, end as a transient error after the stall time, and the connection is closed."""
    call = connect({"blocks": [LONG], "fault": fault}, stall=0.3)
    error = await call.fails()
    assert error.kind == "transient"
    await until(lambda: call.server.requests[0].disconnected)


async def test_a_hang_before_the_answer(connect: Connect) -> None:
    """A server that never begins to answer is given up too."""
    call = connect({"blocks": [LONG], "latency": 5}, stall=0.2)
    assert (await call.fails()).kind == "transient"


async def test_a_slow_stream_is_no_silent_one(connect: Connect) -> None:
    """A stream that goes on all the time may take longer than the stall time."""
    call = connect({"blocks": [{"text": "x" * 40}], "chunk": 4, "pace": 0.06}, stall=0.3)
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


async def test_half_a_character(raw_server: RawServer) -> None:
    """Text with half a surrogate pair could not be sent back, nor reported: it is stored without."""
    client = await raw_server(
        sse(
            START,
            *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "a \ud83d b"}),
            ends("end_turn"),
            STOP,
        )
    )
    answer = await client.call(MODEL, ASKED, PARAMETERS)
    assert answer.content == [{"type": "text", "text": "a ? b"}]


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


async def test_describe(connect: Connect, raw_server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up costs no message: a known model is described, an unknown one is invalid, a refused key is auth."""
    call = connect()
    found = await call.client.describe(MODEL)
    assert found is not None
    assert (found.window, found.output, found.price) == (1_000_000, 128_000, card(MODEL).price)
    with pytest.raises(ModelError) as caught:
        await call.client.describe("claude-nobody")
    assert caught.value.kind == "invalid"
    assert "claude-nobody" in str(caught.value)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "wrong")
    stranger = ModelClient(AgentOrder(model=MODEL, base_url=call.server.url))
    with pytest.raises(ModelError) as caught:
        await stranger.describe(MODEL)
    assert caught.value.kind == "auth"
    await stranger.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\nConnection: close\r\n\r\n<p>",
    ],
    ids=["404", "a page"],
)
async def test_an_endpoint_without_the_look_up(raw_server: RawServer, answer: bytes) -> None:
    """A gateway that does not know of models is no error: the table has to do."""
    assert await (await raw_server(answer)).describe(MODEL) is None


async def test_half_a_description(raw_server: RawServer) -> None:
    """What an endpoint leaves out, or says in a form of its own, is as the table has it."""
    body = json.dumps({"type": "model", "id": MODEL, "max_tokens": 5000, "max_input_tokens": "a lot"}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
    found = await (await raw_server(head + str(len(body)).encode() + b"\r\n\r\n" + body)).describe(MODEL)
    known = card(MODEL)
    assert found is not None
    assert (found.output, found.window, found.thinking) == (5000, known.window, known.thinking)


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
def test_key_command_fails(command: str, words: str) -> None:
    """A command that fails, prints nothing or hangs is an error that says so."""
    with pytest.raises(ModelError, match=words) as caught:
        read_key(AgentOrder(model=MODEL, key_command=command), seconds=0.2)
    assert caught.value.kind == "auth"


async def test_a_key_that_expired_is_asked_for_again(connect: Connect, tmp_path: Path) -> None:
    """A refused key is fetched once more from its command, and the call goes on with the new one."""
    call = connect({"blocks": [LONG]})
    key = tmp_path / "key"
    key.write_text("old")
    client = ModelClient(AgentOrder(model=MODEL, base_url=call.server.url, key_command=f"cat {key}"))
    with pytest.raises(ModelError) as caught:
        await client.call(MODEL, ASKED, PARAMETERS)
    assert caught.value.kind == "auth"
    assert len(call.server.requests) == 1
    key.write_text(call.server.key)
    both = await asyncio.gather(*(client.call(MODEL, ASKED, PARAMETERS) for _ in range(2)))
    assert [answer.stop_reason for answer in both] == ["end_turn"] * 2
    await client.close()


async def test_one_pool_serves_several_models(connect: Connect) -> None:
    """The agent's model and a background one are asked through the same client."""
    call = connect({"blocks": [LONG]})
    await call()
    await call.client.call("claude-haiku-4-5", ASKED, Parameters(2000))
    assert [record.body["model"] for record in call.server.requests] == [MODEL, "claude-haiku-4-5"]


async def test_arguments_that_were_cut_off(connect: Connect) -> None:
    """Half a JSON that the SDK would complete into another command is not trusted (facts: stop reasons)."""
    half = '{"command":"rm -rf build","cwd":"/tmp/onl'
    answer = await connect({"blocks": [{"tool": "bash", "raw": half}], "stop": "max_tokens"})()
    assert answer.stop_reason == "max_tokens"
    (block,) = answer.content
    assert block["input"] == {}
    assert answer.unreadable == {block["id"]: half}


async def test_headroom_is_heard_as_the_answer_begins(raw_server: RawServer) -> None:
    """What is left of the limits is known before the answer is whole, and even if it never is."""
    told = (
        b"HTTP/1.1 200 OK\r\nDate: Tue, 17 Nov 2026 20:00:00 GMT\r\nanthropic-ratelimit-requests-limit: 50\r\n"
        b"anthropic-ratelimit-requests-remaining: 0\r\nanthropic-ratelimit-requests-reset: 2026-11-17T20:00:07Z\r\n"
    )
    client = await raw_server(sse(START).replace(b"HTTP/1.1 200 OK\r\n", told))
    heard: list[Headroom] = []
    with pytest.raises(ModelError):
        await client.call(MODEL, ASKED, PARAMETERS, on_headroom=heard.append)
    assert heard == [Headroom(pause=7.0)]


# -- the clouds -------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_cloud(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that knows no cloud."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("provider", ["bedrock", "vertex"])
def test_a_missing_package_is_named_with_its_extra(provider: Any, no_cloud: pytest.MonkeyPatch) -> None:
    """Whoever lacks a cloud's package reads what to install, before anything is asked."""
    no_cloud.setattr("workers.model.key._is_there", lambda _: False)
    with pytest.raises(ModelError, match=rf"pip install 'overnight\[{provider}\]'") as caught:
        ModelClient(AgentOrder(model=MODEL, provider=provider, region="eu-west-1", project="p"))
    assert caught.value.kind == "auth"


@pytest.mark.parametrize("provider", ["bedrock", "vertex"])
def test_a_missing_region_is_named(provider: Any, no_cloud: pytest.MonkeyPatch) -> None:
    """Without a region nobody knows where to ask."""
    no_cloud.setattr("workers.model.key._is_there", lambda name: "boto" not in name)
    with pytest.raises(ModelError, match="needs a region") as caught:
        ModelClient(AgentOrder(model=MODEL, provider=provider, key_command="echo token"))
    assert caught.value.kind == "auth"


async def test_vertex_streams(raw_server: RawServer, no_cloud: pytest.MonkeyPatch) -> None:
    """The SDK's own client of the cloud, with a token that a command prints; it has no look-up of models."""
    whole = sse(START, *block(0, {"type": "text", "text": "Hi"}), ends("end_turn"), STOP)
    url = (await raw_server(whole))._agent.base_url
    agent = AgentOrder(
        model=MODEL, provider="vertex", base_url=url, region="europe-west1", project="p", key_command="echo token"
    )
    client = ModelClient(agent)
    assert await client.describe(MODEL) is None
    assert (await client.call(MODEL, ASKED, PARAMETERS)).content == [{"type": "text", "text": "Hi"}]
    await client.close()


async def test_bedrock_is_asked(raw_server: RawServer, no_cloud: pytest.MonkeyPatch) -> None:
    """Its errors, whose form is another, become ours."""
    body = b'{"message": "Input is too long for requested model."}'
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
    url = (await raw_server(head + str(len(body)).encode() + b"\r\n\r\n" + body))._agent.base_url
    agent = AgentOrder(model=MODEL, provider="bedrock", base_url=url, region="eu-west-1", key_command="echo token")
    client = ModelClient(agent)
    with pytest.raises(ModelError) as caught:
        await client.call(MODEL, ASKED, PARAMETERS)
    assert (caught.value.kind, caught.value.status) == ("too_large", 400)
    await client.close()


def test_a_fingerprint_does_not_tell_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another key or endpoint is another door; a cloud's passing tokens are not."""

    def door(key: str, **more: Any) -> str:
        monkeypatch.setenv("ANTHROPIC_API_KEY", key)
        return ModelClient(AgentOrder(model=MODEL, **more)).fingerprint

    assert door("k1") == door("k1") != door("k2")
    assert door("k1") != door("k1", base_url="http://gateway")
    assert "k1" not in door("k1")
    cloud = {"provider": "vertex", "region": "eu", "project": "p"}
    assert door("k", **cloud, key_command="echo 1") == door("k", **cloud, key_command="echo 2")
    assert door("k", **cloud, key_command="echo 1") != door("k", **cloud | {"project": "q"}, key_command="echo 1")
