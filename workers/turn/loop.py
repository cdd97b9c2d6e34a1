"""The turn loop: log first, derive the request from the log, call the model, run its tools, until the turn ends.

The only conductor (spec L2): it alone appends to the session, calls the model and stores tool results. It never
touches git, never decides about a unit, and knows the lease only as a gate that may say no.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, Protocol

from workers import policy
from workers.agents.bundle import Bundle, Loader
from workers.errors import Cancelled, ModelError, ToolError
from workers.model.assembly import Answer, Broken
from workers.model.catalog import Parameters, card_of, cost, parameters, price_of
from workers.orders import Answered
from workers.session import events as ev
from workers.session.costs import spent
from workers.session.repair import interrupted_turn_closers
from workers.session.session import Session
from workers.session.surface import Request, request
from workers.tools import Outcome, Tool, Workspace

from . import compaction, thinking
from .hooks import Hook
from .stops import MOST_CUT_OFF, OUTPUT_LIMIT, WINDOW_FULL, Next, after, calls_of, named, text_of

__all__ = ["Ended", "Gate", "Progress", "TurnLoop"]

CUT_OFF = (
    "This call was not run: the answer hit the model's output limit while it was written, so its arguments cannot be "
    "trusted. Send it again, in smaller pieces if it is long."
)
NO_ROOM = (
    "This call was not run: the context window was full while it was written, so its arguments cannot be trusted. Send "
    "it again if you still need it."
)
NOT_RUN = "This call was not run: the answer ended without asking for its result. Send it again if you need it."
UNREADABLE = "This call was not run: its arguments were not a valid JSON object. Write the call again. They began: "
DENIED = (
    "This call was not run: {rule} is denied in this night. Find another way, or end your turn and say what is missing."
)
REFUSED = "A person denied this call; it was not run."
_UNTRUSTED = {"max_tokens": CUT_OFF, "model_context_window_exceeded": NO_ROOM}


@dataclass(frozen=True, slots=True)
class Progress:
    """What people watch: counts since the session began, the tool at work, dollars so far (None: price unknown).

    `done` are the steps that came to their end: a loss with more of them than the last one was progress (rule 12).
    """

    turn: int
    step: int
    tool: str
    cost: Decimal | None
    done: int = 0


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
    """How a turn ended: one of spec L7's reasons, or `suspended`, which is no ending: `pause` waits for a person."""

    reason: str
    text: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    pause: ev.Pause | None = None
    pause_seq: int | None = None


Ready = Callable[[], Awaitable[None]]
OnBroken = Callable[[Broken], None]
ModelCall = Callable[[str, Request, Parameters, Ready, OnBroken], Awaitable[Answer]]
"""A call of a model, tried again: awaits `Ready` before every try, and tells `OnBroken` what a try used in vain."""


