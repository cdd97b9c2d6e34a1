"""Every refusal of the rehearsal, asked for through the SDK's client, and the honest neighbours that pass."""

import base64
from copy import deepcopy
from typing import Any

import anthropic
import pytest
from pictures import picture
from rehearsal_stand import BASH, NOTE, Raise, Stand, answered, assistant, call, result, script, text, user

from workers.rehearsal import rules

CACHE = {"cache_control": {"type": "ephemeral"}}
ENABLED = {"type": "enabled", "budget_tokens": 1024}
LOOSE = {"strict_prefix": False}
OK = {"blocks": [{"text": "ok"}], "repeat": 50}


def talk(*content: dict[str, Any]) -> list[dict[str, Any]]:
    """A call of `toolu_1`, and this user message after it."""
    return [user("go"), assistant(call()), user(list(content))]


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (["model: Field required"], {"model": None}),
        (["max_tokens: Field required"], {"max_tokens": None}),
        (["max_tokens", "valid integer"], {"max_tokens": True}),
        (["max_tokens", "greater than or equal to 1"], {"max_tokens": 0}),
        (["max_tokens: 128001 > 128000", "claude-sonnet-5-5"], {"max_tokens": 128001}),
        (["model", "valid string"], {"model": 5}),
        (["surprise: Extra inputs are not permitted"], {"surprise": 1}),
        (["context_management: Extra inputs"], {"context_management": {}}),
        (["`temperature` is deprecated"], {"temperature": 1.0}),
        (["`top_k` is deprecated"], {"top_k": 1}),
        (["stream", "valid boolean"], {"stream": "yes"}),
        (["system", "string or list"], {"system": 5}),
        (["system.0.type"], {"system": [{"type": "image"}]}),
        (["system: text content blocks must be non-empty"], {"system": [text("")]}),
        (["system.0.text.colour: Extra inputs"], {"system": [text("x", colour="red")]}),
        (["cache_control", "ephemeral"], {"system": [text("x", cache_control={"type": "for ever"})]}),
        (["ttl"], {"system": [text("x", cache_control={"type": "ephemeral", "ttl": "1d"})]}),
        (["cache_control.ephemeral.scope"], {"cache_control": {"type": "ephemeral", "scope": "all"}}),
        (["thinking.type"], {"thinking": {"type": "deep"}}),
        (["thinking.type"], {"thinking": "adaptive"}),
        (["thinking.type.enabled", "claude-sonnet-5-5"], {"thinking": ENABLED}),
        (["thinking.type.adaptive"], {"model": "claude-haiku-4-5", "thinking": {"type": "adaptive"}}),
        (["thinking.type.enabled"], {"model": "rehearsal-plain", "thinking": ENABLED}),
        (["thinking.type.disabled"], {"model": "rehearsal-always", "thinking": {"type": "disabled"}}),
        (["thinking.adaptive.budget_tokens: Extra"], {"thinking": {"type": "adaptive", "budget_tokens": 2000}}),
        (["thinking.adaptive.block_binding: Extra"], {"thinking": {"type": "adaptive", "block_binding": {}}}),
        (["thinking.adaptive.display"], {"thinking": {"type": "adaptive", "display": "loud"}}),
        (
            ["budget_tokens", "1024"],
            {"model": "claude-haiku-4-5", "thinking": {"type": "enabled", "budget_tokens": 1023}},
        ),
        (["budget_tokens", "integer"], {"model": "claude-haiku-4-5", "thinking": {"type": "enabled"}}),
        (["`max_tokens` must be greater"], {"model": "claude-haiku-4-5", "thinking": ENABLED, "max_tokens": 1024}),
        (["output_config.effort", "'huge'"], {"output_config": {"effort": "huge"}}),
        (
            ["output_config.effort", "claude-haiku-4-5"],
            {"model": "claude-haiku-4-5", "output_config": {"effort": "low"}},
        ),
        (["tools", "list of tools"], {"tools": "bash"}),
        (["tools: Tool names must be unique"], {"tools": [NOTE, NOTE]}),
        (["tools.0.custom.input_schema: Field required"], {"tools": [{"name": "x"}]}),
        (["tools.0.custom.input_schema.type"], {"tools": [{"name": "x", "input_schema": {"type": "array"}}]}),
        (["tools.1.custom.name", "pattern"], {"tools": [BASH, {**NOTE, "name": "no spaces"}]}),
        (["tools.0.custom.name: Field required"], {"tools": [{"input_schema": {"type": "object"}}]}),
        (["tools.0.bash_20250124.name", "'bash'"], {"tools": [{**BASH, "name": "shell"}]}),
        (["tools.0.bash_20250124.input_schema: Extra"], {"tools": [{**BASH, "input_schema": {}}]}),
        (["tools.0", "'magic_1'"], {"tools": [{"type": "magic_1", "name": "magic"}]}),
    ],
)
async def test_fields_of_the_request(stand: Raise, words: list[str], changes: dict[str, Any]) -> None:
    """A field that is missing, unknown, of the wrong kind or not for this model is a 400 that names it."""
    at = await stand(OK)
    extra = {name: value for name, value in changes.items() if value is None}
    await at.refused(*words, **{**changes, **extra})


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (["messages: at least one message"], []),
        (["messages", "valid list"], "go"),
        (["messages.0", "object"], ["go"]),
        (['first message must use the "user" role'], [assistant(text("hi")), user("go")]),
        (["messages.1.role"], [user("go"), {"role": "robot", "content": "x"}]),
        (["messages.1.role: Field required"], [user("go"), {"content": "x"}]),
        (["messages.1.content: Field required"], [user("go"), {"role": "user"}]),
        (["messages.0.name: Extra inputs"], [{**user("go"), "name": "me"}]),
        (["messages.0.content", "string or list"], [user(5)]),
        (["messages.0: all messages must have non-empty content"], [user("")]),
        (["messages.0: all messages must have non-empty content"], [user([])]),
        (["messages.1", "non-empty content"], [user("go"), assistant(), user("on")]),
        (["messages.0.content.0", "non-empty"], [user([text("")])]),
        (["messages.0.content.0", "non-whitespace"], [user([text(" \n")])]),
        (["messages.0.content.0.text.text", "valid string"], [user([{"type": "text", "text": None}])]),
        (["messages.0.content.0.text.text: Field required"], [user([{"type": "text"}])]),
        (["messages.0.content.0", "'riddle'"], [user([{"type": "riddle"}])]),
        (["messages.0.content.0", "None"], [user(["go"])]),
        (["messages.1.content.0", "only be in `user`"], [user("go"), assistant(result()), user("on")]),
        (["messages.0.content.0", "only be in `assistant`"], [user([call()])]),
        (
            ["messages.1.content.0.tool_use.caller", "null"],
            [user("go"), assistant(call(caller=None)), user([result()])],
        ),
        (
            ["messages.1.content.0.tool_use.toolset_name", "null"],
            [user("go"), assistant(call(toolset_name=None)), user([result()])],
        ),
        (["messages.1.content.0.tool_use.mood: Extra"], [user("go"), assistant(call(mood="good")), user([result()])]),
        (
            ["messages.1.content.0.tool_use.input", "object"],
            [user("go"), assistant(call(input="ls")), user([result()])],
        ),
        (["messages.1.content.0.tool_use.id", "pattern"], [user("go"), assistant(call("a b")), user([result("a b")])]),
        (
            ["messages.1.content.0.tool_use.name", "pattern"],
            [user("go"), assistant({**call(), "name": "no spaces"}), user([result()])],
        ),
        (["messages.1", "without `tool_result`", "toolu_1"], [user("go"), assistant(call()), user("on")]),
        (["messages.1", "without `tool_result`", "toolu_1"], [user("go"), assistant(call())]),
        (
            ["messages.1", "without `tool_result`", "toolu_2"],
            [user("go"), assistant(call(), call("toolu_2")), user([result()])],
        ),
        (
            ["messages.1", "without `tool_result`"],
            [user("go"), assistant(call()), user("wait"), user([result()])],
        ),
        (["messages.2.content.1", "unexpected `tool_use_id`", "toolu_9"], talk(result(), result("toolu_9"))),
        (["messages.0.content.0", "unexpected `tool_use_id`"], [user([result()])]),
        (["messages.2.content.1", "single result", "toolu_1"], talk(result(), result())),
        (["messages.2.content.1", "must come first"], talk(text("see"), result())),
        (
            ["messages.3.content.0", "ids must be unique", "toolu_1"],
            [*talk(result()), assistant(call()), user([result()])],
        ),
        (["messages.2.content.0.tool_result.content", "string or list"], talk(result(content=5))),
        (["messages.2.content.0.tool_result.content.0", "'tool_use'"], talk(result(content=[call()]))),
        (["text content blocks must be non-empty"], talk(result(content=[text("")]))),
        (["messages.2.content.0.tool_result.is_error"], talk(result(is_error="yes"))),
        (["messages.2.content.0.tool_result.tool_use_id"], talk({"type": "tool_result", "tool_use_id": 5})),
        (["prefill"], [user("go"), assistant(text("I will"))]),
        (
            ["cache_control cannot be set for empty text"],
            [user([text("", **CACHE)])],
        ),
        (
            ["messages.1.content.0.thinking.signature: Field required"],
            [user("go"), assistant({"type": "thinking", "thinking": "x"}), user("on")],
        ),
        (
            ["messages.1.content.0.thinking.signature", "must be signed"],
            [user("go"), assistant({"type": "thinking", "thinking": "x", "signature": ""}), user("on")],
        ),
        (
            ["messages.1.content.0.thinking", "must contain thinking"],
            [user("go"), assistant({"type": "thinking", "thinking": "", "signature": "abcd"}), user("on")],
        ),
        (
            ["messages.1.content.0", "Invalid `signature`"],
            [user("go"), assistant({"type": "thinking", "thinking": "x", "signature": "no base64!"}), user("on")],
        ),
        (
            ["messages.1.content.0", "Invalid `signature`"],
            [user("go"), assistant({"type": "redacted_thinking", "data": "abcd"}), user("on")],
        ),
        (
            ["messages.1.content.0.thinking", "valid strings"],
            [user("go"), assistant({"type": "thinking", "thinking": None, "signature": "abcd"}), user("on")],
        ),
    ],
)
async def test_messages(stand: Raise, words: list[str], messages: Any) -> None:
    """A conversation that the API would not take is a 400 that names the message and the block."""
    at = await stand(OK)
    await at.refused(*words, messages=messages)


