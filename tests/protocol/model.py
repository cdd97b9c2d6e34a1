"""The protocol as an explicit-state model: one unit, a dispatcher, two workers, a Redis that forgets, and crashes.

A state is a tuple of tuples; `steps` gives every state that can follow, with the name of what happened. What the
journal means, what is decided, accepted and counted is asked of the real functions (`real_parts`), and the lease is
changed by copies of the real scripts (`lease_scripts`); what a worker does (`workers/attempt.py`, `host.py`), the
merge train and all faults are written down here. `docs/protocol.md` says where this is coarser than the code.

Time is not modelled but for two orderings that rule 10 promises: between two polls of a Redis that stayed up, every
worker that can beat has beaten; and when K polls have passed without a beat, the fence (S) has run out.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from lease_scripts import Record, beat, claim, publish
from real_parts import Facts, Report, Token, fold, knows, plan, refused, settled_state, watched

# Every ● rule, each way in which it can be missing. The name begins with the rule's number.
SWITCHES = (
    "4 new epoch",
    "4 journal first",
    "5 run_id",
    "5 one claim",
    "6 flock",
    "6 epochs",
    "7 adopt",
    "9 fence",
    "10 same run",
    "10 closed",
    "10 publish again",
    "10 S under KP",
    "11 watchdog",
    "14 terminal event",
    "14 outbox",
    "14 beat on",
    "15 current",
    "15 first verdict",
    "15 readable",
    "15 journal first",
    "16 commit ids",
    "18 intent",
    "18 passed last",
    "18 fsync",
)

# What a worker process is: at work; stopped by SIGSTOP; cut off from Redis; its event loop blocked; dead.
RUNS, STOPPED, CUT, HUNG, DEAD = "runs", "stopped", "cut", "hung", "dead"
# Where its unit is: none; claimed; at work under the lock; report flushed; report in the outbox, still beating.
IDLE, CLAIMED, WORKING, FLUSHED, REPORTING = range(5)
# When a beat was confirmed: too long ago; lately; lately, by a restarted Redis that nobody has looked at yet.
STALE, FRESH, UNSEEN = range(3)
# What the dispatcher is doing: nothing; an order is to be published; it is to be journalled (against rule 4).
REST, TO_PUBLISH, TO_JOURNAL = range(3)


class Worker(NamedTuple):
    is_: str = RUNS
    phase: int = IDLE
    token: Token = (0, 0)
    fence: int = STALE
    lost: bool = False
    says: str = ""


class Host(NamedTuple):
    """A host's disk. `claimed`: the newest epoch in its session logs; `ends`: the newest log's verdict."""

    claimed: Token = (0, 0)
    ends: str = ""
    outbox: frozenset[Report] = frozenset()
    orphan: bool = False


class Redis(NamedTuple):
    up: bool = True
    record: Record | None = None
    orders: frozenset[tuple[Token, bool]] = frozenset()  # and whether they were sent under this run
    mail: frozenset[Report] = frozenset()
    acks: frozenset[Report] = frozenset()
    beaten: bool = False  # since the last poll
    disturbed: bool = False  # it was down since the last poll


class Dispatcher(NamedTuple):
    up: bool = True
    knows_run: bool = True
    mark: int | None = None  # the beat at the last poll of the hand-out in flight
    recalled: bool = False
    doing: int = REST


class Git(NamedTuple):
    """`merges`: of this unit in the merged branch; `moved`: the intent's is in it; `proven`: verify saw what is."""

    merges: int = 0
    moved: bool = False
    proven: bool = True
    readable: bool = True  # the commit of the accepted pass can be read where the dispatcher is


class State(NamedTuple):
    dispatcher: Dispatcher = Dispatcher()
    facts: Facts = Facts()
    bucket: str = "open"
    redis: Redis = Redis()
    workers: tuple[Worker, ...] = (Worker(), Worker())
    hosts: tuple[Host, ...] = (Host(),)
    git: Git = Git()
    faults: int = 0


