"""What the real SDK raises for every fault that a script can play (facts: streaming failures)."""

import asyncio
import time
from json import JSONDecodeError
from typing import Any

import anthropic
import httpx2
import pytest
from rehearsal_stand import Raise, Stand, answered, script, user

LONG = {"text": "a long answer, cut somewhere in the middle of it"}


def faulty(fault: Any, **more: Any) -> dict[str, Any]:
    return {"blocks": [{"text": "whole"}, LONG], "chunk": 8, "fault": fault, **more}


async def plays_on(at: Stand) -> None:
    """The next call gets the step."""
    assert (await at.stream()).content[1].text == LONG["text"]


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
        (413, anthropic.RequestTooLargeError, "request_too_large"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (504, anthropic.GatewayTimeoutError, "timeout_error"),
        (529, anthropic.OverloadedError, "overloaded_error"),
    ],
)
async def test_status(stand: Raise, status: int, error: type[anthropic.APIStatusError], kind: str) -> None:
    """An HTTP status is the SDK's own error class with the API's type; the next call plays the step."""
    at = await stand(faulty({"status": status}))
    with pytest.raises(error) as caught:
        await at.stream()
    assert caught.value.type == kind
    assert caught.value.request_id
    await plays_on(at)


async def test_status_with_headers_code_and_message(stand: Raise) -> None:
    """Headers, type, message and error code of the script reach the client."""
    fault = {
        "status": 429,
        "headers": {"retry-after": "2"},
        "type": "rate_limit_error",
        "message": "too fast",
        "code": "enforced_spend_limit_reached",
    }
    at = await stand(faulty(fault))
    with pytest.raises(anthropic.RateLimitError) as caught:
        await at.stream()
    assert caught.value.response.headers["retry-after"] == "2"
    assert caught.value.api_message == "too fast"
    assert caught.value.error_code == "enforced_spend_limit_reached"


async def test_status_with_an_html_body(stand: Raise) -> None:
    """A proxy's HTML page is an error without a type."""
    at = await stand(faulty({"status": 413, "html": True}))
    with pytest.raises(anthropic.RequestTooLargeError) as caught:
        await at.stream()
    assert caught.value.type is None


async def test_sdk_retries_after_the_header(stand: Raise) -> None:
    """With the SDK's own retries on, 429 and `retry-after` cost that long and then the step plays."""
    at = await stand(faulty({"status": 429, "headers": {"retry-after": "0.2"}}))
    began = time.monotonic()
    client = at.client.with_options(max_retries=1)
    message = await client.messages.create(**at.request())
    assert message.content[0].text == "whole"
    assert time.monotonic() - began >= 0.2
    assert [record.status for record in at.server.requests] == [429, 200]


async def test_times_and_sequences(stand: Raise) -> None:
    """A fault plays `times` times, then the next of the list, then the step."""
    at = await stand(faulty([{"status": 529, "times": 2}, {"status": 500}]))
    seen = []
    for _ in range(3):
        with pytest.raises(anthropic.APIStatusError) as caught:
            await at.stream()
        seen.append(caught.value.status_code)
    assert seen == [529, 529, 500]
    await plays_on(at)


async def test_times_count_per_session_and_step(stand: Raise) -> None:
    """Another attempt meets the fault afresh, and so does another step."""
    step = faulty({"status": 529})
    at = await stand(script(step, step))
    for system in ("unit: a\nattempt: 1", "unit: a\nattempt: 2"):
        with pytest.raises(anthropic.OverloadedError):
            await at.stream(system=system)
    first = await at.stream(system="unit: a\nattempt: 1")
    with pytest.raises(anthropic.OverloadedError):
        await at.stream([user("go"), answered(first), user("on")], system="unit: a\nattempt: 1")


@pytest.mark.parametrize("how", ["rst", "fin"])
async def test_cut_before_the_response(stand: Raise, how: str) -> None:
    """A connection that dies before the response is an APIConnectionError."""
    at = await stand(faulty({"cut": "before_response", "how": how}))
    with pytest.raises(anthropic.APIConnectionError):
        await at.stream()
    await plays_on(at)


@pytest.mark.parametrize(("how", "error"), [("rst", httpx2.ReadError), ("fin", httpx2.RemoteProtocolError)])
@pytest.mark.parametrize(("point", "begun"), [("after_start", 0), ("mid_block", 2)])
async def test_cut_in_the_stream(stand: Raise, how: str, error: type[Exception], point: str, begun: int) -> None:
    """A connection that dies in mid-stream is httpx2's error, after the blocks that had arrived."""
    at = await stand(faulty({"cut": point, "how": how}))
    events: list[str] = []
    with pytest.raises(error):
        await _note_events(at, events)
    assert events.count("content_block_start") == begun
    assert events.count("content_block_stop") == max(0, begun - 1)
    assert "message_stop" not in events
    await plays_on(at)


async def test_error_event(stand: Raise) -> None:
    """An error event is an APIStatusError with status 200 and the event's type."""
    at = await stand(faulty({"error_event": "overloaded_error"}))
    with pytest.raises(anthropic.APIStatusError) as caught:
        await at.stream()
    assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")
    await plays_on(at)


async def test_stall_beyond_the_read_timeout(stand: Raise) -> None:
    """Silence longer than the client's read timeout is a ReadTimeout, and the server sees the client leave."""
    at = await stand(faulty({"stall": 5}), patience=0.5)
    with pytest.raises(httpx2.ReadTimeout):
        await at.stream()
    await _until(lambda: at.server.requests[0].disconnected is not None)
    await plays_on(at)