@pytest.mark.parametrize("cut", ["model", "max_tokens", "messages"])
async def test_missing_messages(stand: Raise, cut: str) -> None:
    """A body without a required field is refused before anything looks at the rest."""
    at = await stand(OK)
    body = {name: value for name, value in at.request().items() if name != cut}
    with pytest.raises(anthropic.BadRequestError, match=f"{cut}: Field required"):
        await at.client.post("/v1/messages", body=body, cast_to=object)


@pytest.mark.parametrize("content", [b"{", b"[]", b'"x"'])
async def test_body_that_is_no_object(stand: Raise, content: bytes) -> None:
    """A body that is no JSON object is a 400."""
    at = await stand(OK)
    with pytest.raises(anthropic.BadRequestError, match="JSON"):
        await at.client.post("/v1/messages", content=content, cast_to=object)


async def test_version_header_is_required(stand: Raise) -> None:
    """A request that does not say which version of the API it speaks is refused."""
    at = await stand(OK)
    with pytest.raises(anthropic.BadRequestError, match="anthropic-version: header is required"):
        await at.client.messages.create(extra_headers={"anthropic-version": ""}, **at.request())


async def test_unknown_model(stand: Raise) -> None:
    """A model that does not exist is a 404 not_found_error."""
    at = await stand(OK)
    error = await at.refused("claude-nine", status=404, model="claude-nine")
    assert error.type == "not_found_error"


