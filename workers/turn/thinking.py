"""The thinking summary: what people may know of a turn's reasoning, in a background model's words (spec A5, A6). Pure.

Raw reasoning goes to that model and nowhere else; a summary that repeats it word by word is none.
"""

import re
from collections.abc import Sequence
from typing import Any

from workers.model.assembly import Answer
from workers.session import events as ev
from workers.session.surface import Request

from .stops import text_of

__all__ = ["SECONDS", "asking", "of_turn", "summary_of"]

SECONDS = 15.0
"""How long a turn's end waits for its summary: a report must not hang on a nicety."""

_SYSTEM = (
    "You summarize an assistant's private reasoning for the people it works for. Say in at most three plain sentences, "
    "in your own words, what it weighed and what it decided. Quote nothing, and repeat no secrets, keys or personal "
    "data. Answer with the sentences alone."
)
_MOST_SENT = 40_000  # characters: the end of a long turn's reasoning says where it came out
_MOST_SENTENCES = 3
_MOST_SHOWN = 800  # characters
_WORD_BY_WORD = 6  # words in a row: fewer are a name, a path or an everyday phrase
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def of_turn(history: Sequence[Any]) -> str:
    """Return the readable reasoning of the last turn, oldest first; "" where there is none, or only signatures."""
    thoughts: list[str] = []
    for event in reversed(history):
        if isinstance(event, ev.TurnStart):
            break
        if isinstance(event, ev.AssistantMessage):
            thoughts += [block["thinking"] for block in reversed(event.content) if block["type"] == "thinking"]
    return "\n\n".join(thought.strip() for thought in reversed(thoughts) if thought.strip())


def asking(thoughts: str) -> Request:
    """Return the request for a summary of these thoughts."""
    content = [{"type": "text", "text": f"The reasoning:\n\n{thoughts[-_MOST_SENT:]}"}]
    return Request([{"type": "text", "text": _SYSTEM}], [], [{"role": "user", "content": content}])


def summary_of(answer: Answer, thoughts: str) -> str:
    """Return at most three sentences of an answer; "" for one that is cut short, empty, or repeats the thoughts."""
    if answer.stop_reason not in ("end_turn", "stop_sequence"):
        return ""
    said = " ".join(text_of(answer.content).split())
    summary = " ".join(_SENTENCE_END.split(said)[:_MOST_SENTENCES])[:_MOST_SHOWN]
    return "" if _repeats(summary, thoughts) else summary


def _repeats(summary: str, thoughts: str) -> bool:
    """Tell whether a summary has six words in a row from the thoughts, or is, short as it is, a piece of them."""
    words, known = summary.split(), " ".join(thoughts.split())
    runs = range(max(1, len(words) - _WORD_BY_WORD + 1))
    return bool(words) and any(" ".join(words[at : at + _WORD_BY_WORD]) in known for at in runs)
