"""One model call: streamed, assembled block by block, whole or an error. The only module that imports `anthropic`.

A message counts only with `message_stop` and a stop reason; arguments are parsed strictly from their raw text. The
SDK's own retries are off: they cannot be cancelled or capped (facts: the SDK obeys any `retry-after`).
"""

import asyncio
import json
import os
import random
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx2
from pydantic import BaseModel

from workers.errors import ModelError
from workers.orders import AgentOrder
from workers.session.events import Block, Usage
from workers.session.surface import Request

from .catalog import Parameters

__all__ = ["Answer", "ModelClient", "Patience"]

# A call that shows nothing for this long is stalled, whatever its pings say (facts: pings reset the SDK's timeout).
_STALL_SECONDS = 600.0
_CONNECT_SECONDS = 10.0
# How long a wait for the model goes on before it looks whether it is still wanted.
_SLICE_SECONDS = 2.0
_KEY_SECONDS = 60.0
_USAGE_FIELDS = tuple(Usage.model_fields)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: blocks in the API's own JSON, exactly as they came. `unreadable`: raw arguments by tool id."""

    content: list[Block]
    stop_reason: str
    usage: Usage
    request_id: str
    unreadable: dict[str, str]


@dataclass
class _Assembly:
    """The blocks of a stream in the making."""

    blocks: list[Block] = field(default_factory=list)
    arguments: dict[int, list[str]] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=dict)
    stop_reason: str | None = None
    stopped: bool = False

    def see(self, event: Any) -> None:
        match event.type:
            case "message_start":
                self._count(event.message.usage)
            case "content_block_start":
                self.blocks.append(_plain(event.content_block))
            case "content_block_delta":
                self._grow(self.blocks[event.index], event.index, event.delta)
            case "message_delta":
                self.stop_reason = event.delta.stop_reason
                self._count(event.usage)
            case "message_stop":
                self.stopped = True
            case _:  # block stops, and events that a later API may add
                pass

    def _grow(self, block: Block, index: int, delta: Any) -> None:
        match delta.type:
            case "text_delta":
                block["text"] += delta.text
            case "thinking_delta":
                block["thinking"] += delta.thinking
            case "signature_delta":
                block["signature"] = delta.signature
            case "input_json_delta":
                self.arguments.setdefault(index, []).append(delta.partial_json)
            case _:
                pass

    def _count(self, usage: Any) -> None:
        for name in _USAGE_FIELDS:
            value = getattr(usage, name, None)
            if value is not None:
                self.usage[name] = value

    def finish(self, request_id: str) -> Answer:
        if not self.stopped or self.stop_reason is None:
            raise ModelError("transient", "the answer's stream ended before the answer did", request_id=request_id)
        unreadable = {}
        for index, block in enumerate(self.blocks):
            if block["type"] == "tool_use":
                raw = "".join(self.arguments.get(index, ()))
                block["input"], readable = _parse_arguments(raw)
                if not readable:
                    unreadable[block["id"]] = raw
        content = [block for block in self.blocks if not _is_empty(block)]
        return Answer(content, self.stop_reason, Usage(**self.usage), request_id, unreadable)


def _plain(block: BaseModel) -> Block:
    """Return a block as the wire had it: `model_dump` would add nulls that must not go back (facts: streaming)."""
    return block.model_dump(mode="json", exclude_unset=True)


def _is_empty(block: Block) -> bool:
    """Empty text and unsigned thinking are refused when they are sent back."""
    if block["type"] == "text":
        return not block["text"].strip()
    return block["type"] == "thinking" and not block.get("signature")


def _parse_arguments(raw: str) -> tuple[dict[str, Any], bool]:
    """Return the arguments and whether they can be trusted and stored: JSON, which Python reads more loosely."""
    try:
        value = json.loads(raw or "{}")
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")  # NaN, infinities, lone surrogates
    except (ValueError, RecursionError):
        return {}, False
    return (value, True) if isinstance(value, dict) else ({}, False)