@pytest.mark.parametrize(
    "headers",
    [{"authorization": "Bearer wrong"}, {"authorization": "Bearer wrong", "x-api-key": "wrong"}],
)
async def test_wrong_key(stand: Raise, headers: dict[str, str]) -> None:
    """A wrong key is a 401, in either header."""
    at = await stand(OK)
    with pytest.raises(anthropic.AuthenticationError) as caught:
        await at.client.messages.create(extra_headers=headers, **at.request())
    assert caught.value.type == "authentication_error"
    assert at.server.requests[0].status == 401


async def test_more_than_32_mb(stand: Raise) -> None:
    """A request over 32 MB is a 413 request_too_large."""
    at = await stand(OK)
    error = await at.refused("32 MB", status=413, messages=[user("x" * (rules.MAX_BYTES + 1))])
    assert error.type == "request_too_large"


async def test_prompt_beyond_the_window(stand: Raise) -> None:
    """A prompt that does not fit the model's window is refused with both numbers; the script may set a small one."""
    at = await stand(OK, models={"tiny": {"max_input_tokens": 300}})
    assert (await at.stream(model="tiny")).content[0].text == "ok"
    await at.refused("prompt is too long", "> 300 maximum", model="tiny", messages=[user("word " * 400)])


async def test_too_many_images(stand: Raise) -> None:
    """A model with a small window takes 100 images, those inside tool results counted."""
    at = await stand(OK, models={"eyes": {"like": "claude-haiku-4-5", "max_input_tokens": 200_000}}, **LOOSE)
    image = shot()
    await at.stream(talk(result(content=[image] * 60), *[image] * 40), model="eyes")
    await at.refused("100 images", "101", model="eyes", messages=talk(result(content=[image] * 61), *[image] * 40))


