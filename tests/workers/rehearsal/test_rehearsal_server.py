"""The server around the messages: models, liveness, the recording, threads, the command's loop."""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path

import anthropic
import httpx2
import pytest
from rehearsal_stand import Raise, answered, script, user

from workers.rehearsal import RehearsalServer, ServerStartError, how_to_use, running

HI = {"blocks": [{"text": "hi"}], "repeat": 5}
KEY = {"x-api-key": "rehearsal"}


@pytest.mark.parametrize(
    ("model", "limits", "forms", "efforts"),
    [
        ("claude-sonnet-5-5", (1_000_000, 128_000), {"adaptive", "between_tools", "disabled"}, True),
        ("claude-haiku-4-5", (200_000, 64_000), {"enabled", "disabled"}, False),
        ("rehearsal-plain", (200_000, 64_000), {"disabled"}, False),
        ("rehearsal-always", (1_000_000, 128_000), {"adaptive"}, True),
    ],
)
async def test_models_are_described(
    stand: Raise, model: str, limits: tuple[int, int], forms: set[str], efforts: bool
) -> None:
    """`models.retrieve` tells limits, thinking forms and efforts, as the refusals have them."""
    at = await stand(HI)
    info = await at.client.models.retrieve(model)
    assert (info.max_input_tokens, info.max_tokens) == limits
    assert info.capabilities is not None
    types = info.capabilities.thinking.types.to_dict()
    assert {form for form, answer in types.items() if answer["supported"]} == forms
    assert info.capabilities.effort.supported is efforts
    assert info.capabilities.effort.low.supported is efforts


async def test_models_are_listed_with_the_scripts_own(stand: Raise) -> None:
    """The list has the built-in models and those of the script; an unknown one is a 404."""
    at = await stand(HI, models={"tiny": {"max_tokens": 10}})
    names = [model.id async for model in at.client.models.list()]
    assert {"claude-opus-5-5", "claude-haiku-5-5", "tiny"} <= set(names)
    assert (await at.client.models.retrieve("tiny")).max_tokens == 10
    with pytest.raises(anthropic.NotFoundError):
        await at.client.models.retrieve("claude-nine")


async def test_tokens_are_counted(stand: Raise) -> None:
    """`count_tokens` gives what the call itself counts, and refuses what it cannot read."""
    at = await stand(HI)
    request = {name: value for name, value in at.request().items() if name != "max_tokens"}
    counted = await at.client.messages.count_tokens(**request)
    assert counted.input_tokens == (await at.stream()).usage.input_tokens
    with pytest.raises(anthropic.BadRequestError, match="at least one message"):
        await at.client.messages.count_tokens(**{**request, "messages": []})


async def test_liveness_needs_no_key_and_the_rest_does(stand: Raise) -> None:
    """`HEAD /` and `GET /` answer anybody; everything else is 401 without a key, and 404 where nothing is."""
    at = await stand(HI)
    async with httpx2.AsyncClient(base_url=at.server.url) as client:
        assert (await client.head("/")).status_code == 200
        assert (await client.get("/")).status_code == 200
        for path in ("/v1/models", "/rehearsal/requests", "/v1/elsewhere"):
            assert (await client.get(path)).status_code == 401
        missing = await client.post("/v1/elsewhere", headers=KEY)
        assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")
        wrong_method = await client.get("/v1/messages", headers=KEY)
        assert (wrong_method.status_code, wrong_method.json()["type"]) == (405, "error")
        assert wrong_method.headers["request-id"] == wrong_method.json()["request_id"]


async def test_every_answer_has_its_headers(stand: Raise) -> None:
    """Each answer has a request id of its own and the rate limit headers."""
    at = await stand(HI)
    ids = set()
    for _ in range(2):
        answer = await at.client.messages.with_raw_response.create(**at.request())
        ids.add(answer.headers["request-id"])
        assert int(answer.headers["anthropic-ratelimit-input-tokens-remaining"]) > 0
        assert answer.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
    assert len(ids) == 2


async def test_requests_are_recorded(stand: Raise) -> None:
    """A record says who asked, at which step, with which body, and how it went; also over HTTP."""
    at = await stand({"blocks": [{"text": "hi"}], "fault": {"status": 529}}, HI)
    with pytest.raises(anthropic.OverloadedError):
        await at.stream()
    first = await at.stream()
    await at.stream([user("go"), answered(first), user("on")])
    records = at.server.requests
    assert [(r.n, r.unit, r.attempt, r.step, r.status, r.fault) for r in records] == [
        (1, "a", 1, 0, 529, "status"),
        (2, "a", 1, 0, 200, ""),
        (3, "a", 1, 1, 200, ""),
    ]
    assert records[2].body is not None
    assert records[2].body["messages"][-1] == user("on")
    assert records[0].headers["anthropic-version"]
    assert "x-api-key" not in {name.lower() for name in records[0].headers}
    assert all(r.finished is not None and r.disconnected is None for r in records)
    async with httpx2.AsyncClient(base_url=at.server.url, headers=KEY) as client:
        told = (await client.get("/rehearsal/requests")).json()
    assert [item["step"] for item in told["requests"]] == [0, 0, 1]
    assert told["units"]["a"]["calls"] == 3
    assert told["repeats"][0]["calls"] == 2