class ModelClient:
    """The process's shared client for one endpoint and key."""

    def __init__(self, agent: AgentOrder) -> None:
        """Raises ModelError of kind auth when no key is to be had, or `key_command` fails."""
        try:
            self._sdk = anthropic.AsyncAnthropic(
                api_key=_key(agent),
                base_url=agent.base_url,
                max_retries=0,
                timeout=httpx2.Timeout(_STALL_SECONDS, connect=_CONNECT_SECONDS),
            )
        except anthropic.AnthropicError as error:
            raise ModelError("auth", f"no key for the model: {error}; set ANTHROPIC_API_KEY") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._sdk.close()

    async def check(self, model: str) -> None:
        """Ask the endpoint for the model by name, which costs nothing.

        Raises ModelError: auth for a refused key, invalid for a model it does not have. An endpoint that has no
        such look-up passes.
        """
        try:
            await self._sdk.models.retrieve(model, timeout=_CONNECT_SECONDS)
        except anthropic.NotFoundError as error:
            if error.type == "not_found_error":
                raise ModelError("invalid", f"the endpoint has no model {model!r}", status=404) from error
        except Exception as error:
            raise _translate(error) from error

    async def call(
        self,
        model: str,
        request: Request,
        parameters: Parameters,
        *,
        on_text: Callable[[str], None] | None = None,
    ) -> Answer:
        """Make one streamed call. Cancelling the task closes the connection at once (spec A10).

        Raises ModelError for everything that is no whole answer.
        """
        extra: dict[str, Any] = {}
        if parameters.thinking is not None:
            extra["thinking"] = parameters.thinking
        if parameters.output_config is not None:
            extra["output_config"] = parameters.output_config
        try:
            stream: Any = await self._sdk.messages.create(
                model=model,
                max_tokens=parameters.max_tokens,
                system=request.system,  # type: ignore[arg-type]  # our blocks are the API's JSON already
                tools=request.tools,  # type: ignore[arg-type]
                messages=request.messages,  # type: ignore[arg-type]
                stream=True,
                **extra,
            )
            async with stream:
                return await _assemble(stream, on_text)
        except ModelError:
            raise
        except Exception as error:
            raise _translate(error) from error


async def _assemble(stream: Any, on_text: Callable[[str], None] | None) -> Answer:
    assembly = _Assembly()
    async with asyncio.timeout(_STALL_SECONDS) as stall:
        async for event in stream:
            stall.reschedule(asyncio.get_running_loop().time() + _STALL_SECONDS)
            assembly.see(event)
            if on_text and event.type == "content_block_delta" and event.delta.type == "text_delta":
                on_text(event.delta.text)
    return assembly.finish(stream.response.headers.get("request-id", ""))


def _key(agent: AgentOrder) -> str | None:
    """Return the key that `key_command` prints, or None to let the SDK look in its own variables."""
    if agent.key_command is None:
        if not os.environ.get("ANTHROPIC_API_KEY") and not os.environ.get("ANTHROPIC_AUTH_TOKEN"):
            raise ModelError("auth", "no key for the model; set ANTHROPIC_API_KEY, or key_command under [model]")
        return None
    try:
        done = subprocess.run(  # noqa: S602  # the user's own command, from trusted configuration
            agent.key_command,
            shell=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_KEY_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError("auth", f"key_command gave no key within {_KEY_SECONDS:g} s") from error
    key = done.stdout.strip()
    if done.returncode != 0 or not key:
        raise ModelError("auth", f"key_command gave no key (exit {done.returncode}): {done.stderr.strip()[:200]}")
    return key


_SPEND_CODES = frozenset({"enforced_spend_limit_reached", "contract_spend_limit_reached"})


def _translate(error: Exception) -> ModelError:
    """Return what a failure of the SDK or its transport means for us (facts: streaming failures)."""
    match error:
        case anthropic.APIStatusError():
            return _from_status(error)
        case anthropic.APIResponseValidationError():
            return ModelError("transient", f"the answer was not understood: {error}")
        case anthropic.APIConnectionError() | httpx2.HTTPError() | TimeoutError() | OSError():
            return ModelError("transient", f"no connection to the model: {type(error).__name__}: {error}")
        case AssertionError() | ValueError() | IndexError() | KeyError() | AttributeError():
            return ModelError("transient", f"the answer's stream was malformed: {type(error).__name__}: {error}")
        case anthropic.AnthropicError():
            return ModelError("auth", f"the model's key cannot be read: {error}")
        case _:
            return ModelError("transient", f"the model call failed: {type(error).__name__}: {error}")


# An error event inside a stream comes with status 200: its type says what the status would have been.
_STATUS_IN_STREAM = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
}