class Bounds(NamedTuple):
    """What is gone through. `hosts` 1 or 2; `embedded`: Redis and workers die with the dispatcher."""

    hosts: int = 1
    embedded: bool = False
    faults: int = 2
    attempts: int = 2
    epochs: int = 3
    off: frozenset[str] = frozenset()


class Step(NamedTuple):
    """What happened, whether it was a fault, what follows, and what is wrong with it ("" if nothing)."""

    name: str
    is_fault: bool
    state: State
    wrong: str = ""


Steps = Iterator[Step]
RUN = 1  # the number of the current start of Redis; every earlier one is 0


def start(bounds: Bounds) -> State:
    """Return the first state."""
    return State(hosts=(Host(),) * bounds.hosts)


def is_over(state: State) -> bool:
    """Tell whether the unit has ended: merged and passed, or in front of a person."""
    return state.bucket in ("passed", "blocked")


def is_cut_off(state: State, bounds: Bounds) -> bool:
    """Tell whether only the bound on epochs forbids the next hand-out."""
    wanted = (
        plan(state.facts, state.bucket, bounds.attempts)
        if state.bucket in ("open", "tried") and not state.facts.due
        else None
    )
    return wanted is not None and wanted[2] > bounds.epochs


def steps(state: State, bounds: Bounds) -> Steps:
    """Return everything that can happen next."""
    if state.dispatcher.up:
        yield from _dispatcher_steps(state, bounds)
    for index in range(len(state.workers)):
        yield from _worker_steps(state, index, bounds)
    yield from _recoveries(state, bounds)
    if state.faults < bounds.faults:
        yield from _faults(state._replace(faults=state.faults + 1), bounds)


def host_of(index: int, bounds: Bounds) -> int:
    """The host that a worker is on."""
    return index if bounds.hosts > 1 else 0


# -- what must never be ------------------------------------------------------------------------------------------------


def wrong(state: State, bounds: Bounds) -> str:
    """Return what is wrong with a state, "" if nothing."""
    if state.git.merges > 1:
        return "merged twice"
    if not state.git.proven:
        return "merged without a verify of the very tree"
    if state.bucket == "passed" and not (state.git.merges and state.facts.merged):
        return "passed, and the merged branch does not hold it"
    if state.redis.acks - state.facts.reports:
        return "acknowledged, and the journal does not hold it"
    return _wrong_writers(state, bounds)


def _wrong_writers(state: State, bounds: Bounds) -> str:
    working = [(index, worker) for index, worker in enumerate(state.workers) if worker.phase == WORKING]
    hosts = [host_of(index, bounds) for index, _ in working]
    if len(hosts) > len(set(hosts)):
        return "two writers of one session"
    acting = [(index, worker) for index, worker in working if _may_act(worker, bounds)]
    if sum(worker.fence != UNSEEN and _may_land(worker, state) for _, worker in acting) > 1:
        return "two at work at the same moment"
    for index, worker in acting:
        host = state.hosts[host_of(index, bounds)]
        if host.claimed[0] == worker.token[0] and host.ends:
            return "worked on after its report"
    return ""


def _may_land(worker: Worker, state: State) -> bool:
    """Whether a pass of this worker would still count; who works in vain is called back, and only costs money."""
    return worker.token[0] == state.facts.attempt and not state.facts.settled


def _may_act(worker: Worker, bounds: Bounds) -> bool:
    """Whether the gate lets a worker call the model, change a file or commit."""
    return worker.is_ in (RUNS, CUT) and not worker.lost and (worker.fence != STALE or "9 fence" in bounds.off)


# -- the dispatcher ----------------------------------------------------------------------------------------------------


