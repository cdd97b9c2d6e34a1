"""The turn loop: log first, derive the request from the log, call the model, run its tools, until the turn ends.

The only conductor (spec L2): it alone appends to the session, calls the model and stores tool results. It never
touches git, never decides about a unit, and knows the lease only as a gate that may say no.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from workers.errors import Cancelled, ModelError, ToolError
from workers.model.catalog import Parameters, cost
from workers.model.client import Answer
from workers.orders import Price
from workers.session import events as ev
from workers.session.fork import own
from workers.session.repair import interrupted_turn_closers
from workers.session.session import Session
from workers.session.surface import Request, request
from workers.tools import Outcome, Tool, Workspace

from .stops import Next, after, calls_of, text_of

__all__ = ["Ended", "Gate", "Progress", "TurnLoop"]

CUT_OFF = (
    "This call was not run: the answer hit the model's output limit while it was written, so its arguments cannot be "
    "trusted. Send it again, in smaller pieces if it is long."
)
NOT_RUN = "This call was not run: the answer ended without asking for its result. Send it again if you need it."
UNREADABLE = "This call was not run: its arguments were not a valid JSON object. Write the call again. They began: "


@dataclass(frozen=True, slots=True)
class Progress:
    """What people watch: counts since the session began, the tool at work, dollars so far (None: price unknown)."""

    turn: int
    step: int
    tool: str
    cost: Decimal | None


class Gate(Protocol):
    """What stands between the loop and every effect (protocol rule 9)."""

    async def before_step(self) -> None:
        """Return when a model call may be made. Raises Cancelled, LeaseLost."""
        ...

    async def before_effect(self) -> None:
        """Return when something may be changed. Raises LeaseLost."""
        ...

    def progress(self, state: Progress) -> None:
        """Take note of where the loop is. Must not block."""
        ...


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended: one of spec L7's reasons, or `suspended`, which is no ending: `question` waits for a person."""

    reason: str
    text: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    question: str | None = None
    pause_seq: int | None = None


Ready = Callable[[], Awaitable[None]]
ModelCall = Callable[[Request, Parameters, Ready], Awaitable[Answer]]  # awaits the third before every try


