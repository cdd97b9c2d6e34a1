"""Python imports this at its start, in every process of a night whose PYTHONPATH names this folder.

It ends the process by SIGKILL right before, after, or in the middle of a named call, and lets the process's wall clock
jump. The product knows nothing of it: functions are wrapped while their module is imported, before anybody can take a
name out of it.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib.abc
import importlib.util
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

KILL_AT = json.loads(os.environ.get("KILL_AT", "[]"))
"""Rules: `place` and `side` name the call, `nth` counts its matches in one process, `marker` makes it happen once."""

CLOCK = os.environ.get("CLOCK_OFFSET", "")
"""A file with the seconds that the wall clock is off."""

_KIND = re.compile(rb'^\{"seq":\d+,"time":"[^"]*","type":"([^"]+)"', re.MULTILINE)


def _kinds(log: str, data: Any) -> list[str]:
    """Name the records that are being written: `journal order`, `session claim`, …"""
    return [f"{log.partition('.')[0]} {kind.decode()}" for kind in _KIND.findall(bytes(data))]


def _of_descriptor(descriptor: int, data: Any) -> list[str]:
    return _kinds(Path(f"/proc/self/fd/{descriptor}").readlink().name, data)


def _of_ref(ref: str) -> list[str]:
    if ref.endswith("/merged"):
        return ["ref merged"]
    return ["ref branch" if ref.startswith("refs/heads/") else "ref checkpoint"]


# module, attribute, what its call is: from the arguments to the names of places
PLACES: tuple[tuple[str, str, Callable[..., list[str]]], ...] = (
    ("workers.log", "Log._write", lambda log, data: _kinds(log.path.name, data)),
    ("workers.log", "_write_all", _of_descriptor),
    ("workers.lease", "LeaseTable.publish", lambda _table, _unit, _token, state: [f"publish {state}"]),
    ("workers.lease", "LeaseTable.claim", lambda *_: ["claim"]),
    ("workers.app", "send", lambda *_: ["send"]),
    ("workers.outbox", "Outbox.put", lambda *_: ["outbox put"]),
    ("workers.outbox", "Outbox.remove", lambda *_: ["outbox remove"]),
    ("workers.outbox", "Mailbox.send", lambda *_: ["mailbox send"]),
    ("workers.outbox", "Mailbox.acknowledge", lambda *_: ["acknowledge"]),
    ("worktrees.checkpoint", "checkpoint", lambda *_, **__: ["checkpoint"]),
    ("worktrees.repository", "Repository.update_ref", lambda _repository, ref, *_, **__: _of_ref(ref)),
    ("worktrees.worktree", "Worktrees.create", lambda *_, **__: ["worktree create"]),
    ("worktrees.worktree", "Worktrees.remove", lambda *_, **__: ["worktree remove"]),
    ("worktrees.files", "exchange_atomic", lambda *_, **__: ["state file"]),
    ("worktrees.files", "_swap", lambda *_, **__: ["state swap"]),
)

_seen: Counter[tuple[str, str]] = Counter()


def _is_due(names: list[str], side: str) -> bool:
    """Tell whether a rule wants this process dead here, and take note that it has had its way."""
    for name in names:
        _seen[name, side] += 1
    for rule in KILL_AT:
        if rule["place"] in names and rule["side"] == side and _seen[rule["place"], side] >= rule["nth"]:
            with suppress(FileExistsError):
                os.close(os.open(rule["marker"], os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                return True
    return False


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # never returns: the signal is for all threads


def _wrapped(function: Callable[..., Any], describe: Callable[..., list[str]]) -> Callable[..., Any]:
    is_half = function.__name__ == "_write_all"

    @functools.wraps(function)
    def call(*args: Any, **more: Any) -> Any:
        names = describe(*args, **more)
        if is_half:
            if _is_due(names, "half"):
                os.write(args[0], args[1][: len(args[1]) // 2])
                _die()
            return function(*args, **more)
        if _is_due(names, "before"):
            _die()
        result = function(*args, **more)
        if _is_due(names, "after"):
            _die()
        return result

    return call


def _patch(module: ModuleType) -> None:
    for name, attribute, describe in PLACES:
        if name == module.__name__:
            owner_name, _, function_name = attribute.rpartition(".")
            owner = getattr(module, owner_name) if owner_name else module
            setattr(owner, function_name, _wrapped(getattr(owner, function_name), describe))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the places as everybody else does, and patches them once they have run."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not any(name == module for module, _, _ in PLACES):
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def run_and_patch(module: ModuleType) -> None:
            run(module)
            _patch(module)

        spec.loader.exec_module = run_and_patch  # type: ignore[method-assign]
        return spec


# -- the wall clock -----------------------------------------------------------------------------------------------

_real_time, _real_time_ns, _real_datetime = time.time, time.time_ns, dt.datetime


def _offset() -> float:
    with suppress(OSError, ValueError), open(CLOCK) as file:  # noqa: PTH123 - called for every look at a clock
        return float(file.read())
    return 0.0


class _Datetime(_real_datetime):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        return _real_datetime.fromtimestamp(time.time(), tz)


def _let_jump() -> None:
    time.time = lambda: _real_time() + _offset()
    time.time_ns = lambda: _real_time_ns() + int(_offset() * 1e9)
    dt.datetime = _Datetime  # type: ignore[misc]


if KILL_AT:
    sys.meta_path.insert(0, _Finder())
if CLOCK:
    _let_jump()
