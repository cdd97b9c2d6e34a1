"""What the stop reason of a call decides (spec A3, A15-A18). Pure; every reason has a row, strangers included.

`docs/sessions.md` has the table for people.
"""

from collections.abc import Sequence
from enum import Enum, auto

from workers.session.events import Block

__all__ = ["MOST_CUT_OFF", "OUTPUT_LIMIT", "WINDOW_FULL", "Next", "after", "calls_of", "named", "text_of"]

MOST_CUT_OFF = 3
"""Answers in a row whose calls the output limit cut off; a model that writes a fourth will write a fifth."""


OUTPUT_LIMIT = "agent_output_limit_exceeded"
WINDOW_FULL = "model_context_window_exceeded"
"""What a turn that ended `max-tokens` has as `error` in its facts: the first is worth another turn, the second not."""


class Next(Enum):
    """What the loop does with an answer."""

    RUN_TOOLS = auto()
    DONE = auto()
    CALL_AGAIN = auto()  # pause_turn: send the content back unchanged, run nothing
    REJECT_CALLS = auto()  # cut short: every call is answered with the reason, none runs
    CUT_SHORT = auto()  # the answer itself is incomplete: half an answer is never the answer
    SHRINK = auto()  # the context is full: reject the calls, and let a summary stand in for the history
    REFUSED = auto()
    BROKEN = auto()


def after(stop_reason: str, *, has_calls: bool) -> Next:
    """Return what to do after an answer that stopped for `stop_reason`."""
    match stop_reason:
        case "tool_use":
            return Next.RUN_TOOLS if has_calls else Next.BROKEN
        case "end_turn" | "stop_sequence":
            return Next.REJECT_CALLS if has_calls else Next.DONE
        case "pause_turn":
            return Next.REJECT_CALLS if has_calls else Next.CALL_AGAIN
        case "max_tokens":
            return Next.REJECT_CALLS if has_calls else Next.CUT_SHORT
        case "model_context_window_exceeded":
            return Next.SHRINK
        case "refusal":
            return Next.REFUSED
        case _:
            return Next.BROKEN


def calls_of(content: Sequence[Block]) -> list[Block]:
    """Return the tool calls of an answer, in order."""
    return [block for block in content if block["type"] == "tool_use"]


def named(content: Sequence[Block]) -> list[Block]:
    """Return an answer without the calls that no result could name: they must neither run nor go back (spec A18)."""
    return [block for block in content if block["type"] != "tool_use" or (block.get("id") and block.get("name"))]


def text_of(content: Sequence[Block]) -> str:
    """Return the text that people see of an answer: never its thinking (spec A5)."""
    return "\n\n".join(block["text"].strip() for block in content if block["type"] == "text")
