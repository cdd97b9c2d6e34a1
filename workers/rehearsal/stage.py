"""What to do with a request: refuse it, spoil it, or play a step. Holds all that the server remembers.

No I/O: bytes and headers in, a decision out. What is played follows from the script and the request alone;
remembered are only how often each fault was played, each session's last request (for the prefix rule and to
save work), and what its prompt cache holds.
"""

import json
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.rehearsal import rules
from workers.rehearsal.history import EMPTY, History, build
from workers.rehearsal.identity import Asker, identify
from workers.rehearsal.models import Model
from workers.rehearsal.renewal import is_renewal
from workers.rehearsal.rules import Refusal
from workers.rehearsal.script import Fault, Scene, Script, Step
from workers.rehearsal.stream import Answer, Usage, compose

__all__ = ["Performance", "Stage"]

# Sessions beyond this are forgotten, the oldest first: only their prefix rule and cache start afresh.
_SESSIONS = 512
# The real cache looks this many blocks back from a breakpoint for an entry that was written before.
_LOOK_BACK = 20


@dataclass(slots=True)
class _Session:
    """The last accepted request and its model, the lengths (blocks) of those it grew from, and the cache's entries."""

    history: History = EMPTY
    model: str = ""
    ends: tuple[int, ...] = ()
    cached: dict[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Performance:
    """A request that was accepted: what to answer and what goes wrong with it. Times are seconds."""

    asker: Asker
    request_hash: str
    answer: Answer
    step: Step
    fault: Fault | None
    stream: bool
    latency: float
    think_time: float
    pace: float


class Stage:
    """Plays a script; one per server."""

    def __init__(self, script: Script, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.script = script
        self.models = script.model_table()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._faults: dict[tuple[str, int], int] = {}
        self._calls: deque[float] = deque()
        self._clock = clock

    def count_tokens(self, raw: bytes, headers: Mapping[str, str]) -> int | Refusal:
        """Return the input tokens of a request, or why it is refused."""
        body = self._parse(raw, headers)
        if isinstance(body, Refusal):
            return body
        refusal = rules.count_request(body, self.models)
        return refusal or build(body).tokens

    def decide(self, raw: bytes, headers: Mapping[str, str]) -> tuple[Asker | None, Performance | Refusal]:
        """Return who asks, as far as it could be read, and what to do."""
        body = self._parse(raw, headers)
        if isinstance(body, Refusal):
            return None, body
        if refusal := rules.shape(body, self.models, beta="anthropic-beta" in headers):
            return None, refusal
        asker = identify(body)
        return asker, self._limit() or self._consider(body, asker)

    def limits(self) -> dict[str, int]:
        """Return the request limit, what is left of it and the seconds until it is whole, for the limit headers."""
        limit = self.script.rate_limit
        total = limit.requests if limit else 4000
        oldest = self._calls[0] + limit.per - self._clock() if limit and self._calls else 60.0
        return {"limit": total, "remaining": max(0, total - len(self._calls)), "reset": max(0, math.ceil(oldest))}

    @staticmethod
    def _parse(raw: bytes, headers: Mapping[str, str]) -> dict[str, Any] | Refusal:
        if refusal := rules.envelope(raw, headers):
            return refusal
        try:
            body = json.loads(raw)
            if b"\\ud" in raw:
                json.dumps(body, ensure_ascii=False).encode("utf-8")  # the API takes no half of a character either
        except ValueError as error:
            return Refusal(f"The request body is not valid JSON: {error}")
        return body if isinstance(body, dict) else Refusal("The request body must be a JSON object")

    def _limit(self) -> Refusal | None:
        limit = self.script.rate_limit
        if limit is None:
            return None
        now = self._clock()
        while self._calls and self._calls[0] <= now - limit.per:
            self._calls.popleft()
        if len(self._calls) >= limit.requests:
            wait = self._calls[0] + limit.per - now
            return Refusal(
                "This request would exceed the rehearsal's rate limit",
                status=429,
                type="rate_limit_error",
                headers=(("retry-after", str(max(1, round(wait)))),),
            )
        self._calls.append(now)
        return None

    def _consider(self, body: dict[str, Any], asker: Asker) -> Performance | Refusal:
        session = self._session(asker.session)
        history = build(body, session.history)
        model = self.models[body["model"]]
        paused = self._paused_before(asker.scene)
        is_aside = self.script.is_aside(asker.scene)  # a question beside the session, which goes on as if it never was
        refusal = rules.content(body, history, model, paused=paused)
        if refusal is None and not is_aside:
            refusal = self._prefix(body, session, history)
        if refusal is not None:
            return refusal
        step = self.script.step_for(asker.scene)
        if step is None:
            return Refusal(_no_such_unit(asker.scene, self.script))
        if not is_aside:
            kept = history.common(session.history)
            session.ends = (*(end for end in session.ends if end <= kept), len(history.digests))
            session.history, session.model = history, body["model"]
        return self._perform(body, asker, step, session, history, model)

    def _session(self, key: str) -> _Session:
        session = self._sessions.setdefault(key, _Session())
        self._sessions.move_to_end(key)
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def _prefix(self, body: dict[str, Any], session: _Session, history: History) -> Refusal | None:
        if not self.script.strict_prefix or rules.drops_moved_thinking(body):
            return None
        refusal = rules.prefix(history, session.history, session.ends)
        is_new_model = body["model"] != session.model
        is_fine = refusal is not None and is_renewal(history, session.history, is_new_model=is_new_model)
        return None if is_fine else refusal

    def _paused_before(self, scene: Scene) -> bool:
        """Say whether the answer before this step was a pause, after which the request ends with it."""
        if scene.step == 0:
            return False
        before = self.script.step_for(
            Scene(scene.unit, scene.attempt, scene.step - 1, scene.model, scene.system, scene.first, scene.last)
        )
        return before is not None and before.stop_reason == "pause_turn"

    def _perform(  # noqa: PLR0917  # all of one request
        self, body: dict[str, Any], asker: Asker, step: Step, session: _Session, history: History, model: Model
    ) -> Performance:
        script = self.script
        read, written = _cache(session, history, rules.breakpoints(body, history))
        key = (asker.session, asker.scene.step)
        fault = step.fault_for(self._faults.get(key, 0))
        if fault is not None:
            self._faults[key] = self._faults.get(key, 0) + 1

        def count(output: int) -> Usage:
            return _overridden(step, Usage(history.tokens - read - written, written, read, output))

        thinks, show = _thinking(body, model)
        return Performance(
            asker=asker,
            request_hash=history.digest.hex(),
            answer=compose(step, asker.scene, history.digest, count, thinks=thinks, show=show),
            step=step,
            fault=fault,
            stream=body.get("stream") is True,
            latency=script.latency if step.latency is None else step.latency,
            think_time=script.think_time if step.think_time is None else step.think_time,
            pace=script.pace if step.pace is None else step.pace,
        )


def _no_such_unit(scene: Scene, script: Script) -> str:
    known = ", ".join(sorted(script.units)) or "none"
    if not scene.unit:
        return (
            "the rehearsal cannot tell which unit asks: neither the system prompt nor the first user message has "
            f"a line `unit: <id>`, and the script has no default (units of the script: {known})"
        )
    return f"the script has no unit {scene.unit} and no default (units of the script: {known})"


def _overridden(step: Step, counted: Usage) -> Usage:
    given = step.usage.model_dump(exclude_none=True)
    return Usage(**{**counted.as_json(), **given})


def _thinking(body: dict[str, Any], model: Model) -> tuple[bool, bool]:
    """Return whether thinking blocks are answered, and whether with their text."""
    asked = body.get("thinking")
    form = asked["type"] if asked else "unasked"
    thinks = form in {"adaptive", "enabled"} or (form == "unasked" and model.thinks_unasked)
    display = (asked or {}).get("display") or model.display
    return thinks, display == "summarized"


def _cache(session: _Session, history: History, breakpoints: list[int]) -> tuple[int, int]:
    """Return (tokens read, tokens written) for breakpoints at these block indexes, and keep what was written."""
    digests = history.digests
    tokens = [count for part in history.parts for count in part.tokens]
    read = 0
    for index in breakpoints:
        back = range(index, max(-1, index - _LOOK_BACK - 1), -1)
        read = max(read, next((tokens[at] for at in back if digests[at] in session.cached), 0))
    for index in breakpoints:
        session.cached[digests[index]] = tokens[index]
    last = tokens[max(breakpoints)] if breakpoints else 0
    return read, max(0, last - read)
