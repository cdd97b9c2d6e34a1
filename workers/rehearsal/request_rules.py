"""Rules about the request itself: size, version, the fields of the body, what the model takes."""

from collections.abc import Iterator, Mapping
from itertools import chain

from workers.rehearsal.block_rules import block_fields, text_block
from workers.rehearsal.models import Model
from workers.rehearsal.refusal import EXTRA, MISSING, Body, Refusal

__all__ = ["MAX_BYTES", "envelope", "fields", "for_model", "needs", "system"]

MAX_BYTES = 32 * 1024 * 1024
_MIN_BUDGET = 1024


def envelope(raw: bytes, headers: Mapping[str, str]) -> Refusal | None:
    """Refuse a request that is too large or does not say which version of the API it speaks."""
    if len(raw) > MAX_BYTES:
        return Refusal("Request exceeds the maximum size of 32 MB", status=413, type="request_too_large")
    if not headers.get("anthropic-version"):
        return Refusal("anthropic-version: header is required")
    return None


_FIELDS = frozenset(
    {
        "cache_control",
        "container",
        "diagnostics",
        "inference_geo",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "output_config",
        "service_tier",
        "speed",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
        "user_profile_id",
        "workspace_id",
    }
)
_BETA_FIELDS = frozenset({"context_management", "fallbacks", "mcp_servers", "output_format", "betas"})


def fields(body: Body, *, beta: bool = False) -> Iterator[Refusal]:
    """No field that the API does not know; a request with a beta header may have some more."""
    allowed = _FIELDS | _BETA_FIELDS if beta else _FIELDS
    yield from (Refusal(f"{name}: {EXTRA}") for name in body if name not in allowed)


def needs(body: Body, models: Mapping[str, Model], *more: str) -> Iterator[Refusal]:
    """The fields without which there is no request, and a model that exists."""
    yield from (Refusal(f"{name}: {MISSING}") for name in ("model", *more, "messages") if name not in body)
    if not isinstance(body["model"], str):
        yield Refusal("model: Input should be a valid string")
    elif body["model"] not in models:
        yield Refusal(f"model: {body['model']}", status=404, type="not_found_error")
    if not isinstance(body["messages"], list):
        yield Refusal("messages: Input should be a valid list")


def for_model(body: Body, model: Model, *, beta: bool) -> Iterator[Refusal]:
    """What depends on the model: limits, sampling, thinking, effort."""
    return chain(
        _max_tokens(body, model),
        _sampling(body, model),
        _thinking(body, model, beta=beta),
        _effort(body, model),
        _stream(body),
    )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _max_tokens(body: Body, model: Model) -> Iterator[Refusal]:
    asked = body["max_tokens"]
    if not _is_int(asked):
        yield Refusal("max_tokens: Input should be a valid integer")
    elif asked < 1:
        yield Refusal("max_tokens: Input should be greater than or equal to 1")
    elif asked > model.max_tokens:
        most = f"{model.max_tokens}, which is the maximum allowed number of output tokens for {model.id}"
        yield Refusal(f"max_tokens: {asked} > {most}")


def _sampling(body: Body, model: Model) -> Iterator[Refusal]:
    if not model.sampling:
        yield from (
            Refusal(f"`{name}` is deprecated for this model.")
            for name in ("temperature", "top_p", "top_k")
            if name in body
        )


def _thinking(body: Body, model: Model, *, beta: bool) -> Iterator[Refusal]:
    asked = body.get("thinking")
    if asked is None:
        return
    form = asked.get("type") if isinstance(asked, dict) else None
    if form not in ("enabled", "disabled", "adaptive", "between_tools"):  # a tuple: it may be unhashable
        yield Refusal("thinking.type: Input should be 'enabled', 'disabled', 'adaptive' or 'between_tools'")
    elif form not in model.thinking:
        takes = ", ".join(model.thinking)
        yield Refusal(f"thinking.type.{form}: is not supported for {model.id}, which takes {takes}")
    else:
        yield from _thinking_fields(asked, form, beta=beta)
        if form == "enabled":
            yield from _budget(asked, body["max_tokens"])


def _thinking_fields(asked: Body, form: str, *, beta: bool) -> Iterator[Refusal]:
    allowed = {"type"}
    if form in {"enabled", "adaptive"}:
        allowed |= {"display", "block_binding"} if beta else {"display"}
    if form == "enabled":
        allowed |= {"budget_tokens"}
    yield from (Refusal(f"thinking.{form}.{name}: {EXTRA}") for name in asked if name not in allowed)
    if asked.get("display") not in (None, "summarized", "omitted"):  # a tuple: it may be unhashable
        yield Refusal(f"thinking.{form}.display: Input should be 'summarized' or 'omitted'")


def _budget(asked: Body, max_tokens: int) -> Iterator[Refusal]:
    budget = asked.get("budget_tokens")
    if not isinstance(budget, int) or isinstance(budget, bool):
        yield Refusal("thinking.enabled.budget_tokens: Input should be a valid integer")
    elif budget < _MIN_BUDGET:
        yield Refusal("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    elif budget >= max_tokens:
        yield Refusal("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _effort(body: Body, model: Model) -> Iterator[Refusal]:
    config = body.get("output_config")
    effort = config.get("effort") if isinstance(config, dict) else None
    if effort is None:
        return
    if not model.efforts:
        yield Refusal(f"output_config.effort: This model does not support the effort parameter: {model.id}")
    elif effort not in model.efforts:
        takes = ", ".join(model.efforts)
        yield Refusal(f"output_config.effort: {effort!r} is not supported for {model.id}, which takes {takes}")


def _stream(body: Body) -> Iterator[Refusal]:
    if not isinstance(body.get("stream", False), bool):
        yield Refusal("stream: Input should be a valid boolean")


def system(body: Body) -> Iterator[Refusal]:
    """The system prompt: a string, or text blocks that say something."""
    prompt = body.get("system")
    if prompt is None or isinstance(prompt, str):
        return
    if not isinstance(prompt, list):
        yield Refusal("system: Input should be a valid string or list")
        return
    for index, block in enumerate(prompt):
        where = f"system.{index}"
        if not isinstance(block, dict) or block.get("type") != "text":
            yield Refusal(f"{where}.type: Input should be 'text'")
        else:
            yield from block_fields(block, where)
            yield from text_block(block, where, "system: text content blocks must be non-empty")