def _dispatcher_steps(state: State, bounds: Bounds) -> Steps:
    """`Night._tick`, in any order: each row is what stands between two flushes or two calls of Redis or git."""
    if state.dispatcher.doing != REST:
        yield from _hand_out_on(state, bounds)
        return
    if state.facts.due is not None:
        facts, bucket = settled_state(state.facts, state.bucket)
        yield Step("the state file is written", False, state._replace(facts=facts, bucket=bucket))
    elif state.bucket in ("open", "tried"):
        yield from _decided(state, bounds)
    yield from _mail_steps(state, bounds)
    yield from _merge_steps(state, bounds)
    if state.redis.up and _all_have_beaten(state):
        yield from _polls(state, bounds)


def _decided(state: State, bounds: Bounds) -> Steps:
    match plan(state.facts, state.bucket, bounds.attempts):
        case "block", _, _:
            yield Step("blocked for a person", False, state._replace(bucket="blocked"))
        case "order", attempt, epoch if epoch <= bounds.epochs:
            if "4 new epoch" in bounds.off and attempt == state.facts.attempt:
                epoch = state.facts.epoch
            facts = fold(state.facts, "ordered", attempt, epoch)
            if "4 journal first" in bounds.off:
                facts = state.facts
            doing = state.dispatcher._replace(doing=TO_PUBLISH, mark=None, recalled=False)
            yield Step(f"order {attempt}.{epoch} is journalled", False, state._replace(dispatcher=doing, facts=facts))


def _hand_out_on(state: State, bounds: Bounds) -> Steps:
    """`Fleet.hand_out` behind the journal: the record, then the message; a Redis that is away ends it."""
    resting = state._replace(dispatcher=state.dispatcher._replace(doing=REST))
    if state.dispatcher.doing == TO_JOURNAL:
        found = plan(state.facts, state.bucket, bounds.attempts)
        assert found is not None
        yield Step(
            "the order is journalled at last", False, resting._replace(facts=fold(state.facts, "ordered", *found[1:]))
        )
        return
    if not state.redis.up:
        yield Step("the order gets nowhere", False, resting)
        return
    token = state.facts.token
    if "4 journal first" in bounds.off:
        found = plan(state.facts, state.bucket, bounds.attempts)
        assert found is not None
        token, resting = found[1:], state._replace(dispatcher=state.dispatcher._replace(doing=TO_JOURNAL))
    redis = state.redis._replace(record=publish(token, is_open=True, run=RUN), beaten=False)
    sent = redis._replace(orders=redis.orders | {(token, True)})
    yield Step(f"order {token} is published and sent", False, resting._replace(redis=sent))
    if state.faults < bounds.faults:
        half = resting._replace(redis=redis, faults=state.faults + 1)
        yield Step(f"order {token} is published, and the dispatcher killed", True, _crashed(half, bounds))
        yield Step(f"order {token} is published, and Redis killed", True, _without_redis(half))


def _mail_steps(state: State, bounds: Bounds) -> Steps:
    """`Inbox.collect`: journal, then acknowledge."""
    may_fail = state.faults < bounds.faults
    for report in state.redis.mail if state.redis.up else ():
        failing = state._replace(faults=state.faults + 1)
        if knows(state.facts, report):
            yield Step(f"{report} is acknowledged again", False, _acknowledged(state, report))
        else:
            step = _take(state, report, bounds, readable=True)
            yield step._replace(state=_acknowledged(step.state, report))
            if may_fail:
                taken = _take(failing, report, bounds, readable=True)
                if "15 journal first" in bounds.off:
                    taken = Step(f"{report} is acknowledged", True, _acknowledged(failing, report))
                name = f"{taken.name}, and the dispatcher killed"
                yield taken._replace(name=name, is_fault=True, state=_crashed(taken.state, bounds))
            if may_fail and report[2] == "pass" and bounds.hosts > 1:
                taken = _take(failing, report, bounds, readable=False)
                yield taken._replace(is_fault=True, state=_acknowledged(taken.state, report))


def _acknowledged(state: State, report: Report) -> State:
    redis = state.redis
    return state._replace(redis=redis._replace(mail=redis.mail - {report}, acks=redis.acks | {report}))