async def test_bodies_may_be_left_out(stand: Raise) -> None:
    """Without bodies the counts remain: calls by unit with times, and repeats of the same request."""
    at = await stand(HI, record_bodies=False)
    began = time.time()
    for _ in range(3):
        await at.stream()
    assert [record.body for record in at.server.requests] == [None] * 3
    tally = at.server.units["a"]
    assert tally.calls == 3
    assert began <= tally.first < tally.last <= time.time()
    assert [(key[:3], calls) for key, calls in at.server.repeats.items()] == [(("a", 1, 0), 3)]


async def test_refusals_are_recorded_with_their_reason(stand: Raise) -> None:
    """A refused request is in the recording with status and message."""
    at = await stand(HI)
    await at.refused("max_tokens", max_tokens=0)
    record = at.server.requests[0]
    assert record.status == 400
    assert "max_tokens" in record.error


async def test_key_is_configurable() -> None:
    """Another key than the default one is taken alone, in either header."""
    server = RehearsalServer(script(HI), key="other")
    await server.start()
    try:
        async with httpx2.AsyncClient(base_url=server.url) as client:
            for headers, status in (
                ({"x-api-key": "other"}, 200),
                ({"authorization": "Bearer other"}, 200),
                (KEY, 401),
            ):
                assert (await client.get("/v1/models", headers=headers)).status_code == status
    finally:
        await server.stop()


async def test_server_can_be_stopped_twice_and_started_again() -> None:
    """`stop` without a start does nothing, and a stopped server starts again on the same port."""
    server = RehearsalServer(script(HI))
    await server.stop()
    await server.start()
    port = server.port
    await server.stop()
    await server.stop()
    await server.start()
    try:
        assert server.port == port
    finally:
        await server.stop()


async def test_port_in_use_is_said() -> None:
    """A port that somebody else has is an error that names it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = RehearsalServer(script(HI), port=taken.getsockname()[1])
        with pytest.raises(ServerStartError, match=rf"127\.0\.0\.1:{server.port}.*another port"):
            await server.start()


def test_running_in_a_thread_serves_synchronous_code() -> None:
    """`running` gives a server to code without an event loop, and takes it away at the end."""
    with running(script(HI)) as server:
        with anthropic.Anthropic(base_url=server.url, api_key="rehearsal", max_retries=0) as client:
            message = client.messages.create(
                model="claude-sonnet-5-5", max_tokens=10, system="unit: a", messages=[{"role": "user", "content": "go"}]
            )
        assert message.content[0].type == "text"
        assert server.requests[0].unit == "a"
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(server.url)


def test_running_passes_on_that_it_cannot_start() -> None:
    """A server that cannot listen raises in the caller's thread, and leaves no thread behind."""
    with running(script(HI)) as server, pytest.raises(ServerStartError), running(script(HI), port=server.port):
        pytest.fail("it must not start")


async def test_serve_announces_itself_and_ends_on_interrupt(tmp_path: Path) -> None:
    """`serve` says where it listens and how to use it, serves, and ends cleanly on Ctrl-C."""
    path = tmp_path / "night.yaml"
    path.write_text("default: [{blocks: [{text: hello}]}]", encoding="utf-8")
    code = (
        "import sys; from pathlib import Path; from workers.rehearsal import serve; "
        "print(serve(Path(sys.argv[1]), announce=lambda text: print(text, flush=True)))"
    )
    root = Path(__file__).parents[3]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        str(path),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    said = [(await asyncio.wait_for(process.stdout.readline(), 20)).decode() for _ in range(3)]
    assert "export ANTHROPIC_API_KEY=rehearsal" in said[2]
    url = said[1].split("ANTHROPIC_BASE_URL=")[1].strip()
    async with httpx2.AsyncClient() as client:
        assert (await client.get(url)).status_code == 200
    process.send_signal(signal.SIGINT)
    rest = (await asyncio.wait_for(process.stdout.read(), 10)).decode()
    assert await process.wait() == 0
    assert "rehearsal ended: 0 requests" in rest


async def test_how_to_use_names_address_and_key() -> None:
    """What the command prints is enough to point a worker at the server."""
    server = RehearsalServer(script(HI), port=4711)
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:4711" in how_to_use(server)
