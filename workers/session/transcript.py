"""The transcript: every event of a session in order, for people (spec L9), with nothing that people must not see.

Control and bidi characters are made harmless, and raw reasoning never appears (spec A5).
"""

import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from . import events as ev
from .endings import ending

__all__ = ["harmless", "lines_of"]

_MOST_LINES = 12


def harmless(text: str) -> str:
    """Return text that cannot move a cursor, write a clipboard or turn its own direction; newlines stay."""
    return "".join(char if char == "\n" or unicodedata.category(char)[0] != "C" else " " for char in text)


def lines_of(history: Iterable[Any]) -> Iterator[str]:  # noqa: C901, PLR0912  # one flat match, a row an event
    """Yield the lines of a transcript; events that this version does not know are named, not hidden."""
    for event in history:
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
                yield harmless(f"turn end    {ending(event.reason).words}{_facts(event.facts)}")
            case ev.UserMessage():
                yield from _said(event.source, ev_text(event.content))
            case ev.AssistantMessage():
                yield from _answer(event)
            case ev.ToolResult():
                yield from _said("error" if event.is_error else "result", event.content)
            case ev.Pause():
                yield from _said("asks", event.question)
            case ev.Resume():
                yield from _said("answered", event.text)
            case ev.Checkpoint():
                taken = f"  taken back: {', '.join(event.taken_back)}" if event.taken_back else ""
                yield harmless(f"checkpoint  {event.commit[:8]}{taken}")
            case ev.VerifyResult():
                yield from _said("verify", f"{'passed' if event.passed else 'failed'}: {event.command}\n{event.output}")
            case ev.Report():
                yield harmless(f"report      {event.report.get('verdict')}  {event.report.get('note', '')}".rstrip())
            case ev.Compaction():
                yield from _said("summary", event.summary)
                yield "    (from here on the model sees the summary instead of what is above)"
            case ev.SessionFork():
                yield f"fork        attempt {event.attempt}, from attempt {event.source} up to event {event.at}"
            case ev.Torn():
                yield f"torn tail   {event.bytes} bytes set aside in {event.file}"
            case ev.Unknown():
                yield harmless(f"({event.name})")
            case _:  # step/start, step/end, tool/call: said by what stands around them
                pass


def _answer(event: ev.AssistantMessage) -> Iterator[str]:
    cost = "" if event.cost is None else f"  ${event.cost:.4f}"
    yield f"  step      {event.stop_reason}  {event.usage.output_tokens} tokens out{cost}"
    for block in event.content:
        if block["type"] == "text":
            yield from _said("text", block["text"])
        elif block["type"] == "tool_use":
            arguments = "  ".join(f"{name}={value}" for name, value in block["input"].items())
            yield from _said(block["name"].removeprefix("str_replace_based_"), arguments)


def ev_text(content: list[ev.Block]) -> str:
    """Return the text blocks of a message."""
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def _said(who: str, text: str) -> Iterator[str]:
    """Yield a named block, shortened in the middle."""
    lines = harmless(text).split("\n")
    if len(lines) > _MOST_LINES:
        half = _MOST_LINES // 2
        lines = [*lines[:half], f"… {len(lines) - 2 * half} lines …", *lines[-half:]]
    yield f"    {who:<9} {lines[0]}"
    yield from (f"              {line}" for line in lines[1:])


def _facts(facts: dict[str, Any]) -> str:
    return harmless("  " + "  ".join(f"{name}={value}" for name, value in facts.items())) if facts else ""
