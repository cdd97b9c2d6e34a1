"""Compaction: a summary stands in for the history when the model's window is nearly full (spec A14). Pure.

Only between steps, so that no call is parted from its result. The first message, what nobody has answered yet and the
task list stay word by word; thinking, bound to what stood before it, does not. The loop makes the call and appends.
"""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

from workers.model.assembly import Answer
from workers.model.catalog import card_of
from workers.orders import AgentOrder
from workers.session import events as ev
from workers.session.events import Block
from workers.session.surface import Request, Surface, request

from .stops import calls_of, text_of

__all__ = [
    "ASK",
    "asking",
    "can_shrink",
    "expected_input",
    "fits",
    "is_due",
    "limit_of",
    "problem_with",
    "summary_of",
    "writers",
]

ASK = """\
Write a summary of this session. Your context is nearly full: what you write now replaces everything above but the \
first message and what came after your last answer. Whoever goes on knows only what you write, so be concrete:

1. What is done, and how you know that it works.
2. What was tried and failed, and why, so that nobody tries it again.
3. The state of the files: every file that was created, changed or deleted, and what is still unfinished in it.
4. What was found out and is needed later: names, paths, commands, exact error messages, decisions and their reasons.
5. What people have asked for on the way and still holds.
6. What to do next.

Call no tool. Answer with the summary alone, well shorter than the session itself; do not repeat the first message."""

_TOKEN = 3.5  # characters: code and logs have more tokens a character than prose has
_IMAGE = 1_600  # tokens of one at the usual size
_MOST_AFTER = 0.75  # of the limit: a compaction that frees less would be due again at once
_SAFE = 0.95  # of a window: a request larger than that by our estimate may be too large
_REDUCED = 0.5  # of a window: what is sent of a history that is too large to be sent whole
_LONGEST_RESULT = 8_000  # characters of each tool result in it
_CUT = "\n… (cut: the history was too large to be summarized whole) …\n"


def limit_of(agent: AgentOrder) -> int:
    """Return the input tokens above which no call is made: a share of the model's window, or the cap (spec A14)."""
    return min(int(card_of(agent).window * agent.compact_at), agent.context_cap)


def is_due(history: Sequence[Any], view: Surface, agent: AgentOrder) -> bool:
    """Tell whether the next call would fill more than the limit, and a summary could change that."""
    return expected_input(history, view) > limit_of(agent) and can_shrink(view)


def can_shrink(view: Surface) -> bool:
    """Tell whether the surface has more than what every compaction leaves as it is."""
    return len(view.messages) > len(view.kept)


def expected_input(history: Sequence[Any], view: Surface) -> int:
    """Return the tokens that the next call will send: what the last one sent and got, and an estimate of what is new.

    Looks no further back than the last answer, or the compaction behind it.
    """
    added = 0.0
    for event in reversed(history):
        match event:
            case ev.AssistantMessage(usage=used) if (sent := _input_of(used)) > 0:
                return ceil(sent + used.output_tokens + added)
            case ev.Compaction(refused=""):
                break
            case ev.UserMessage():
                added += _tokens(event.content)
            case ev.ToolResult():
                added += len(event.content) / _TOKEN + _tokens(event.images)
            case _:
                pass
    return ceil(_tokens(view.system) + _tokens(view.tools) + _tokens_of_messages(view.messages))


def _input_of(usage: ev.Usage) -> int:
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


def _tokens(part: Any) -> float:
    """Estimate the tokens of a piece of a request."""
    match part:
        case str():
            return len(part) / _TOKEN
        case {"type": "image"}:
            return _IMAGE
        case dict():
            return sum(len(name) / _TOKEN + _tokens(value) for name, value in part.items())
        case list():
            return sum(map(_tokens, part))
        case _:
            return 1


def _tokens_of_messages(messages: Sequence[dict[str, Any]]) -> float:
    return sum(_tokens(message["content"]) for message in messages)


# -- asking ---------------------------------------------------------------------------------------------------------