def _take(state: State, report: Report, bounds: Bounds, *, readable: bool) -> Step:
    """`Inbox.take`: accepted or refused by the real function, and journalled."""
    facts = state.facts
    accepted = not refused(facts, report, readable)
    if "15 current" in bounds.off and report[0] == facts.attempt and not facts.settled:
        accepted = accepted or report[2] != "busy"
    if "15 first verdict" in bounds.off and report[0] == facts.attempt:
        accepted = accepted or report[2] == "pass"
    if "15 readable" in bounds.off:
        accepted = not refused(facts, report, True)
    git = state.git._replace(readable=readable) if accepted and report[2] == "pass" else state.git
    after = state._replace(facts=fold(facts, "reported", report, accepted), git=git)
    bad = _disowned(state, report) if accepted and report[2] != "pass" else ""
    return Step(f"{report} is journalled, {'accepted' if accepted else 'refused'}", False, after, bad)


def _disowned(state: State, report: Report) -> str:
    """A verdict of somebody who was given up, or a hand-back, must not end the work of whoever holds the unit now."""
    for worker in state.workers:
        is_holder = worker.token == state.facts.token and worker.phase in (CLAIMED, WORKING)
        if is_holder and worker.is_ == RUNS and not worker.lost:
            return f"{report} ended the work of its current holder"
    return ""


def _merge_steps(state: State, bounds: Bounds) -> Steps:
    """`Train`: intent, ref, done; what `recover` does after a crash is the same, from the same facts."""
    facts, git = state.facts, state.git
    if facts.waiting is not None and not facts.intent and git.readable:
        yield Step("the merge fails", False, state._replace(facts=fold(facts, "not merged", facts.attempt)))
        git = git._replace(proven=_is_proven(state, bounds))
        if "18 intent" in bounds.off:
            moved = git._replace(merges=git.merges + 1, moved=True)
            yield Step("merged without an intent", False, state._replace(git=moved))
        else:
            bucket = "passed" if "18 passed last" in bounds.off else state.bucket
            after = state._replace(facts=fold(facts, "intent", facts.attempt), git=git, bucket=bucket)
            yield Step("the merge intent is journalled", False, after)
    if facts.intent and not git.moved:
        moved = git._replace(merges=git.merges + 1, moved=True)
        yield Step("the merged branch moves", False, state._replace(git=moved))
    if git.moved:
        done = state._replace(facts=fold(facts, "merged", facts.attempt), git=git._replace(moved=False))
        yield Step("the merge is journalled as done", False, done)


def _is_proven(state: State, bounds: Bounds) -> bool:
    """A commit id is what verify saw. A branch that all epochs share is what anybody has made of it since (rule 16)."""
    others = [worker for worker in state.workers if worker.phase == WORKING and worker.token[0] == state.facts.attempt]
    return not ("16 commit ids" in bounds.off and others)


def _all_have_beaten(state: State) -> bool:
    """P is longer than the time between beats, so that a poll finds a beat of everybody who can (see the module)."""
    redis = state.redis
    if redis.disturbed or redis.beaten or redis.record is None or redis.record.token != state.facts.token:
        return True
    return not any(_can_beat(worker) and worker.token == state.facts.token for worker in state.workers)


def _can_beat(worker: Worker) -> bool:
    return worker.is_ in (RUNS, HUNG) and worker.phase != IDLE and not worker.lost


def _polls(state: State, bounds: Bounds) -> Steps:
    """It is a fault when an order that somebody could take is recalled: all are slower than the patience."""
    step = _poll(state, bounds)
    if step.name != "the order is recalled" or not any(True for at in (0, 1) for _ in _claims(state, at, bounds)):
        yield step
    elif state.faults < bounds.faults:
        yield step._replace(is_fault=True, state=step.state._replace(faults=state.faults + 1))


