"""Tales: whole logs with every event in them that a loop and its attempt write, in the order in which they do.

A small model of workers/turn/loop.py and workers/attempt.py; what is special about each step is drawn by hypothesis.
"""

from collections.abc import Sequence
from decimal import Decimal
from itertools import count
from typing import Any

from histories import SECRET, START, body, is_suspended, model_of, says, user
from hypothesis import strategies as st

from workers.rehearsal import seal
from workers.rehearsal.history import build
from workers.session import events as ev
from workers.session.repair import forked_turn_closers, interrupted_turn_closers
from workers.session.surface import surface
from workers.turn.compaction import can_shrink
from workers.turn.hooks.images import carried
from workers.turn.thinking import of_turn

_WEBP = "UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAUAmJaQAA3AA/v02aAA="  # of one pixel
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": _WEBP}}
SUMMARY = "So far so good."
MOST_IMAGES = 1  # the hook's limit is twenty times that: so many would only make tales longer
LONG, SHORT = "cat > long.txt", "cat >"  # a command, and what stands in for it
_HEAD = {"name": "coder", "model": START.model, "effort": "medium", "system": START.system, "tools": START.tools}
BUNDLES = (
    _HEAD,
    {**_HEAD, "system": [{"type": "text", "text": "Work well."}]},
    {**_HEAD, "model": "claude-opus-5-5"},
    {**_HEAD, "effort": "high"},
    {**_HEAD, "tools": START.tools[:1], "problem": "its file cannot be read"},
)
STEPS = (*("tools", "tools", "tools", "tools", "tools"), "rejected", "paused", "empty", "too-large", "window-full")
LAST_STEPS = ("last", "last", "last", "cut", "failed", "tools")
FATES = ("runs", "runs", "runs", "rejected", "approval")
SAYS_NO, SAYS_YES = ({"approved": False, "text": "No."}, {"approved": True, "text": ""})


def call(name: str, tool: str = "bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": tool, "input": arguments}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