async def test_stall_is_only_a_delay_for_the_patient(stand: Raise) -> None:
    """A client that waits gets the step after the silence."""
    at = await stand(faulty({"stall": 0.2}))
    began = time.monotonic()
    await plays_on(at)
    assert time.monotonic() - began >= 0.2


async def test_hang_before_the_first_byte(stand: Raise) -> None:
    """A latency beyond the timeout is an APITimeoutError."""
    at = await stand({"blocks": [LONG], "latency": 5}, patience=0.2)
    with pytest.raises(anthropic.APITimeoutError):
        await at.stream()


async def test_pings_hold_off_the_timeout(stand: Raise) -> None:
    """Nothing but pings for longer than the read timeout times nothing out; then the step plays."""
    at = await stand(faulty({"pings": 1.2}), patience=0.9)
    began = time.monotonic()
    await plays_on(at)
    assert time.monotonic() - began >= 1.2


async def test_empty_stream(stand: Raise) -> None:
    """200 without a byte is an AssertionError in the SDK."""
    at = await stand(faulty({"empty": True}))
    with pytest.raises(AssertionError):
        await at.stream()
    await plays_on(at)


async def test_bad_json(stand: Raise) -> None:
    """A frame that is no JSON is a JSONDecodeError."""
    at = await stand(faulty({"bad_json": True}))
    with pytest.raises(JSONDecodeError):
        await at.stream()
    await plays_on(at)


@pytest.mark.parametrize("point", ["after_start", "mid_block"])
async def test_clean_end_in_the_middle(stand: Raise, point: str) -> None:
    """A clean end without `message_stop` raises nothing: the message has no stop reason."""
    at = await stand(faulty({"eof": point}))
    message = await at.stream()
    assert message.stop_reason is None
    if point == "mid_block":
        assert message.content[0].text == "whole"
        assert 0 < len(message.content[1].text) < len(LONG["text"])
    await plays_on(at)


@pytest.mark.parametrize(
    "block",
    [{"redacted": True}, {"text": "x"}, {"thinking": "hmm"}, {"tool": "bash", "input": {"command": "ls -la"}}],
)
async def test_mid_block_never_ends_the_block(stand: Raise, block: dict[str, Any]) -> None:
    """Whatever the block is, a fault in the middle of it leaves it without its stop."""
    at = await stand({"blocks": [block], "fault": {"eof": "mid_block"}})
    events = [event.type for event in await at.events()]
    assert "content_block_start" in events
    assert "content_block_stop" not in events


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"cut": "mid_block"}, anthropic.APIConnectionError),
        ({"eof": "mid_block", "how": "fin"}, anthropic.APIConnectionError),
        ({"error_event": "overloaded_error"}, anthropic.OverloadedError),
        ({"bad_json": True}, JSONDecodeError),
        ({"empty": True}, JSONDecodeError),
        ({"stall": 5}, anthropic.APITimeoutError),
    ],
)
async def test_faults_without_a_stream(stand: Raise, fault: Any, error: type[Exception]) -> None:
    """A call that is not streamed meets the nearest relation of each fault, and then the step."""
    at = await stand(faulty(fault), patience=0.5)
    with pytest.raises(error):
        await at.client.messages.create(**at.request())
    message = await at.client.messages.create(**at.request())
    assert message.content[0].text == "whole"


async def test_cancelled_call_is_noticed(stand: Raise) -> None:
    """A client that cancels in mid-stream is recorded with the time, at once."""
    at = await stand({"blocks": [LONG], "chunk": 1, "pace": 0.1})
    task = asyncio.create_task(at.stream())
    await _until(lambda: bool(at.server.requests))
    await asyncio.sleep(0.2)
    cancelled = time.time()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _until(lambda: at.server.requests[0].disconnected is not None)
    record = at.server.requests[0]
    assert record.disconnected is not None
    assert 0 <= record.disconnected - cancelled < 2
    assert record.finished is None


async def test_rate_limit_over_all_sessions(stand: Raise) -> None:
    """More requests than the script's limit are 429 with `retry-after`, whoever asks; later they pass."""
    at = await stand({"blocks": [LONG]}, rate_limit={"requests": 2, "per": 1.5})
    await at.stream()
    await at.stream(system="unit: a\nattempt: 2")
    with pytest.raises(anthropic.RateLimitError) as caught:
        await at.stream()
    headers = caught.value.response.headers
    assert headers["retry-after"] in {"1", "2"}
    assert headers["anthropic-ratelimit-requests-limit"] == "2"
    assert headers["anthropic-ratelimit-requests-remaining"] == "0"
    await asyncio.sleep(1.5)
    await at.stream()


async def test_stopping_cuts_what_is_running(stand: Raise) -> None:
    """`stop()` returns at once though an answer is being played; its client sees the connection die."""
    at = await stand({"blocks": [LONG], "chunk": 1, "pace": 1})
    task = asyncio.create_task(at.stream())
    await _until(lambda: bool(at.server.requests))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await at.server.stop()
    assert time.monotonic() - began < 1
    with pytest.raises((httpx2.TransportError, anthropic.APIConnectionError)):
        await task
    assert at.server.requests[0].disconnected is None


async def _until(condition: Any, seconds: float = 3) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def _note_events(at: Stand, events: list[str]) -> None:
    """Stream into `events`, which keeps what came before an error."""
    stream = await at.client.messages.create(stream=True, **at.request())
    async for event in stream:
        events.append(event.type)  # noqa: PERF401 (a comprehension would lose them)