def _poll(state: State, bounds: Bounds) -> Step:
    """`Fleet.poll`."""
    was, facts, record = state.dispatcher, state.facts, state.redis.record
    redis = state.redis._replace(beaten=False, disturbed=False)
    is_new = not was.knows_run
    dispatcher = was._replace(knows_run=True)
    if not facts.in_flight or (is_new and "10 same run" not in bounds.off):
        dispatcher = dispatcher._replace(mark=None)
    if facts.in_flight and (is_new or record is None) and "10 publish again" not in bounds.off:
        redis = redis._replace(record=publish(facts.token, is_open="10 closed" in bounds.off, run=RUN))
    after = state._replace(dispatcher=dispatcher, redis=redis)
    if not facts.in_flight or (is_new and "10 same run" not in bounds.off):
        return Step("a poll", False, after)
    return _count(after, record, bounds, beaten=state.redis.beaten)


def _count(state: State, record: Record | None, bounds: Bounds, *, beaten: bool) -> Step:
    facts, dispatcher, redis = state.facts, state.dispatcher, state.redis
    is_here = record is not None and record.token == facts.token
    beat_now = 0 if record is None else record.beat + (beaten and record.beat)
    word, mark = watched(dispatcher.mark, beat_now, here=is_here, recalled=dispatcher.recalled)
    mark = None if mark is None else min(mark, 1)
    if word == "recall":
        redis = redis._replace(record=publish(facts.token, is_open=False, run=RUN), beaten=False)
        dispatcher = dispatcher._replace(mark=None, recalled=True)
        return Step("the order is recalled", False, state._replace(dispatcher=dispatcher, redis=redis))
    state = state._replace(dispatcher=dispatcher._replace(mark=mark))
    if not word:
        return Step("a poll", False, state)
    bad = ""
    if any(worker.token == facts.token and _can_beat(worker) for worker in state.workers):
        bad = "given up, although its worker lives and beats"
    if word == "claimed" and not state.faults:
        bad = "given up, and nothing has failed"
    ended = redis._replace(record=publish((*facts.token, 0), is_open=False, run=RUN))
    lost = state._replace(facts=fold(facts, "lost", *facts.token, word == "claimed"), redis=ended)
    return Step(f"{facts.token} is lost ({word})", False, _fence_is_over(lost, facts.token, bounds), bad)


def _fence_is_over(state: State, token: Token, bounds: Bounds) -> State:
    """S is well under K·P: whoever has not beaten for so long has not been confirmed for longer than S."""
    if "10 S under KP" in bounds.off:
        return state
    workers = (w._replace(fence=STALE) if w.token == token else w for w in state.workers)
    return state._replace(workers=tuple(workers))


# -- a worker ----------------------------------------------------------------------------------------------------------


def _worker_steps(state: State, index: int, bounds: Bounds) -> Steps:
    worker = state.workers[index]
    reaches = worker.is_ in (RUNS, HUNG) and state.redis.up
    if reaches:
        if worker.phase != IDLE and not worker.lost:
            yield from _beat(state, index)
        yield from _courier(state, index, bounds)
    if worker.is_ not in (RUNS, CUT):
        return
    match worker.phase:
        case 0:
            yield from _claims(state, index, bounds)
        case 1 | 2 if worker.lost:
            yield _set(state, index, Worker(worker.is_), f"worker {index} gives up")
        case 1:
            yield _enter(state, index, bounds)
        case 2 if _may_act(worker, bounds):
            for verdict in ("pass", "fail"):
                yield _finish(state, index, verdict, bounds)
        case 3:
            yield _deliver(state, index, bounds)
        case _:
            pass


def _set(state: State, index: int, worker: Worker, name: str, bad: str = "") -> Step:
    workers = tuple(worker if number == index else other for number, other in enumerate(state.workers))
    return Step(name, False, state._replace(workers=workers), bad)


def _set_host(state: State, index: int, bounds: Bounds, host: Host) -> State:
    number = host_of(index, bounds)
    return state._replace(hosts=tuple(host if at == number else other for at, other in enumerate(state.hosts)))