def _from_status(error: anthropic.APIStatusError) -> ModelError:
    kind: Any = "transient"
    status = _STATUS_IN_STREAM.get(str(error.type), error.status_code) if error.status_code < 400 else error.status_code
    if error.error_code in _SPEND_CODES or status == 402:
        kind = "spend_limit"
    elif status == 429:
        kind = "rate_limit"
    elif status in (401, 403):
        kind = "auth"
    elif status == 413:
        kind = "too_large"
    elif 400 <= status < 500 and status not in (408, 409):
        kind = "invalid"
    return ModelError(
        kind,
        error.api_message or error.message,
        status=error.status_code,
        error_type=str(error.type or ""),
        request_id=error.request_id or "",
        retry_after=_retry_after(error.response),
    )


def _retry_after(response: httpx2.Response) -> float | None:
    for header, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return float(response.headers[header]) / unit
        except (KeyError, ValueError):  # absent, or an HTTP date, which the API does not send
            continue
    return None


class Patience:
    """When to try again: capped, jittered, cancellable, and one pause shared by all units of the process."""

    def __init__(self, *, tries: int = 8, base: float = 1.0, cap: float = 300.0) -> None:
        """`tries` counts consecutive failures of one call that are no rate limit; `base` and `cap` are seconds."""
        self._tries = tries
        self._base = base
        self._cap = cap
        self._pause_until = 0.0

    @property
    def paused_for(self) -> float:
        """Seconds until the shared pause ends; 0 when there is none."""
        return max(0.0, self._pause_until - asyncio.get_running_loop().time())

    async def call(
        self,
        attempt: Callable[[], Awaitable[Answer]],
        *,
        waiting: Callable[[float], None] | None = None,
        ready: Callable[[], Awaitable[None]] | None = None,
    ) -> Answer:
        """Return the first whole answer. Raises the ModelError that waiting will not mend.

        `waiting` hears how long the pause still is; `ready` is awaited before every try and while waiting, and may
        raise: a lost lease or a stop is not to wait for the model's limits.
        """
        failures, waits = 0, 0
        while True:
            while self.paused_for > 0:  # somebody may extend the pause while we sleep
                if waiting:
                    waiting(self.paused_for)
                if ready:
                    await ready()
                await asyncio.sleep(min(self.paused_for, _SLICE_SECONDS) + random.uniform(0, 0.2))  # noqa: S311
            if ready:
                await ready()
            try:
                return await attempt()
            except ModelError as error:
                failures += error.kind != "rate_limit"
                if error.kind not in ("transient", "rate_limit") or failures >= self._tries:
                    raise
                waits += 1
                await self._back_off(error, waits)

    async def _back_off(self, error: ModelError, waits: int) -> None:
        delay = min(self._cap, self._base * 2 ** min(waits, 16)) * random.uniform(0.5, 1.0)  # noqa: S311
        if error.retry_after is not None:
            delay = min(self._cap, max(self._base / 10, error.retry_after))  # 0 would be a loop without a breath
        if error.kind == "rate_limit":
            self._pause_until = max(self._pause_until, asyncio.get_running_loop().time() + delay)
        else:
            await asyncio.sleep(delay)