class Tale:
    """Tells one session as `draw` decides. A step returns why its turn ends, "" while it does not."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.told: list[Any] = [START]
        self.ids = count(1)
        self.epochs = count(1)
        self.shrunk = False
        self.heard = 0  # events that were looked through for images
        self.due = ""  # whose words start the next turn; "": nobody's, the unit is settled

    def chance(self, one_in: int) -> bool:
        return bool(self.draw(st.integers(0, one_in - 1)) == one_in - 1)

    def count(self, kind: type) -> int:
        return sum(isinstance(event, kind) for event in self.told)

    def tell(self, turns: int) -> list[Any]:
        self.take_up()
        for _ in range(self.draw(st.integers(1, turns))):
            self.due = "runtime"
            if not self.one_turn():
                break
            if self.chance(3):
                self.fork()
            elif not self.due:
                break
        return self.told

    # -- the attempt ----------------------------------------------------------------------------------------------

    def take_up(self) -> None:
        """A worker takes the session up, in a worktree that may be new."""
        self.told.append(ev.Claim(epoch=next(self.epochs), holder="h"))
        if self.chance(4):
            self.told.append(ev.SetupResult(ok=True, seconds=0.5))
        self.heard = 0

    def fork(self) -> None:
        """Go on from a prefix, as another attempt."""
        at = self.draw(st.integers(1, len(self.told)))
        prefix = [event for event in self.told[:at] if not isinstance(event, ev.Claim | ev.Torn)]
        attempt = 2 + self.count(ev.SessionFork)
        origin = ev.SessionFork(source=attempt - 1, at=at, attempt=attempt)
        self.told = [*prefix, origin, *forked_turn_closers(prefix)]
        self.take_up()

    def checkpoint(self) -> None:
        self.told.append(ev.Checkpoint(commit="c" * 40, tree="t" * 40))

    def reports(self, verdict: str) -> None:
        self.told.append(ev.Report(report={"kind": "verdict", "verdict": verdict}))

    def verify(self) -> None:
        self.checkpoint()
        passed = self.chance(3)
        self.told.append(
            ev.VerifyResult(commit="c", tree="t", command="true", digest="d", passed=passed, seconds=1.0, exit_code=0)
        )
        self.due = "" if passed else "verify"
        if passed:
            self.reports("pass")

    def one_turn(self) -> bool:
        """Tell a turn; False when it is suspended and nobody answers."""
        began = len(self.told)
        self.begin()
        reason = self.steps()
        if reason != "suspended":
            self.told.append(ev.TurnEnd(turn=self.count(ev.TurnStart), reason=reason, facts=self.facts(reason)))
        match self.draw(st.sampled_from(("whole", "whole", "whole", "crash", "abort"))):
            case "crash":
                self.crash(began)
            case "abort":
                self.abort(began)
            case _ if reason == "completed":
                self.verify()
        return not is_suspended(self.told)

    def facts(self, reason: str) -> dict[str, Any]:
        return {} if reason == "completed" else {"cause": "budget"}

    def crash(self, began: int) -> None:
        """Cut off what was told last, perhaps in mid-line, and take the session up again."""
        del self.told[self.draw(st.integers(max(began + 1, len(self.told) - 12), len(self.told))) :]
        if not self.chance(3):
            self.told.append(ev.Torn(offset=9, bytes=3, file="torn-9"))
        self.told += interrupted_turn_closers(self.told)
        self.take_up()

    def abort(self, began: int) -> None:
        """A person stops the turn: it is closed where it stands, which is never in the midst of a write."""
        first = next(at for at in range(began, len(self.told)) if isinstance(self.told[at], ev.UserMessage)) + 1
        del self.told[self.draw(st.integers(first, len(self.told))) :]
        last = self.told[-1]
        if isinstance(last, ev.Resume | ev.TasksWritten):  # what belongs to it was in the same write
            self.told.pop()
        for event in interrupted_turn_closers(self.told):
            match event:
                case ev.StepEnd():
                    self.told.append(event.model_copy(update={"error": "stop"}))
                case ev.TurnEnd():
                    self.told.append(ev.TurnEnd(turn=event.turn, reason="aborted", facts={"cause": "stop"}))
                case _:
                    self.told.append(event)

    # -- the turn -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a turn under the bundle as it is now: it is logged when it is another one than the last."""
        self.told.append(ev.TurnStart(turn=self.count(ev.TurnStart) + 1))
        loaded = [event for event in self.told if isinstance(event, ev.AgentLoaded)]
        now = ev.AgentLoaded(**self.draw(st.sampled_from(BUNDLES)))
        if now != (loaded[-1] if loaded else ev.AgentLoaded(**_HEAD)):
            self.told.append(now)
        self.shrunk = False
        is_first = not self.count(ev.UserMessage)
        said = user("the goal") if is_first else user("go on", self.due)
        if is_first and self.chance(4):
            said = said.model_copy(update={"content": [*said.content, IMAGE]})
        self.told.append(said)

    def steps(self) -> str:
        most = self.draw(st.integers(2, 4))
        for number in range(1, most + 1):
            self.hear()
            if self.chance(4) and can_shrink(surface(self.told)) and not self.compact():
                return "error"
            if ended := self.step(self.draw(st.sampled_from(STEPS if number < most else LAST_STEPS))):
                return ended
        return "aborted"  # by the budget, between two steps

    def hear(self) -> None:
        """What the hooks, and a newer version's, have for the next call."""
        if self.chance(6):
            self.person()
        new, self.heard = self.told[self.heard :], len(self.told)
        if any(isinstance(event, ev.ToolResult) and event.images for event in new):
            attached, results = carried(surface(self.told).messages)
            if attached + sum(results) > MOST_IMAGES and len(results) > 1:
                self.told.append(ev.ImagesDropped())
        if self.chance(6):
            self.told.append(ev.Unknown(name="moon/phase", payload={"full": True, "version": 3}))

    def person(self) -> None:
        said = user("Mind the gap.", "person")
        self.told.append(said.model_copy(update={"told": f"t{next(self.ids)}", "effort": "high"}))

    def broken(self, model: str) -> None:
        if self.chance(8):
            self.told.append(ev.CallBroken(model=model, cost=Decimal("0.01"), why="the connection was lost"))

    def compact(self) -> bool:
        """Ask for a summary, of one model or two: the first may write one that is of no use."""
        view = surface(self.told)
        for _ in range(2):
            self.broken("claude-haiku-5-5")
            refused = "it is too long" if self.chance(4) else ""
            made = ev.Compaction(summary=SUMMARY, steps=view.answers, refused=refused, model="claude-haiku-5-5")
            self.told.append(made)
            if not refused:
                return True
        return False

    def shrink(self) -> bool:
        """Compact because the context is full: once, until a call has worked again."""
        if self.shrunk or not can_shrink(surface(self.told)):
            return False
        self.shrunk = True
        return self.compact()

    def tell_of_thinking(self) -> None:
        if of_turn(self.told) and not self.chance(4):
            self.broken("claude-haiku-5-5")
            turn = self.count(ev.TurnStart)
            self.told.append(ev.ThinkingSummary(turn=turn, text="It weighed two ways.", model="claude-haiku-5-5"))

    def step(self, kind: str) -> str:
        start = ev.StepStart(
            step=self.count(ev.StepStart) + 1, model=model_of(self.told), max_tokens=128_000, request="r"
        )
        self.told.append(start)
        self.broken(start.model)
        if kind in ("failed", "too-large"):
            self.told.append(ev.StepEnd(step=start.step, error=kind))
            return "" if kind == "too-large" and self.shrink() else "error"
        self.shrunk = self.shrunk and kind == "window-full"
        if kind in ("tools", "rejected"):
            return self.calls(start.step, kind)
        self.answer(kind)
        self.told.append(ev.StepEnd(step=start.step))
        return self.after(kind)

    def answer(self, kind: str) -> None:
        """An answer none of whose calls is run."""
        match kind:
            case "last":
                self.says(self.thinks(), text("Done."), stop="end_turn")
            case "cut":  # nothing but thinking, perhaps
                self.says(self.thinks(), *([text("Do")] if self.chance(2) else []), stop="max_tokens")
            case "paused":
                self.says(self.thinks(), text("Wait."), stop="pause_turn")
            case "empty":
                self.says(stop="pause_turn")
            case "window-full":
                self.says(self.thinks(), cut := call(f"c{next(self.ids)}"), stop="model_context_window_exceeded")
                self.told.append(ev.ToolResult(call_id=cut["id"], content="Not run.", is_error=True))

    def after(self, kind: str) -> str:
        """Return how the turn goes on behind an answer none of whose calls was run."""
        match kind:
            case "last" if self.chance(5):
                self.person()  # while the last answer was written
                return ""
            case "last":
                self.tell_of_thinking()
                return "completed"
            case "cut":
                self.tell_of_thinking()
                return "max-tokens"
            case "window-full" if not self.shrunk and can_shrink(surface(self.told)):
                return "" if self.shrink() else "error"
            case "window-full":
                return "max-tokens"
            case _:
                return ""

    def thinks(self, *before: dict[str, Any]) -> dict[str, Any] | None:
        """Return thinking that is bound to what was told, and to what the answer has before it; perhaps."""
        if not self.chance(2):
            return None
        sent = body(self.told)
        sent["messages"] = [*sent["messages"], *([{"role": "assistant", "content": list(before)}] if before else [])]
        digest = build(sent).digest
        if self.chance(4):
            return {"type": "redacted_thinking", "data": seal.sign("", digest)}
        return {"type": "thinking", "thinking": SECRET, "signature": seal.sign(SECRET, digest)}

    def says(self, *content: dict[str, Any] | None, stop: str) -> None:
        self.told.append(says(*(block for block in content if block is not None), stop=stop))

    # -- calls ----------------------------------------------------------------------------------------------------

    def calls(self, step: int, kind: str) -> str:
        asked = [self.asked() for _ in range(self.draw(st.integers(1, 3)))]
        if kind == "tools" and self.chance(6):
            asked.insert(self.draw(st.integers(0, len(asked))), call(f"q{next(self.ids)}", "ask", question="Which?"))
        content = [block for block in (self.thinks(), text("Now.") if self.chance(2) else None) if block is not None]
        for block in asked:
            between = self.thinks(*content, block) if self.chance(8) else None
            content += [block] if between is None else [block, between]
        unreadable = {asked[0]["id"]: '{"command'} if kind == "rejected" else {}
        self.told.append(says(*content).model_copy(update={"unreadable": unreadable}))
        for block in asked:
            if block["name"] != "ask" and not self.decide(block, content, is_refused=kind == "rejected"):
                return "suspended"
        if not all(self.asks(block) for block in asked if block["name"] == "ask"):
            return "suspended"
        self.told.append(ev.StepEnd(step=step, stop_reason="tool_use"))
        return ""

    def asked(self) -> dict[str, Any]:
        name = f"c{next(self.ids)}"
        return self.draw(
            st.sampled_from(
                (
                    *(call(name, command="true"), call(name, command=LONG), call(name, command=LONG)),
                    *(call(name, "look"), call(name, "look", lines="[1, 2]")),
                    call(name, "update_tasks", tasks=[{"title": "A task", "status": "done"}]),
                )
            )
        )

    def decide(self, block: dict[str, Any], content: Sequence[dict[str, Any]], *, is_refused: bool) -> bool:
        """Run a call, refuse it, or ask a person for it; False when nobody answers."""
        fate = "rejected" if is_refused else self.draw(st.sampled_from(FATES))
        if fate == "rejected":
            self.told.append(ev.ToolResult(call_id=block["id"], content="Not run.", is_error=True))
        elif fate == "approval":
            return self.approval(block, content)
        else:
            self.runs(block, content)
        return True

    def runs(self, block: dict[str, Any], content: Sequence[dict[str, Any]]) -> None:
        name, given = block["id"], block["input"]
        repaired = {"lines": [1, 2]} if "lines" in given else None
        self.told.append(ev.ToolCall(call_id=name, name=block["name"], repaired=repaired))
        if self.chance(6):
            self.told.append(ev.ToolResult(call_id=name, content="It failed.", is_error=True))
            return
        if block["name"] == "update_tasks":
            self.told.append(ev.TasksWritten(tasks=given["tasks"]))
        is_thought_about = any("thinking" in other["type"] for other in content[content.index(block) :])
        is_trimmed = given.get("command") == LONG and not is_thought_about
        self.told.append(
            ev.ToolResult(
                call_id=name,
                content=self.draw(st.sampled_from(["", "ok"])),
                images=[IMAGE] if block["name"] == "look" else [],
                trimmed={"command": SHORT} if is_trimmed else None,
            )
        )

    def waits(self, pause: ev.Pause) -> bool:
        """Suspend the turn; False when nobody answers, else a worker has taken it up again."""
        self.told.append(pause)
        if self.chance(2):
            self.checkpoint()
        self.reports("block")
        if self.chance(6):
            return False
        self.take_up()
        return True

    def approval(self, block: dict[str, Any], content: Sequence[dict[str, Any]]) -> bool:
        name = block["id"]
        if not self.waits(ev.Pause(call_id=name, question="bash: true", what="approval")):
            return False
        said = self.draw(st.sampled_from((SAYS_YES, SAYS_NO)))
        self.told.append(ev.Resume(call_id=name, **said))
        if said["approved"]:
            self.runs(block, content)
        else:
            self.told.append(ev.ToolResult(call_id=name, content="Denied.", is_error=True))
        return True

    def asks(self, block: dict[str, Any]) -> bool:
        name = block["id"]
        if not self.waits(ev.Pause(call_id=name, question="Which?")):
            return False
        self.told += [ev.Resume(call_id=name, text="This."), ev.ToolResult(call_id=name, content="This.")]
        return True


@st.composite
def tales(draw: Any, turns: int = 2) -> list[Any]:
    """Whole logs with everything in them that a session's owner writes."""
    return Tale(draw).tell(turns)