def _claims(state: State, index: int, bounds: Bounds) -> Steps:
    """An order may be delivered to anybody, any number of times."""
    if not state.redis.up or state.workers[index][:2] != (RUNS, IDLE):
        return
    for token, is_new in state.redis.orders:
        record = claim(state.redis.record, token, index, said=RUN if is_new else 0, run=RUN, off=bounds.off)
        if record is not None:
            redis = state.redis._replace(record=record, beaten=True)
            worker = Worker(RUNS, CLAIMED, token, FRESH)
            yield _set(state._replace(redis=redis), index, worker, f"worker {index} claims {token}")


def _beat(state: State, index: int) -> Steps:
    """`HeldLease.beat`. The holder's counter is 1 throughout; a record that was rolled back has 0."""
    worker, redis = state.workers[index], state.redis
    heard, record = beat(redis.record, worker.token, index, 1, run=RUN)
    if heard == "lost":
        yield _set(state, index, worker._replace(lost=True), f"worker {index} hears that its lease is lost")
    elif heard == "ok":
        assert record is not None
        redis = redis._replace(record=record._replace(beat=1), beaten=redis.beaten or worker.token == state.facts.token)
        fence = FRESH if record.run == RUN else UNSEEN
        yield _set(state._replace(redis=redis), index, worker._replace(fence=fence), f"worker {index} beats")


def _enter(state: State, index: int, bounds: Bounds) -> Step:
    """`attempt`: the unit's lock, the epoch in the log, then from wherever the session stands."""
    worker, host = state.workers[index], state.hosts[host_of(index, bounds)]
    others = (w for at, w in enumerate(state.workers) if at != index and host_of(at, bounds) == host_of(index, bounds))
    if any(other.phase == WORKING for other in others) and "6 flock" not in bounds.off:
        return _deliver(_set(state, index, worker._replace(says="busy"), "").state, index, bounds)
    bad = ""
    if worker.token <= host.claimed:
        if "6 epochs" not in bounds.off:
            return _set(state, index, Worker(worker.is_), f"worker {index}: {worker.token} is refused")
        bad = "an older epoch wrote after a newer one"
    ends = host.ends if host.claimed[0] == worker.token[0] else ""
    if host.orphan and "7 adopt" in bounds.off:
        bad = "two writers of one worktree"
    state = _set_host(state, index, bounds, host._replace(claimed=worker.token, ends=ends, orphan=False))
    if ends and "14 terminal event" not in bounds.off:
        return _set(
            state, index, worker._replace(phase=FLUSHED, says=ends), f"worker {index} reports {ends} again", bad
        )
    return _set(state, index, worker._replace(phase=WORKING), f"worker {index} works on {worker.token}", bad)


def _finish(state: State, index: int, verdict: str, bounds: Bounds) -> Step:
    """Checkpoint, verify, and the report as the session's flushed last event."""
    worker, host = state.workers[index], state.hosts[host_of(index, bounds)]
    after = _set_host(state, index, bounds, host._replace(ends=verdict))
    return _set(after, index, worker._replace(phase=FLUSHED, says=verdict), f"worker {index}: {verdict} is flushed")


def _deliver(state: State, index: int, bounds: Bounds) -> Step:
    """`Host._deliver`: the outbox; the lease is kept beating until the report is acknowledged."""
    worker, host = state.workers[index], state.hosts[host_of(index, bounds)]
    report = (*worker.token, worker.says)
    after = _set_host(state, index, bounds, host._replace(outbox=host.outbox | {report}))
    kept = Worker(worker.is_) if "14 beat on" in bounds.off else worker._replace(phase=REPORTING)
    return _set(after, index, kept, f"worker {index}: {report} is in the outbox")


