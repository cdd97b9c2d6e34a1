"""What the real API refuses: the rules of the other modules, in the order in which they may rely on each other. Pure.

`envelope` looks at bytes and headers, `shape` at the body's fields before anything else may rely on them,
`content` at the messages as a chain, `prefix` at what the same session sent before.
Messages are checked from the first one that differs from the remembered request: the others were accepted.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from workers.rehearsal.block_rules import content_blocks, messages
from workers.rehearsal.breakpoint_rules import breakpoint_rules, breakpoints, cache_control
from workers.rehearsal.history import History
from workers.rehearsal.history_rules import (
    drops_moved_thinking,
    ending,
    pairs,
    prefix,
    thinking_blocks,
    unique_ids,
    window,
)
from workers.rehearsal.image_rules import images
from workers.rehearsal.models import Model
from workers.rehearsal.refusal import Body, Refusal, first
from workers.rehearsal.request_rules import MAX_BYTES, envelope, fields, for_model, needs, system
from workers.rehearsal.tool_rules import tools

__all__ = [
    "MAX_BYTES",
    "Refusal",
    "breakpoints",
    "content",
    "count_request",
    "drops_moved_thinking",
    "envelope",
    "prefix",
    "shape",
]


def shape(body: Body, models: Mapping[str, Model], *, beta: bool = False) -> Refusal | None:
    """Refuse fields that are missing, unknown or of the wrong kind, and what the model does not take."""
    return first(chain(fields(body, beta=beta), needs(body, models, "max_tokens"), _rest(body, models, beta=beta)))


def _rest(body: Body, models: Mapping[str, Model], *, beta: bool) -> Iterator[Refusal]:
    """What may rely on the fields being there: nothing here runs before `needs` found nothing."""
    yield from for_model(body, models[body["model"]], beta=beta)
    yield from _parts(body)
    yield from cache_control(body, "cache_control")


def _parts(body: Body) -> Iterator[Refusal]:
    return chain(system(body), tools(body), messages(body["messages"]))


def count_request(body: Body, models: Mapping[str, Model]) -> Refusal | None:
    """Refuse what `count_tokens` refuses: it takes the same body, without `max_tokens` and `stream`."""
    return first(chain(fields(body), needs(body, models))) or first(_parts(body))


def content(body: Body, history: History, model: Model, *, paused: bool = False) -> Refusal | None:
    """Refuse what is wrong in or between messages. `paused`: the last answer was a pause, to be sent back as it is."""
    return first(
        chain(
            breakpoint_rules(body),
            *(content_blocks(part) for _, part in history.new_messages()),
            pairs(history),
            unique_ids(history),
            thinking_blocks(history, drop=drops_moved_thinking(body)),
            ending(history, model, paused=paused),
            images(history, model),
            window(history, model),
        )
    )