def fits(tokens: int, agent: AgentOrder, model: str) -> bool:
    """Tell whether a model can read so many tokens, by our estimate."""
    return tokens < card_of(agent, model).window * _SAFE


def writers(agent: AgentOrder, tokens: int) -> Iterator[str]:
    """Yield the models that may write the summary of so many tokens: the background one, if it can read that much."""
    background = agent.background
    if background is not None and background != agent.model and fits(tokens, agent, background):
        yield background
    yield agent.model


def asking(view: Surface, agent: AgentOrder, model: str, *, is_too_large: bool) -> Request:
    """Return the request for a summary: the history as it was sent, so that it is read from the cache, and a question.

    `tool_choice` stays as it is, and the tools stay: changing either would cost the cache. Another model gets no
    thinking, which only its own can read. A history that is too large goes without its middle.
    """
    ask = [{"type": "text", "text": ASK}]
    if is_too_large:
        room = card_of(agent, model).window * _REDUCED
        return Request(view.system, view.tools, [*_reduced(view, room), {"role": "user", "content": ask}])
    if model != agent.model:
        messages = _plain(view.messages)
        return Request(view.system, view.tools, [*messages, {"role": "user", "content": ask}])
    return request(view, ask)


def _plain(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without thinking; one that was nothing else is left out."""
    kept = [{**m, "content": [block for block in m["content"] if "thinking" not in block["type"]]} for m in messages]
    return [message for message in kept if message["content"]]


def _reduced(view: Surface, room: float) -> list[dict[str, Any]]:
    """Return the first message and as many of the newest steps as fit into so many tokens, long results shortened."""
    first, *others = [{**m, "content": [_short(block) for block in m["content"]]} for m in _plain(view.messages)]
    room -= _tokens(view.system) + _tokens(view.tools) + _tokens(first["content"])
    starts = [at for at, message in enumerate(others) if message["role"] == "assistant"]
    keep = len(others)
    for start in reversed(starts):  # from an answer on: its calls and their results stay together
        if keep < len(others) and _tokens_of_messages(others[start:]) > room:
            break
        keep = start
    return [first, *others[keep:]]


def _short(block: Block) -> Block:
    """Return a block without images and with a long result cut in the middle."""
    content = block.get("content")
    if block["type"] == "image":
        return {"type": "text", "text": "(an image)"}
    if block["type"] != "tool_result" or content is None:
        return block
    text = content if isinstance(content, str) else "\n".join(part.get("text", "(an image)") for part in content)
    half = _LONGEST_RESULT // 2
    return {**block, "content": text if len(text) <= _LONGEST_RESULT else text[:half] + _CUT + text[-half:]}


# -- what came back -------------------------------------------------------------------------------------------------


def summary_of(answer: Answer, tasks: ev.TasksWritten | None) -> str:
    """Return what stands in for the history: the model's words, and the task list as it was last written."""
    said = text_of(answer.content).strip()
    if not said or tasks is None or not tasks.tasks:
        return said
    lines = ["- " + "  ".join(task.values()) for task in tasks.tasks]
    return "\n".join([said, "", "Task list (update_tasks), as it was last written:", *lines])


def problem_with(answer: Answer, summary: str, view: Surface, agent: AgentOrder) -> str:
    """Return why a summary cannot stand in for the history; "" when it can."""
    if calls_of(answer.content):
        return "the model called a tool instead of writing a summary"
    if answer.stop_reason not in ("end_turn", "stop_sequence"):
        return f"the summary was not finished (stop reason {answer.stop_reason!r})"
    if not summary:
        return "the summary was empty"
    stays = _tokens_of_messages(view.kept)
    if _tokens(summary) >= _tokens_of_messages(_plain(view.messages)) - stays:
        return "the summary was no shorter than what it would replace"
    after = _tokens(view.system) + _tokens(view.tools) + stays + _tokens(summary)
    if after > limit_of(agent) * _MOST_AFTER:
        return (
            f"even with a summary, about {after:,.0f} of {limit_of(agent):,} tokens would be in use: the goal, the "
            "instructions or the last message are too long; shorten them, or raise [context] cap"
        )
    return ""
