"""A rehearsal server, the real SDK pointed at it, and short ways to say what is asked."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anthropic
import pytest

from workers.rehearsal import RehearsalServer, Script

BASH = {"type": "bash_20250124", "name": "bash"}
NOTE = {"name": "note", "description": "Note it.", "input_schema": {"type": "object"}}


@dataclass
class Stand:
    """A running server and a client of it."""

    server: RehearsalServer
    client: anthropic.AsyncAnthropic
    defaults: dict[str, Any] = field(default_factory=dict)

    def request(self, messages: Any = None, **changes: Any) -> dict[str, Any]:
        """A whole request for unit `a`; a change of None leaves the field out."""
        whole = {
            "model": "claude-sonnet-5-5",
            "max_tokens": 2000,
            "system": "You work.\nunit: a\nattempt: 1\n",
            "tools": [BASH],
            "messages": [user("go")] if messages is None else messages,
            **self.defaults,
            **changes,
        }
        return {name: value for name, value in whole.items() if value is not None}

    async def stream(self, messages: Any = None, **changes: Any) -> Any:
        """Ask with `messages.stream` and return the final message."""
        async with self.client.messages.stream(**self.request(messages, **changes)) as stream:
            return await stream.get_final_message()

    async def events(self, messages: Any = None, **changes: Any) -> list[Any]:
        """Ask with `create(stream=True)` and return the raw events."""
        stream = await self.client.messages.create(stream=True, **self.request(messages, **changes))
        return [event async for event in stream]

    async def raw(self, **changes: Any) -> Any:
        """Post the body as it is: the SDK's own checks left out."""
        return await self.client.post("/v1/messages", body=self.request(**changes), cast_to=object)

    async def refused(self, *words: str, status: int = 400, **changes: Any) -> anthropic.APIStatusError:
        """Post, expect a refusal with this status whose message holds all the words."""
        with pytest.raises(anthropic.APIStatusError) as caught:
            await self.raw(**changes)
        assert caught.value.status_code == status, caught.value
        for word in words:
            assert word in (caught.value.api_message or ""), caught.value.api_message
        return caught.value


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def call(name: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "bash", "input": {}, **more}


def result(name: str = "toolu_1", content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": content, **more}


def answered(message: Any) -> dict[str, Any]:
    """The answer as a client sends it back."""
    return assistant(*(block.to_dict() for block in message.content))


def script(*steps: dict[str, Any], **more: Any) -> Script:
    """A script with one unit, `a`."""
    return Script.parse({"units": {"a": {"steps": list(steps)}}, **more})


Raise = Callable[..., Awaitable[Stand]]
