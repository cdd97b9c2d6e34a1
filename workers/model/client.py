"""One model call: streamed, whole or an error. The only module that imports `anthropic`.

The SDK's own retries are off: they cannot be cancelled or capped (facts: the SDK obeys any `retry-after`).
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
from pydantic import BaseModel

from workers.errors import ModelError
from workers.orders import AgentOrder
from workers.session.surface import Request

from .assembly import Answer, Assembly, Broken
from .catalog import Card, Parameters, card, described
from .failures import broken_stream, from_status, no_connection
from .headroom import Headroom, read_headroom
from .key import read_key, refuse_missing_extra
from .limiter import fingerprint

__all__ = ["Answer", "ModelClient", "warm"]

# A call that shows nothing for this long is stalled, whatever its pings say (facts: pings reset the SDK's timeout).
_STALL_SECONDS = 600.0
_CONNECT_SECONDS = 10.0
# Who a cloud's limits are counted for, as far as the environment says.
_CLOUD_IDENTITY = ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_VERTEX_PROJECT_ID")


def warm() -> None:
    """Load what the SDK loads only when it is first used, so that no unit's first call waits for it."""
    sdk = anthropic.AsyncAnthropic(api_key="none", max_retries=0)
    _ = sdk.messages, sdk.models


class ModelClient:
    """The process's shared client for one endpoint and key: one pool of connections for all its models.

    `fingerprint` names endpoint and key without telling the key.
    """

    def __init__(self, agent: AgentOrder, *, stall: float = _STALL_SECONDS) -> None:
        """`stall`: seconds until a call that shows nothing is given up. Blocks while `key_command` runs.

        Raises ModelError of kind auth when no key is to be had, or a cloud's packages or region are missing.
        """
        self._agent = agent
        self._stall = stall
        self._key = read_key(agent)
        refuse_missing_extra(agent.provider, self._key)
        self._sdk = _open(agent, self._key, httpx2.Timeout(stall, connect=_CONNECT_SECONDS))
        self._renewing = asyncio.Lock()
        self.fingerprint = fingerprint(agent.provider, str(self._sdk.base_url), *_identity(agent, self._sdk))

    async def close(self) -> None:
        """Close the connections."""
        await self._sdk.close()

    async def describe(self, model: str) -> Card | None:
        """Ask the endpoint for a model's limits and capabilities, which costs nothing; None: it has no such look-up.

        Raises ModelError: auth for a refused key, invalid for a model that the endpoint does not have.
        """
        models = getattr(self._sdk, "models", None)
        if models is None:  # the clouds have a catalogue of their own
            return None
        try:
            found = await models.retrieve(model, timeout=_CONNECT_SECONDS)
        except anthropic.NotFoundError as error:
            if error.type == "not_found_error":
                raise ModelError("invalid", f"the endpoint has no model {model!r}", status=404) from error
            return None
        except Exception as error:
            raise self._translate(error) from error
        if not isinstance(found, BaseModel):  # something else answers there
            return None
        return described(found.model_dump(mode="json", warnings=False), card(model))

    async def call(
        self,
        model: str,
        request: Request,
        parameters: Parameters,
        *,
        on_text: Callable[[str], None] | None = None,
        on_headroom: Callable[[Headroom], None] | None = None,
        on_broken: Callable[[Broken], None] | None = None,
    ) -> Answer:
        """Make one streamed call. Cancelling the task closes the connection at once (spec A10).

        `on_headroom` hears, as soon as the answer begins, when little is left of the endpoint's limits; `on_broken`
        what a call has used that failed or was cancelled in the middle of its answer. A refused key that `key_command`
        gave is asked for once more: it may be one that expires. Raises ModelError for everything that is no whole
        answer.
        """
        key = self._key
        ears = _Ears(on_text, on_headroom, on_broken)
        try:
            return await self._call(model, request, parameters, ears)
        except ModelError as error:
            if error.kind != "auth" or not await self._renew(key):
                raise
        return await self._call(model, request, parameters, ears)

    async def _call(self, model: str, request: Request, parameters: Parameters, ears: "_Ears") -> Answer:
        assembly = Assembly()
        try:
            await self._stream(assembly, request, _fields(model, parameters), ears)
            return assembly.finish()
        except BaseException as error:
            why = str(error) if isinstance(error, ModelError) else "cancelled"
            broken = assembly.broken(why)
            if ears.broken is not None and broken is not None:
                ears.broken(broken)
            raise

    async def _stream(self, assembly: Assembly, request: Request, fields: dict[str, Any], ears: "_Ears") -> None:
        """Take in one answer's stream. Raises ModelError."""
        try:
            stream = await self._open_stream(request, fields)
            async with stream:
                assembly.request_id = stream.response.headers.get("request-id", "")
                headroom = read_headroom(stream.response.headers.raw) if ears.headroom else None
                if ears.headroom and headroom is not None:
                    ears.headroom(headroom)
                await self._assemble(assembly, stream, ears.text)
        except ModelError:
            raise
        except Exception as error:
            raise self._translate(error) from error

    async def _open_stream(self, request: Request, fields: dict[str, Any]) -> Any:
        """Post the request. Its bytes are ours: `create` would copy and encode the whole history at every step."""
        if self._agent.provider != "anthropic":  # the clouds move fields of the body into the path
            parts = {"system": request.system, "tools": request.tools, "messages": request.messages}
            return await self._sdk.messages.create(**fields, **parts)
        return await self._sdk.post(
            "/v1/messages",
            content=request.body(**fields),
            cast_to=anthropic.types.Message,
            stream=True,
            stream_cls=anthropic.AsyncStream[anthropic.types.RawMessageStreamEvent],
        )

    async def _assemble(self, assembly: Assembly, stream: Any, on_text: Callable[[str], None] | None) -> None:
        async with asyncio.timeout(self._stall) as stall:
            async for event in stream:
                stall.reschedule(asyncio.get_running_loop().time() + self._stall)
                assembly.see(event)
                if on_text and event.type == "content_block_delta" and event.delta.type == "text_delta":
                    on_text(event.delta.text)

    async def _renew(self, refused: str | None) -> bool:
        """Run `key_command` again; tell whether there is another key now. The connections stay."""
        if self._agent.key_command is None:
            return False
        async with self._renewing:
            if self._key == refused:
                self._key = await asyncio.to_thread(read_key, self._agent)
                if self._key != refused:
                    name = "access_token" if self._agent.provider == "vertex" else "api_key"
                    self._sdk = self._sdk.copy(**{name: self._key})
            return self._key != refused

    def _translate(self, error: Exception) -> ModelError:
        """Return what a failure of the SDK or its transport means for us (facts: streaming failures)."""
        match error:
            case anthropic.APIStatusError():
                return _from_status(error)
            case anthropic.APIConnectionError() | httpx2.HTTPError() | TimeoutError() | OSError():
                return no_connection(error)
            case _ if self._agent.provider != "anthropic" and _is_about_credentials(error):
                return ModelError("auth", f"the credentials for {self._agent.provider} cannot be used: {error}")
            case AssertionError() | ValueError() | LookupError() | AttributeError() | TypeError():
                return broken_stream(error)
            case anthropic.APIResponseValidationError():
                return broken_stream(error)
            case anthropic.AnthropicError():
                return ModelError("auth", f"the model's key cannot be read: {error}")
            case _:
                return ModelError("transient", f"the model call failed: {type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class _Ears:
    """Who hears of what while a call goes on; see `ModelClient.call`."""

    text: Callable[[str], None] | None
    headroom: Callable[[Headroom], None] | None
    broken: Callable[[Broken], None] | None


def _fields(model: str, parameters: Parameters) -> dict[str, Any]:
    """Return what a request's body says beside its content."""
    optional = {"thinking": parameters.thinking, "output_config": parameters.output_config}
    fields = {"model": model, "max_tokens": parameters.max_tokens, "stream": True}
    return fields | {name: value for name, value in optional.items() if value is not None}


def _open(agent: AgentOrder, key: str | None, timeout: httpx2.Timeout) -> Any:
    """Return the SDK's client of the provider. Raises ModelError of kind auth for a missing key, region or project."""
    shared: dict[str, Any] = {"base_url": agent.base_url, "max_retries": 0, "timeout": timeout}
    try:
        match agent.provider:
            case "bedrock":
                return anthropic.AsyncAnthropicBedrock(api_key=key, aws_region=agent.region, **shared)
            case "vertex":
                named = {"region": agent.region, "project_id": agent.project}
                shared |= {name: value for name, value in named.items() if value is not None}
                return anthropic.AsyncAnthropicVertex(access_token=key, **shared)
            case _:
                return anthropic.AsyncAnthropic(api_key=key, **shared)
    except ValueError as error:
        raise ModelError("auth", f"{agent.provider} needs a region under [model] (region = …): {error}") from error
    except anthropic.AnthropicError as error:
        raise ModelError("auth", f"no key for the model: {error}; set ANTHROPIC_API_KEY") from error


def _identity(agent: AgentOrder, sdk: Any) -> tuple[str | None, ...]:
    """Return what tells two who ask the same endpoint apart; a cloud's tokens change, so they are not in it."""
    if agent.provider == "anthropic":
        return (sdk.api_key or sdk.auth_token,)
    return (agent.project, *(os.environ.get(name) for name in _CLOUD_IDENTITY))


def _is_about_credentials(error: Exception) -> bool:
    """The clouds' libraries, and the SDK for lack of better (RuntimeError), say so in exceptions of their own."""
    is_theirs = type(error).__module__.partition(".")[0] in {"botocore", "google"} or isinstance(error, RuntimeError)
    return is_theirs and not any(word in type(error).__name__ for word in ("Transport", "Connect", "Timeout"))


def _from_status(error: anthropic.APIStatusError) -> ModelError:
    return from_status(
        error.status_code,
        error.api_message or error.message,
        error_type=str(error.type or ""),
        error_code=error.error_code,
        request_id=error.request_id or "",
        headers={name.lower(): value for name, value in error.response.headers.raw},
    )