def shot(width: int = 4, height: int = 4, **changes: Any) -> dict[str, Any]:
    data = base64.b64encode(picture(size=(width, height), mode="1")).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data, **changes}}


@pytest.mark.parametrize(
    ("words", "image"),
    [
        (["source: Input should be an object"], {"type": "image", "source": "shot.png"}),
        (["source: Input tag None"], {"type": "image", "source": {}}),
        (["source: Input tag 'disk'"], {"type": "image", "source": {"type": "disk"}}),
        (["base64.data: Field required"], {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}),
        (["base64.name: Extra inputs"], shot(name="shot.png")),
        (["base64.data: Input should be a valid string"], shot(data=None)),
        (["base64.media_type: Input should be one of", "'image/webp'"], shot(media_type="image/bmp")),
        (["invalid base64 data"], shot(data="not base64!!")),
        (["invalid base64 data"], shot(data="é")),
        (["Could not process image"], shot(data="aGk=")),
        (["Could not process image"], shot(data="")),
        (["does not match", "image/jpeg", "image/png"], shot(media_type="image/jpeg")),
        (["dimensions exceed", "8000 pixels"], shot(8001, 2)),
        (["dimensions exceed", "8000 pixels"], shot(2, 8001)),
        (["url.url", "HTTP"], {"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}}),
        (["image.size: Extra inputs"], {**shot(), "size": 4}),
    ],
)
async def test_images(stand: Raise, words: list[str], image: dict[str, Any]) -> None:
    """An image whose source, data, kind or size the API would not take is a 400 that names it, in results as well."""
    at = await stand(OK)
    await at.refused("messages.0.content.0", *words, messages=[user([image])])
    await at.refused("messages.2.content.0.tool_result.content.0", *words, messages=talk(result(content=[image])))


async def test_images_that_are_taken(stand: Raise) -> None:
    """A side may have 8000 pixels; an image may be named by its address."""
    at = await stand(OK, **LOOSE)
    await at.stream([user([shot(8000, 2), shot(2, 8000)])])
    await at.stream([user([{"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}])])


async def test_large_images_among_many(stand: Raise) -> None:
    """Above twenty images no side may have more than 2000 pixels, wherever in the request the large one stands."""
    at = await stand(OK, **LOOSE)
    large, many = shot(3000, 2), [shot(2000, 2)] * 20
    await at.stream(talk(result(content=many[:10]), *many[:10]))
    await at.stream(talk(result(content=[large]), *many[:19]))
    await at.stream(talk(result(content=many), many[0]))
    words = "messages.2.content.0.tool_result.content.3", "many-image requests: 2000 pixels"
    await at.refused(*words, messages=talk(result(content=[*many[:3], large]), *many[:17]))


# --- where breakpoints may stand


async def test_at_most_four_breakpoints(stand: Raise) -> None:
    """Breakpoints are counted in tools, system, messages and inside tool results; the fifth is refused."""
    at = await stand(OK)
    marked = {
        "tools": [{**BASH, **CACHE}],
        "system": [text("unit: a", **CACHE)],
        "messages": talk(result(content=[text("x", **CACHE)], **CACHE)),
    }
    assert (await at.stream(**marked)).content[0].text == "ok"
    more = {**marked, "messages": [*marked["messages"], assistant(text("so")), user([text("on", **CACHE)])]}
    await at.refused("maximum of 4", "Found 5", **more)
    await at.refused("maximum of 4", "Found 5", cache_control={"type": "ephemeral"}, **marked)


async def test_breakpoint_on_thinking(stand: Raise) -> None:
    """`cache_control` on a thinking block is refused, in a message that was accepted before too."""
    at = await stand({"blocks": [{"thinking": "x"}, {"text": "hi"}]}, OK)
    history = [user("go"), answered(await at.stream()), user("on")]
    await at.stream(history)
    marked = deepcopy(history)
    marked[1]["content"][0] |= CACHE
    await at.refused("messages.1.content.0.thinking.cache_control", messages=marked)


# --- thinking


async def thought(at: Stand) -> list[dict[str, Any]]:
    """A conversation in which the model has thought, and called a tool after it."""
    first = await at.stream(thinking={"type": "adaptive", "display": "summarized"})
    return [user("go"), answered(first), user([result(first.content[-1].id)])]


@pytest.fixture
async def thinker(stand: Raise) -> tuple[Stand, list[dict[str, Any]]]:
    blocks = [{"thinking": "let me see"}, {"redacted": True}, {"text": "so"}, {"tool": "bash", "input": {}}]
    at = await stand(script({"blocks": blocks}, OK, strict_prefix=False))
    return at, await thought(at)


Thinker = tuple[Stand, list[dict[str, Any]]]


async def test_thinking_that_comes_back_untouched_passes(thinker: Thinker) -> None:
    """What the API sent is what it takes; moving breakpoints and changing the effort are no edits."""
    at, history = thinker
    await at.stream(history)
    history[2]["content"][0] |= CACHE
    await at.stream(history, output_config={"effort": "low"}, system=[text(at.request()["system"], **CACHE)])


@pytest.mark.parametrize(("field", "value"), [("thinking", "other"), ("signature", "AAAA" * 10)])
async def test_changed_thinking(thinker: Thinker, field: str, value: str) -> None:
    """A changed text and a changed signature are both an invalid signature."""
    at, history = thinker
    history[1]["content"][0][field] = value
    await at.refused("messages.1.content.0", "Invalid `signature`", messages=history)


async def test_emptied_thinking(thinker: Thinker) -> None:
    """Thinking whose text was dropped though it had been given is refused."""
    at, history = thinker
    history[1]["content"][0]["thinking"] = ""
    await at.refused("messages.1.content.0", "must contain thinking", messages=history)


@pytest.mark.parametrize("edit", ["system", "tools", "message", "block before"])
async def test_thinking_is_bound_to_what_stood_before(thinker: Thinker, edit: str) -> None:
    """An edit anywhere before a thinking block is refused at that block, also by a server without a memory."""
    at, history = thinker
    changes: dict[str, Any] = {}
    block = "messages.1.content.0"
    if edit == "system":
        changes["system"] = "unit: a\nother words"
    elif edit == "tools":
        changes["tools"] = [BASH, NOTE]
    elif edit == "message":
        history[0] = user("go!")
    else:
        del history[1]["content"][0]
    await at.refused(block, "bound to the conversation before it", messages=history, **changes)


async def test_drop_block_lets_moved_thinking_pass(thinker: Thinker) -> None:
    """With the beta's `drop_block` a changed past is no error; a forged signature still is."""
    at, history = thinker
    history[0] = user("go!")
    drop = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    beta = ["thinking-binding-controls-2026-08-01"]
    request = at.request(history, thinking=drop)
    message = await at.client.beta.messages.create(betas=beta, **request)
    assert message.content[0].text == "ok"
    history[1]["content"][0]["thinking"] = "other"
    with pytest.raises(anthropic.BadRequestError, match="Invalid `signature`"):
        await at.client.beta.messages.create(betas=beta, **request)


# --- how a conversation may end


async def test_prefill_only_where_the_model_takes_it(stand: Raise) -> None:
    """An older model takes a last assistant message, but none that ends in whitespace."""
    at = await stand(OK, OK, **LOOSE)
    await at.stream([user("go"), assistant(text("I will"))], model="claude-haiku-4-5")
    await at.refused("trailing whitespace", model="claude-haiku-4-5", messages=[user("go"), assistant(text("I will "))])


async def test_paused_turn_is_sent_back_as_it_is(stand: Raise) -> None:
    """After `pause_turn` the assistant's content ends the request, and the script goes on."""
    at = await stand({"blocks": [{"text": "wait "}], "stop": "pause_turn"}, OK)
    paused = await at.stream()
    assert (await at.stream([user("go"), answered(paused)])).content[0].text == "ok"


# --- the prefix of a session

STEPS = [{"blocks": [{"text": f"answer {n}"}]} for n in range(6)]


async def grown(at: Stand, answers: int) -> list[dict[str, Any]]:
    """A session that has had that many answers: all but the next request was sent."""
    history = [user("go")]
    for number in range(answers):
        history += [answered(await at.stream(history)), user(f"on {number}")]
    return history


async def test_extension_and_repeat_pass(stand: Raise) -> None:
    """A session that only appends passes, and so does its last request once more, and with a note behind it."""
    at = await stand(*STEPS)
    history = await grown(at, 3)
    await at.stream(history)
    await at.stream(history)
    await at.stream([*history[:-1], user([text("on 2"), text("you were interrupted")])])


async def test_string_and_block_are_the_same(stand: Raise) -> None:
    """A string that becomes a text block, to carry a breakpoint, is no change."""
    at = await stand(*STEPS)
    history = await grown(at, 2)
    await at.stream(history)
    history[2] = user([text("on 0", **CACHE)])
    await at.stream(history)


@pytest.mark.parametrize(
    ("where", "edit"),
    [
        ("messages.0", lambda h: [user("went"), *h[1:]]),
        ("messages.2", lambda h: [*h[:2], user("other"), *h[3:]]),
        ("messages.1", lambda h: [h[0], assistant(text("rewritten")), *h[2:]]),
        ("messages.1", lambda h: [h[0], *h[3:]]),
        ("messages.6", lambda h: [*h[:6], user("other than sent")]),
    ],
)
async def test_rewritten_prefix(stand: Raise, where: str, edit: Any) -> None:
    """A message of the past that was changed or dropped is refused by its number, the last one sent included."""
    at = await stand(*STEPS)
    at.defaults["system"] = "unit: a\nsession: s1"
    history = await grown(at, 3)
    await at.stream(history)
    await at.refused(f"prefix differs at {where}", messages=edit(history))
    await at.stream(history)


@pytest.mark.parametrize(
    ("where", "changes"),
    [("system", {"system": "unit: a\nother"}), ("tools", {"tools": [NOTE]}), ("tools", {"tools": [BASH, NOTE]})],
)
async def test_rewritten_head(stand: Raise, where: str, changes: dict[str, Any]) -> None:
    """Another system prompt or other tools in the same turn are refused; the next turn may begin under them."""
    at = await stand(*STEPS)
    history = await grown(at, 1)
    await at.stream(history)
    await at.refused(f"prefix differs at {where}", messages=history, **changes)
    if where == "tools":
        await at.stream([*history, answered(await at.stream(history)), user("a new turn")], **changes)


async def test_a_new_head_under_old_thinking(stand: Raise) -> None:
    """Thinking is bound to the head that it was thought under: it cannot be sent under another one."""
    at = await stand({"blocks": [{"thinking": "hm"}, {"text": "Done."}]}, *STEPS)
    answer = answered(await at.stream([user("go")]))
    history = [user("go"), answer, user("a new turn")]
    await at.refused("bound to the conversation before it", messages=history, tools=[NOTE])
    bare = {**answer, "content": [block for block in answer["content"] if block["type"] == "text"]}
    await at.stream([user("go"), bare, user("a new turn")], tools=[NOTE])


async def test_going_back_to_an_earlier_request(stand: Raise) -> None:
    """A session that lost its last answers re-sends an earlier request, bare or with a note, and goes on from there."""
    at = await stand(*STEPS)
    history = await grown(at, 3)
    noted = [*history[:2], user([text("on 0"), text("the machine died")])]
    resumed = await at.stream(noted)
    await at.stream([*noted, answered(resumed), user("anew")])
    await at.refused("prefix differs at messages.2", messages=[*history[:4], user("on 1")])


async def test_other_sessions_and_attempts_are_not_compared(stand: Raise) -> None:
    """Another attempt, another `session:` line or another first message is another session."""
    at = await stand(*STEPS)
    await grown(at, 2)
    await at.stream([user("something else")])
    await at.stream(system="unit: a\nattempt: 2")
    await at.stream(system="unit: a\nsession: s2")


async def test_script_may_switch_the_prefix_rule_off(stand: Raise) -> None:
    """`strict_prefix: false` lets a session without thinking rewrite its past."""
    at = await stand(*STEPS, **LOOSE)
    history = await grown(at, 2)
    await at.stream([history[0], assistant(text("rewritten")), *history[2:]])


async def test_refused_request_is_not_remembered(stand: Raise) -> None:
    """Only what was accepted counts as sent: after a refusal the honest request passes."""
    at = await stand(*STEPS)
    history = await grown(at, 1)
    await at.refused("non-whitespace", messages=[*history[:-1], user([text(" ")])])
    await at.stream(history)