class TurnLoop:
    """One session's conductor."""

    def __init__(
        self,
        session: Session,
        *,
        agents: Loader,
        call: ModelCall,
        workspace: Workspace,
        gate: Gate,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self._session = session
        self._agents = agents
        self._call = call
        self._workspace = workspace
        self._gate = gate
        self._hooks = hooks
        self._bundle: Bundle
        self._effort: str | None = None
        self._running: asyncio.Task[Any] | None = None
        self._tool = ""
        self._cancelled: str | None = None
        self._cut_off = 0  # answers in a row whose calls the output limit cut off
        self._shrunk = False  # a compaction was made because the context was full, and nothing has worked since
        self.turn = session.count(ev.TurnStart)
        self.step = session.count(ev.StepStart)
        self.done = sum(isinstance(event, ev.StepEnd) and not event.error for event in session.events)
        self.spent = spent(session.events)

    async def run_turn(self, *messages: ev.UserMessage) -> Ended:
        """Start a turn with messages, under the bundle as it is now, and run it to its end."""
        self.turn += 1
        self._shrunk = False
        self._bundle = await self._agents.fresh()
        self._effort = next((message.effort for message in messages if message.effort), None)
        head = self._bundle.head()
        is_new = (head.system, head.tools) != (self._session.surface.system, self._session.surface.tools)
        is_new = is_new or self._bundle.key() != self._agents.logged(self._session).key()
        start = ev.TurnStart(turn=self.turn, price=price_of(self._bundle.agent))
        self._session.append(start, *([head] if is_new else []), *messages)
        return await self._run(self._steps())

    async def resume(self, pause: ev.Pause, answer: Answered, gone: str = "") -> Ended:
        """Go on with a suspended turn by what a person said, under the bundle that it started with (spec A3, A4).

        `gone` is what the model must be told about its files beside the answer.
        """
        self._bundle = self._agents.logged(self._session)
        self._effort = _effort_of_turn(self._session)
        return await self._run(self._resumed(pause, answer, gone))

    def cancel(self, reason: str) -> None:
        """End the turn at once: the model call's connection is closed and the running tool is killed (spec A10)."""
        self._cancelled = self._cancelled or reason
        if self._running is not None:
            self._running.cancel()

    async def _run(self, steps: Coroutine[Any, Any, Ended]) -> Ended:
        self._running = running = asyncio.ensure_future(steps)
        if self._cancelled is not None:
            running.cancel()
        try:
            return await running
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
            ended = await _waited_for(self._close("aborted", cause=self._cancelled or "cancelled"))
            task = asyncio.current_task()
            if self._cancelled is None or task is None or task.cancelling():
                raise  # whoever cancelled the task must hear of it
            return ended
        finally:
            self._running = None

    async def _steps(self) -> Ended:
        while (ended := await self._step()) is None:
            pass
        return ended

    async def _resumed(self, pause: ev.Pause, answer: Answered, gone: str) -> Ended:
        said = ev.Resume(call_id=pause.call_id, text=answer.text, approved=answer.approved)
        calls = calls_of(self._last_answer().content)
        call = next(call for call in calls if call["id"] == pause.call_id)
        if answer.approved:
            await self._run_approved(call, said)
        else:
            is_error = pause.what == "approval"
            told = "\n\n".join(part for part in (REFUSED if is_error else "", answer.text, gone) if part)
            self._session.append(said, ev.ToolResult(call_id=pause.call_id, content=told, is_error=is_error))
        ended = await self._run_tools(calls)
        return await self._steps() if ended is None else ended

    async def _step(self) -> Ended | None:
        """Make one model call and run what it asks for; None when the turn goes on."""
        await self._gate.before_step()
        await self._hear()
        is_due = compaction.is_due(self._session.events, self._session.surface, self._bundle.agent)
        if is_due and (ended := await self._compact()) is not None:
            return ended
        try:
            answer = await self._ask_model()
        except ModelError as error:
            if error.kind != "too_large" or not self._may_shrink():
                raise
            self._session.append(ev.StepEnd(step=self.step, error=error.kind))
            return await self._shrink()
        return await self._take(answer)

    async def _hear(self) -> bool:
        """Add what the hooks have for the next model call; tell whether a person's words are among it (spec A22)."""
        since = len(self._session.events)
        for hook in self._hooks:
            self._session.append(*await hook.between(self._session))
        said = [event for event in self._session.events[since:] if isinstance(event, ev.UserMessage)]
        self._effort = next((one.effort for one in reversed(said) if one.effort), self._effort)
        return bool(said)

    async def _take(self, answer: Answer) -> Ended | None:
        """Do what a stored answer's stop reason decides; None when the turn goes on (spec A3)."""
        calls = calls_of(named(answer.content))
        if len(calls) < len(calls_of(answer.content)):
            return await self._close("error", cause="nameless_call", message="the answer has a call without a name")
        decision = after(answer.stop_reason, has_calls=bool(calls))
        if decision is not Next.SHRINK:
            self._shrunk = False
        if decision is Next.RUN_TOOLS:
            self._cut_off = 0
            return await self._run_tools(calls)
        self._end_step(calls, answer.stop_reason)
        return await self._go_on(decision, answer)

    async def _go_on(self, decision: Next, answer: Answer) -> Ended | None:
        """Do what an answer decides of which no call is run; None when the turn goes on."""
        self._cut_off = self._cut_off + 1 if answer.stop_reason == "max_tokens" else 0
        match decision:
            case Next.REJECT_CALLS | Next.CALL_AGAIN if self._cut_off < MOST_CUT_OFF:
                return None
            case Next.SHRINK if self._may_shrink():
                return await self._shrink()
            case Next.DONE if await self._hear():
                return None  # a person spoke while the last answer was written
            case Next.DONE:
                await self._tell_of_thinking()
                return await self._close("completed", text=text_of(answer.content))
            case Next.CUT_SHORT | Next.REJECT_CALLS | Next.CALL_AGAIN:
                await self._tell_of_thinking()
                return await self._close("max-tokens", error=OUTPUT_LIMIT)
            case Next.SHRINK:
                return await self._close("max-tokens", error=WINDOW_FULL)
            case Next.REFUSED:
                return await self._close("blocked", cause="refusal", details=answer.stop_details)
            case _:
                return await self._close("error", cause="stop_reason", message=f"stop reason {answer.stop_reason!r}")

    # -- the context ------------------------------------------------------------------------------------------------

    def _may_shrink(self) -> bool:
        """Tell whether a full context may be compacted: once, until a call has worked again."""
        return not self._shrunk and compaction.can_shrink(self._session.surface)

    async def _shrink(self) -> Ended | None:
        self._shrunk = True
        return await self._compact(is_too_large=True)

    async def _compact(self, *, is_too_large: bool = False) -> Ended | None:
        """Let a summary stand in for the history (spec A14); an ending when none can be had, so that nothing loops."""
        view, agent = self._session.surface, self._bundle.agent
        tokens = compaction.expected_input(self._session.events, view)
        self._show("summary")
        problem = ""
        for model in compaction.writers(agent, tokens):
            is_cut = is_too_large or not compaction.fits(tokens, agent, model)
            asked = compaction.asking(view, agent, model, is_too_large=is_cut)
            try:
                answer = await self._ask(model, asked)
            except ModelError as error:
                if error.kind not in ("invalid", "too_large"):
                    raise
                problem = str(error)
                continue
            summary = compaction.summary_of(answer, self._session.last(ev.TasksWritten))
            problem = compaction.problem_with(answer, summary, view, agent)
            self._session.append(
                ev.Compaction(
                    summary=summary,
                    steps=view.answers,
                    refused=problem,
                    model=model,
                    usage=answer.usage,
                    cost=self._pay(model, answer.usage),
                    request_id=answer.request_id,
                )
            )
            self._show("")
            if not problem:
                return None
        return await self._close("error", cause="compaction", message=f"the session could not be summarized: {problem}")

    async def _tell_of_thinking(self) -> None:
        """Log what people may know of the turn's thinking; without a model, time or luck there is nothing (spec A6)."""
        agent = self._bundle.agent
        thoughts = thinking.of_turn(self._session.events) if agent.background is not None else ""
        if agent.background is None or not thoughts:
            return
        asked, model = thinking.asking(thoughts), agent.background
        try:
            async with asyncio.timeout(thinking.SECONDS):
                answer = await self._ask(model, asked)
        except (ModelError, TimeoutError, Cancelled):
            return
        self._session.append(
            ev.ThinkingSummary(
                turn=self.turn,
                text=thinking.summary_of(answer, thoughts),
                model=model,
                usage=answer.usage,
                cost=self._pay(model, answer.usage),
                request_id=answer.request_id,
            )
        )

    async def _ask(self, model: str, asked: Request) -> Answer:
        """Return a model's answer; what its tries used in vain is booked, durably and for the gate, before the next."""
        is_booked = True

        def book(broken: Broken) -> None:
            nonlocal is_booked
            is_booked = False
            cost = self._pay(model, broken.usage)
            made = ev.CallBroken(
                model=model, usage=broken.usage, cost=cost, request_id=broken.request_id, why=broken.why
            )
            self._session.append(made)
            self._show(self._tool)

        async def ready() -> None:
            nonlocal is_booked
            if not is_booked:
                await self._session.flush()
                is_booked = True
            await self._gate.before_step()

        return await self._call(model, asked, self._parameters(model), ready, book)

    def _parameters(self, model: str) -> Parameters:
        """Return how a call is made: the agent's own exactly as ever, for its cache; the background model's lightly."""
        agent = self._bundle.agent
        if model == agent.model:
            return parameters(agent, effort=self._effort)
        lean = agent.model_copy(update={"model": model, "effort": "low", "thinking": None})
        return parameters(lean, card_of(agent, model))

    def _pay(self, model: str, usage: ev.Usage) -> Decimal | None:
        """Return what a call cost, added to what the session has spent."""
        paid = cost(price_of(self._bundle.agent, model), usage)
        self.spent = None if paid is None or self.spent is None else self.spent + paid
        return paid

    # -- the step ---------------------------------------------------------------------------------------------------

    async def _ask_model(self) -> Answer:
        self.step += 1
        self._show("thinking")
        agent = self._bundle.agent
        asked = self._parameters(agent.model)
        start = ev.StepStart(
            step=self.step,
            model=agent.model,
            max_tokens=asked.max_tokens,
            thinking=asked.thinking,
            output_config=asked.output_config,
            request=self._session.surface.digest,
        )
        await self._session.record(start)
        answer = await self._ask(agent.model, request(self._session.surface))
        self._session.append(
            ev.AssistantMessage(
                content=named(answer.content),
                stop_reason=answer.stop_reason,
                usage=answer.usage,
                cost=self._pay(agent.model, answer.usage),
                request_id=answer.request_id,
                unreadable=answer.unreadable,
            )
        )
        self._show("")  # what the answer cost counts before the next step is allowed
        return answer

    async def _run_tools(self, calls: list[ev.Block]) -> Ended | None:
        """Run the calls that have no result yet, in order; a question waits until the others have theirs.

        None when all have one: the step is over. A call that needs a person's yes suspends the turn where it stands.
        """
        unreadable = self._last_answer().unreadable
        due = set(self._session.surface.unanswered)
        question: ev.Block | None = None
        for call in (call for call in calls if call["id"] in due):
            if call["id"] in unreadable:
                self._answer(call, UNREADABLE + unreadable[call["id"]][:200])
            elif self._is_question(call) and question is None:
                question = call
            elif self._is_question(call):
                self._answer(call, "Only one question at a time: ask this one after the other is answered.")
            elif (suspended := await self._decide(call)) is not None:
                return suspended
        if question is not None:
            return await self._suspend(question, question["input"]["question"].strip())
        self._step_ended("tool_use")
        return None

    async def _decide(self, call: ev.Block) -> Ended | None:
        """Run a call, refuse it or ask a person for it, as the policy says of what would run (spec A4)."""
        tool = self._bundle.tools.get(call["name"])
        if tool is None:
            self._answer(call, self._no_such_tool(call))
            return None
        arguments = self._arguments(tool, call)
        decision = policy.decide(self._bundle.agent.policy, call["name"], arguments)
        if decision.then == "ask":
            return await self._suspend(call, policy.words_of(call["name"], arguments), "approval")
        if decision.then == "deny":
            self._answer(call, DENIED.format(rule=decision.rule))
        else:
            await self._run_tool(call, tool, arguments)
        return None

    def _arguments(self, tool: Tool, call: ev.Block) -> Mapping[str, Any]:
        """Return what a call runs with, whoever let it run: the same object where there was nothing to repair."""
        arguments: Mapping[str, Any] = call["input"]
        for hook in self._hooks:
            arguments = hook.arguments(tool, arguments)
        return arguments

    def _is_question(self, call: ev.Block) -> bool:
        question = call["input"].get("question")
        is_ask = call["name"] == "ask" and "ask" in self._bundle.tools
        return is_ask and isinstance(question, str) and bool(question.strip())

    def _no_such_tool(self, call: ev.Block) -> str:
        return f"There is no tool {call['name']!r}. There are: {', '.join(self._bundle.tools)}."

    async def _run_approved(self, call: ev.Block, after: ev.Resume) -> None:
        """Run the stored call as the policy judged it, once: the approval and the call's start are in one write."""
        tool = self._bundle.tools.get(call["name"])
        if tool is None:  # this version does not have it any more
            result = ev.ToolResult(call_id=call["id"], content=self._no_such_tool(call), is_error=True)
            self._session.append(after, result)
        else:
            await self._run_tool(call, tool, self._arguments(tool, call), after)

    async def _run_tool(
        self, call: ev.Block, tool: Tool, arguments: Mapping[str, Any], after: ev.Resume | None = None
    ) -> None:
        self._show(_label(call))
        repaired = None if arguments is call["input"] else dict(arguments)
        started = ev.ToolCall(call_id=call["id"], name=call["name"], repaired=repaired)
        self._session.append(*([started] if after is None else [after, started]))
        try:
            if after is not None or tool.mutates(arguments):
                await self._session.flush()
                await self._gate.before_effect()
            outcome = await tool.run(arguments, self._workspace)
        except ToolError as error:
            outcome = Outcome(str(error), is_error=True)
        for hook in self._hooks:
            outcome = await hook.outcome(call, outcome)
        self._session.append(*outcome.events, outcome.result(call["id"]))

    def _last_answer(self) -> ev.AssistantMessage:
        found = self._session.last(ev.AssistantMessage)
        assert isinstance(found, ev.AssistantMessage)
        return found

    def _answer(self, call: ev.Block, reason: str) -> None:
        self._session.append(ev.ToolResult(call_id=call["id"], content=reason, is_error=True))

    def _end_step(self, calls: list[ev.Block], stop_reason: str) -> None:
        """End a step none of whose calls is run, answering each of them."""
        for call in calls:
            self._answer(call, _UNTRUSTED.get(stop_reason, NOT_RUN))
        self._step_ended(stop_reason)

    def _step_ended(self, stop_reason: str) -> None:
        self._session.append(ev.StepEnd(step=self.step, stop_reason=stop_reason))
        self.done += 1

    async def _suspend(self, call: ev.Block, words: str, what: Literal["question", "approval"] = "question") -> Ended:
        pause = ev.Pause(call_id=call["id"], question=words, what=what)
        return Ended("suspended", pause=pause, pause_seq=await self._session.record(pause))

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
        self._tool = tool
        self._gate.progress(Progress(self.turn, self.step, tool, self.spent, self.done))


async def _waited_for(work: Coroutine[Any, Any, Ended]) -> Ended:
    """Return what `work` gives, and let nobody interrupt it: a log must not be closed while it is being ended."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    return task.result()


def _effort_of_turn(session: Session) -> str | None:
    """Return the effort that the turn's own messages ask for."""
    for event in reversed(session.events):
        if isinstance(event, ev.UserMessage) and event.effort:
            return event.effort
        if isinstance(event, ev.TurnStart):
            return None
    return None


def _label(call: ev.Block) -> str:
    """Return a short name of what runs, for people: the tool and the first words of its command or path."""
    subject = call["input"].get("command" if call["name"] == "bash" else "path", "")
    first = str(subject).split("\n", 1)[0][:40]
    return f"{call['name'].removeprefix('str_replace_based_')}: {first}" if first else str(call["name"])