def _courier(state: State, index: int, bounds: Bounds) -> Steps:
    """`Courier`: sends what is in the host's outbox until it is acknowledged; then it is deleted."""
    worker, host = state.workers[index], state.hosts[host_of(index, bounds)]
    for report in host.outbox:
        if report in state.redis.acks:
            after = _set_host(state, index, bounds, host._replace(outbox=host.outbox - {report}))
            is_mine = worker.phase == REPORTING and report == (*worker.token, worker.says)
            yield _set(after, index, Worker(worker.is_) if is_mine else worker, f"{report} is delivered")
        elif report not in state.redis.mail:
            outbox = host.outbox - {report} if "14 outbox" in bounds.off else host.outbox
            redis = state.redis._replace(mail=state.redis.mail | {report})
            after = _set_host(state._replace(redis=redis), index, bounds, host._replace(outbox=outbox))
            yield Step(f"{report} is sent", False, after)


# -- faults, and their end -----------------------------------------------------------------------------------------


def _recoveries(state: State, bounds: Bounds) -> Steps:
    """What happens by itself when nothing breaks any more."""
    if not state.dispatcher.up:
        yield Step("a new dispatcher starts", False, _restarted(state, bounds))
    if not state.redis.up and not (bounds.embedded and not state.dispatcher.up):
        yield from (Step(f"Redis is back, {how}", False, state._replace(redis=redis)) for how, redis in _back(state))
    for index, worker in enumerate(state.workers):
        if worker.is_ in (STOPPED, CUT):
            yield _set(state, index, worker._replace(is_=RUNS), f"worker {index} goes on")
        elif worker.is_ == DEAD and not (bounds.embedded and not state.dispatcher.up):
            yield _set(state, index, Worker(), f"worker {index} is started again")
        elif worker.is_ == HUNG and "11 watchdog" not in bounds.off:
            yield _killed(state, index, bounds, f"worker {index} is ended by its watchdog")


def _restarted(state: State, bounds: Bounds) -> State:
    """`Night.begin` and what comes before the first tick: the outbox of this host is read first."""
    facts = fold(state.facts, "run", bounds.embedded)
    for report in sorted(state.hosts[0].outbox):
        if not knows(facts, report):
            facts = _take(state._replace(facts=facts), report, bounds, readable=True).state.facts
    return state._replace(dispatcher=Dispatcher(knows_run=False), facts=facts)


def _back(state: State) -> Iterator[tuple[str, Redis]]:
    """A restarted Redis has everything, nothing, or what it had some time ago; it always is another run."""
    redis = state.redis._replace(up=True)
    yield "with its data", redis
    yield "empty", Redis(disturbed=True)
    if redis.record is not None:
        old = publish(redis.record.token, is_open=True, run=0)
        yield "before the claim", redis._replace(record=old, mail=frozenset(), acks=frozenset())
        if redis.record.holder is not None:
            yield "before the last beats", redis._replace(record=redis.record._replace(beat=0))
    for index, worker in enumerate(state.workers):
        if worker.phase != IDLE and (redis.record is None or worker.token != redis.record.token):
            old = Record(worker.token, False, index, 0, 1)
            yield f"when worker {index} held it", redis._replace(record=old, mail=frozenset(), acks=frozenset())
    if redis.acks:
        yield "before the acknowledgements", redis._replace(mail=redis.mail | redis.acks, acks=frozenset())


def _killed(state: State, index: int, bounds: Bounds, name: str) -> Step:
    """SIGKILL: the lock goes, what a tool started may live on."""
    worker, host = state.workers[index], state.hosts[host_of(index, bounds)]
    after = _set_host(state, index, bounds, host._replace(orphan=host.orphan or worker.phase == WORKING))
    return _set(after, index, Worker(DEAD), name)


