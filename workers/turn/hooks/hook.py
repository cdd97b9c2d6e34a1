"""What every message hook is: three points of a step at which it may add something. The default adds nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.session import events as ev
from workers.session.session import Session
from workers.tools import Outcome, Tool

__all__ = ["Hook"]


class Hook:
    """One idea a subclass. The loop calls every hook in the order in which they were attached."""

    async def between(self, session: Session) -> Sequence[Any]:  # noqa: ARG002
        """Return events that go into the log before the next model call."""
        return ()

    def arguments(self, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the arguments to run a call with: the same object, unless they must be repaired."""
        return arguments

    async def outcome(self, call: ev.Block, outcome: Outcome) -> Outcome:  # noqa: ARG002
        """Return what the model is told of a call that ran."""
        return outcome