class TurnLoop:
    """One session's conductor."""

    def __init__(
        self,
        session: Session,
        *,
        model: str,
        parameters: Parameters,
        price: Price | None,
        call: ModelCall,
        tools: Mapping[str, Tool],
        workspace: Workspace,
        gate: Gate,
    ) -> None:
        self._session = session
        self._model = model
        self._parameters = parameters
        self._price = price
        self._call = call
        self._tools = tools
        self._workspace = workspace
        self._gate = gate
        self.turn = session.count(ev.TurnStart)
        self.step = session.count(ev.StepStart)
        self.spent = _spent(session)

    async def run_turn(self, *messages: ev.UserMessage) -> Ended:
        """Start a turn with messages and run it to its end."""
        self.turn += 1
        self._session.append(ev.TurnStart(turn=self.turn), *messages)
        return await self._run()

    async def go_on(self) -> Ended:
        """Go on with a suspended turn whose answer has been appended, by a fresh call (spec A3)."""
        self._session.append(ev.StepEnd(step=self.step))
        return await self._run()

    async def _run(self) -> Ended:
        try:
            while (ended := await self._step()) is None:
                pass
        except Cancelled as stop:
            return await self._close("aborted", cause=stop.reason)
        except ModelError as error:
            return await self._close(
                "error",
                cause=error.kind,
                message=str(error),
                status=error.status,
                error_type=error.error_type,
                request_id=error.request_id,
                retry_after=error.retry_after,
            )
        except asyncio.CancelledError:
            await asyncio.shield(self._close("aborted", cause="cancelled"))
            raise
        return ended

    async def _step(self) -> Ended | None:
        """Make one model call and run what it asks for; None when the turn goes on."""
        await self._gate.before_step()
        answer = await self._ask_model()
        calls = calls_of(answer.content)
        decision = after(answer.stop_reason, has_calls=bool(calls))
        if decision is Next.RUN_TOOLS:
            return await self._run_tools(calls, answer.unreadable)
        self._end_step(calls, answer.stop_reason)
        match decision:
            case Next.REJECT_CALLS | Next.CALL_AGAIN:
                return None
            case Next.DONE:
                return await self._close("completed", text=text_of(answer.content))
            case Next.CUT_SHORT:
                return await self._close("max-tokens", error="agent_output_limit_exceeded")
            case Next.REFUSED:
                return await self._close("blocked", cause="refusal")
            case _:
                return await self._close("error", cause="stop_reason", message=f"stop reason {answer.stop_reason!r}")

    async def _ask_model(self) -> Answer:
        self.step += 1
        self._show("thinking")
        start = ev.StepStart(
            step=self.step,
            model=self._model,
            max_tokens=self._parameters.max_tokens,
            thinking=self._parameters.thinking,
            output_config=self._parameters.output_config,
            request=self._session.surface.digest,
        )
        await self._session.record(start)
        answer = await self._call(request(self._session.surface), self._parameters, self._gate.before_step)
        paid = cost(self._price, answer.usage)
        self.spent = None if paid is None or self.spent is None else self.spent + paid
        self._session.append(
            ev.AssistantMessage(
                content=answer.content,
                stop_reason=answer.stop_reason,
                usage=answer.usage,
                cost=paid,
                request_id=answer.request_id,
                unreadable=answer.unreadable,
            )
        )
        self._show("")  # what the answer cost counts before the next step is allowed
        return answer

    async def _run_tools(self, calls: list[ev.Block], unreadable: Mapping[str, str]) -> Ended | None:
        """Run the calls in order; a question waits until the others have their results."""
        question: ev.Block | None = None
        for call in calls:
            if call["id"] in unreadable:
                self._answer(call, UNREADABLE + unreadable[call["id"]][:200])
            elif _is_question(call) and question is None:
                question = call
            elif _is_question(call):
                self._answer(call, "Only one question at a time: ask this one after the other is answered.")
            else:
                await self._run_tool(call)
        if question is not None:
            return await self._suspend(question)
        self._session.append(ev.StepEnd(step=self.step, stop_reason="tool_use"))
        return None

    async def _run_tool(self, call: ev.Block) -> None:
        tool = self._tools.get(call["name"])
        if tool is None:
            self._answer(call, f"There is no tool {call['name']!r}. There are: {', '.join(self._tools)}.")
            return
        self._show(_label(call))
        self._session.append(ev.ToolCall(call_id=call["id"], name=call["name"]))
        try:
            if tool.mutates(call["input"]):
                await self._session.flush()
                await self._gate.before_effect()
            outcome = await tool.run(call["input"], self._workspace)
        except ToolError as error:
            outcome = Outcome(str(error), is_error=True)
        self._session.append(
            ev.ToolResult(call_id=call["id"], content=outcome.content, is_error=outcome.is_error, facts=outcome.facts)
        )

    def _answer(self, call: ev.Block, reason: str) -> None:
        self._session.append(ev.ToolResult(call_id=call["id"], content=reason, is_error=True))

    def _end_step(self, calls: list[ev.Block], stop_reason: str) -> None:
        """End a step none of whose calls is run, answering each of them."""
        cut = stop_reason in ("max_tokens", "model_context_window_exceeded")
        for call in calls:
            self._answer(call, CUT_OFF if cut else NOT_RUN)
        self._session.append(ev.StepEnd(step=self.step, stop_reason=stop_reason))

    async def _suspend(self, call: ev.Block) -> Ended:
        question = call["input"]["question"].strip()
        seq = await self._session.record(ev.Pause(call_id=call["id"], question=question))
        return Ended("suspended", question=question, pause_seq=seq)

    async def _close(self, reason: str, *, text: str = "", **facts: Any) -> Ended:
        """End the turn, giving every open call a result first, and make it durable. A suspended one stays open."""
        facts = {name: value for name, value in facts.items() if value}
        ends: dict[Any, Any] = {
            ev.StepEnd: ev.StepEnd(step=self.step, error=str(facts.get("cause", reason))),
            ev.TurnEnd: ev.TurnEnd(turn=self.turn, reason=reason, facts=facts),
        }
        closers = interrupted_turn_closers(self._session.events)
        self._session.append(*(ends.get(type(event), event) for event in closers))
        await self._session.flush()
        return Ended(reason, text=text, facts=facts)

    def _show(self, tool: str) -> None:
        self._gate.progress(Progress(self.turn, self.step, tool, self.spent))


def _spent(session: Session) -> Decimal | None:
    costs = [event.cost for event in own(session.events) if isinstance(event, ev.AssistantMessage)]
    return None if None in costs else sum((c for c in costs if c is not None), Decimal(0))


def _is_question(call: ev.Block) -> bool:
    question = call["input"].get("question")
    return call["name"] == "ask" and isinstance(question, str) and bool(question.strip())


def _label(call: ev.Block) -> str:
    """Return a short name of what runs, for people: the tool and the first words of its command or path."""
    subject = call["input"].get("command" if call["name"] == "bash" else "path", "")
    first = str(subject).split("\n", 1)[0][:40]
    return f"{call['name'].removeprefix('str_replace_based_')}: {first}" if first else str(call["name"])