def _faults(state: State, bounds: Bounds) -> Steps:
    if state.dispatcher.up:
        yield Step("the dispatcher is killed", True, _crashed(state, bounds))
        if "18 fsync" in bounds.off and state.git.merges:
            lost = state._replace(git=state.git._replace(merges=0, moved=False))
            yield Step("a power cut takes back what was not flushed", True, _crashed(lost, bounds))
    if state.redis.up:
        yield Step("Redis is killed", True, _without_redis(state))
    for index, worker in enumerate(state.workers):
        if worker.is_ != RUNS:
            continue
        yield _killed(state, index, bounds, f"worker {index} is killed")._replace(is_fault=True)
        if worker.phase == IDLE:
            yield from _half_claims(state, index, bounds)
            continue
        for kind in (STOPPED, HUNG, CUT):
            yield _set(state, index, worker._replace(is_=kind), f"worker {index} is {kind}")._replace(is_fault=True)


def _half_claims(state: State, index: int, bounds: Bounds) -> Steps:
    """A claim that Redis made and could not tell of."""
    for step in _claims(state, index, bounds):
        yield _set(step.state, index, state.workers[index], f"{step.name}, unheard")._replace(is_fault=True)


def _crashed(state: State, bounds: Bounds) -> State:
    after = state._replace(dispatcher=Dispatcher(up=False))
    if bounds.embedded:  # the kernel kills its children (rule 2)
        for index in range(len(state.workers)):
            after = _killed(after, index, bounds, "").state
        after = _without_redis(after)
    return after


def _without_redis(state: State) -> State:
    """Down; whatever was true of its run is true no more."""
    redis = state.redis
    record = None if redis.record is None else redis.record._replace(run=0)
    orders = frozenset((token, False) for token, _ in redis.orders)
    return state._replace(
        redis=redis._replace(up=False, record=record, orders=orders, disturbed=True),
        dispatcher=state.dispatcher._replace(knows_run=False),
    )


def _is_inert(order: tuple[Token, bool], redis: Redis, bounds: Bounds) -> bool:
    """An order of an earlier start of Redis, or of an epoch that the record has left behind, claims nothing."""
    token, is_new = order
    left_behind = redis.record is not None and token < redis.record.token
    return left_behind or not (is_new or "5 run_id" in bounds.off)


def _is_about(report: Report, kept: frozenset[Report], state: State) -> bool:
    """Tell whether a report may be sent again, or somebody works under its name."""
    if report in kept or report in state.redis.mail:
        return True
    return any(worker.phase != IDLE and worker.token == report[:2] for worker in state.workers)


_UNION = frozenset[Report]().union
Canonical = Callable[[State], State]


def canonical(bounds: Bounds) -> Canonical:
    """Return what maps states that differ in nothing that matters to one of them."""

    def forget(state: State) -> State:
        """Drop copies, counters and orders that nobody can act on any more."""
        facts, redis = state.facts, state.redis
        kept = _UNION(*[host.outbox for host in state.hosts])
        if facts.reports and (old := {r for r in facts.reports if not _is_about(r, kept, state)}):
            facts = facts._replace(reports=facts.reports - old)
        if facts.epoch and facts.settled and not facts.in_flight:  # the next order is another attempt's first
            facts = facts._replace(epoch=0, closed=0)
        if not redis.acks <= kept:
            redis = redis._replace(acks=redis.acks & kept)
        if redis.orders and (inert := {order for order in redis.orders if _is_inert(order, redis, bounds)}):
            redis = redis._replace(orders=redis.orders - inert)
        faults = state.faults
        if is_over(state) and not bounds.off:  # nothing breaks any more when the unit has ended
            faults = bounds.faults
        if facts is state.facts and redis is state.redis and faults == state.faults:
            return state
        return state._replace(facts=facts, redis=redis, faults=faults)

    def sort(state: State) -> State:
        """On one host, which of two workers it is does not matter."""
        first, second = state.workers
        if first <= second:
            return state
        record = state.redis.record
        if record is not None and record.holder is not None:
            state = state._replace(redis=state.redis._replace(record=record._replace(holder=1 - record.holder)))
        return state._replace(workers=(second, first))

    return forget if bounds.hosts > 1 else lambda state: sort(forget(state))
