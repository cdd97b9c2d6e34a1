"""The transcript: every event of a session in order, for people (spec L9), with nothing that people must not see.

What a compaction took away from the model stays, marked with `~` at the left. Control and bidi characters are made
harmless, and raw reasoning never appears, only a background model's summary of it (spec A5, A6).
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from . import events as ev
from .endings import ending

__all__ = ["harmless", "lines_of", "lines_of_event", "unseen"]

_MOST_LINES = 12
_MOST_CHARACTERS = 2_000
_BREAKS = ("Zl", "Zp")  # U+2028 and U+2029: a line's end to some, so a way to begin one
_ANSWERED = {None: "answered", True: "approved", False: "denied"}
_ON_THE_SURFACE = ev.UserMessage | ev.AssistantMessage | ev.ToolResult | ev.Compaction


def harmless(text: str) -> str:
    """Return text that cannot move a cursor, write a clipboard or turn its own direction; newlines stay."""
    return "".join(char if char == "\n" or _is_harmless(char) else " " for char in text)


def _is_harmless(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] != "C" and category not in _BREAKS


def unseen(history: Sequence[Any]) -> frozenset[int]:
    """Return the indexes of the events that the model saw once and sees no longer, since the last compaction.

    The first message stays with every summary, and so does what nobody had answered when it was written.
    """
    last = next((at for at in range(len(history) - 1, -1, -1) if _is_compaction(history[at])), 0)
    answered = next((at for at in range(last - 1, -1, -1) if isinstance(history[at], ev.AssistantMessage)), 0)
    gone = [at for at in range(last) if isinstance(history[at], _ON_THE_SURFACE) and not _is_refused(history[at])]
    first = next((at for at in gone if isinstance(history[at], ev.UserMessage)), None)
    heard = {at for at in gone if at < answered or not isinstance(history[at], ev.UserMessage)}
    return frozenset(heard) - {first}


def _is_compaction(event: Any) -> bool:
    return isinstance(event, ev.Compaction) and not event.refused


def _is_refused(event: Any) -> bool:
    return isinstance(event, ev.Compaction) and bool(event.refused)  # a summary that the model never saw


def lines_of(history: Iterable[Any]) -> Iterator[str]:
    """Yield the lines of a transcript: at least one for every event, in order."""
    events = list(history)
    gone = unseen(events)
    for at, event in enumerate(events):
        yield from lines_of_event(event, is_unseen=at in gone)


def lines_of_event(event: Any, *, is_unseen: bool = False) -> Iterator[str]:
    """Yield the lines of one event; one that this version does not know is named, not hidden."""
    for line in _lines(event):
        one = harmless(line.replace("\n", " "))
        yield f"~{one[1:]}" if is_unseen else one


def _lines(event: Any) -> Iterator[str]:  # noqa: C901, PLR0912, PLR0915  # one flat match, a row an event
    match event:
        case ev.SessionStart():
            yield f"session     {event.model} on {event.base[:8]}"
        case ev.Claim():
            yield f"claim       epoch {event.epoch} by {event.holder}"
        case ev.SetupResult():
            yield f"setup       {'ok' if event.ok else 'FAILED'} in {event.seconds:.1f} s"
        case ev.TurnStart():
            yield f"turn {event.turn}"
        case ev.TurnEnd():
            yield f"turn end    {ending(event.reason).words}{_facts(event.facts)}"
        case ev.StepStart():
            yield f"  step {event.step}"
        case ev.StepEnd():
            yield f"  step end  {event.error or event.stop_reason or ''}".rstrip()
        case ev.UserMessage():
            yield from _said(event.source, _text(event.content))
        case ev.AssistantMessage():
            yield from _answer(event)
        case ev.ToolCall():
            repaired = "" if event.repaired is None else f"  with {_arguments(event.repaired)}"
            yield f"    runs      {event.name}{repaired}"
        case ev.ToolResult():
            yield from _said("error" if event.is_error else "result", event.content)
            if event.trimmed is not None:
                yield "              (from here on the model sees its arguments shortened)"
        case ev.Pause():
            yield from _said("asks" if event.what == "question" else "approve?", event.question)
        case ev.Resume():
            yield from _said(_ANSWERED[event.approved], event.text)
        case ev.AgentLoaded():
            problem = f"  no optional tools: {event.problem}" if event.problem else ""
            yield f"agent       {event.name} on {event.model}, effort {event.effort}{problem}"
        case ev.TasksWritten():
            yield from _said("tasks", "\n".join("  ".join(task.values()) for task in event.tasks))
        case ev.ThinkingSummary():
            yield from _said("thought", f"{event.text}  (by {event.model}{_price(event.cost)})")
        case ev.CallBroken():
            yield from _said("broken", f"{event.why}  ({event.model}{_price(event.cost)})")
        case ev.ImagesDropped():
            yield "    (from here on the model sees a note instead of all images in results but the newest)"
        case ev.Checkpoint():
            taken = f"  taken back: {', '.join(event.taken_back)}" if event.taken_back else ""
            yield f"checkpoint  {event.commit[:8]}{taken}"
        case ev.VerifyResult():
            how = "passed" if event.passed else "failed"
            yield from _said("verify", f"{how}: {event.command}\n{event.output}".rstrip())
        case ev.Report():
            yield f"report      {event.report.get('verdict')}  {event.report.get('note', '')}".rstrip()
        case ev.Compaction() if event.refused:
            yield from _said("no summary", f"{event.refused}{_by(event)}")
        case ev.Compaction():
            yield from _said("summary", f"{event.summary}{_by(event)}")
            yield "    (from here on the model sees the summary instead of what is above)"
        case ev.SessionFork():
            yield f"fork        attempt {event.attempt}, from attempt {event.source} up to event {event.at}"
        case ev.Torn():
            yield f"torn tail   {event.bytes} bytes set aside in {event.file}"
        case ev.Unknown():
            yield f"({event.name})"
        case _:  # a type that was added without a row here
            yield f"({event.type})"


def _answer(event: ev.AssistantMessage) -> Iterator[str]:
    """Yield an answer block by block: text beside tool calls stays apart from the text that ends a turn."""
    yield f"    answer    {event.stop_reason}  {event.usage.output_tokens} tokens out{_price(event.cost)}"
    for block in event.content:
        if block["type"] == "text":
            yield from _said("text", block["text"])
        elif block["type"] == "tool_use":
            yield from _said(block["name"].removeprefix("str_replace_based_"), _arguments(block["input"]))
        else:  # thinking among them: said that it was there, never what it was
            yield f"    ({block['type']})"


def _arguments(given: dict[str, Any]) -> str:
    return "  ".join(f"{name}={value}" for name, value in given.items())


def _price(cost: Decimal | None) -> str:
    return "" if cost is None else f"  ${cost:.4f}"


def _by(event: ev.Compaction) -> str:
    return f"  (by {event.model}{_price(event.cost)})" if event.model else ""


def _text(content: list[ev.Block]) -> str:
    return "\n".join(block["text"] if block["type"] == "text" else f"({block['type']})" for block in content)


def _said(who: str, text: str) -> Iterator[str]:
    """Yield a named block, shortened in the middle."""
    lines = text.split("\n")
    if len(lines) > _MOST_LINES:
        half = _MOST_LINES // 2
        lines = [*lines[:half], f"… {len(lines) - 2 * half} lines …", *lines[-half:]]
    yield f"    {who:<9} {_shortened(lines[0])}"
    yield from (f"              {_shortened(line)}" for line in lines[1:])


def _shortened(line: str) -> str:
    over = len(line) - _MOST_CHARACTERS
    if over <= 0:
        return line
    half = _MOST_CHARACTERS // 2
    return f"{line[:half]} … {over} characters … {line[-half:]}"


def _facts(facts: dict[str, Any]) -> str:
    return "  " + "  ".join(f"{name}={value}" for name, value in facts.items()) if facts else ""
