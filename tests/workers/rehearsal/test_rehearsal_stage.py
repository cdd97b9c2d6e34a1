"""The stage without HTTP: it survives any body, counts usage, forgets nothing that it must remember."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rehearsal_stand import BASH, assistant, call, result, script, text, user

from workers.rehearsal.history import build
from workers.rehearsal.refusal import Refusal
from workers.rehearsal.stage import Performance, Stage

HEADERS = {"anthropic-version": "2026-10-21"}
CACHE = {"cache_control": {"type": "ephemeral"}}
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def whole(**changes: Any) -> dict[str, Any]:
    return {
        "model": "claude-sonnet-5-5",
        "max_tokens": 2000,
        "system": [text("unit: a", **CACHE)],
        "tools": [{**BASH, **CACHE}],
        "thinking": {"type": "adaptive", "display": "omitted"},
        "output_config": {"effort": "low"},
        "cache_control": {"type": "ephemeral", "ttl": "5m"},
        "messages": [
            user("go"),
            assistant(text("so"), call()),
            user([result(content=[text("x", **CACHE)]), text("y")]),
        ],
        **changes,
    }


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, itself excluded."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in items for path in [(*at, key), *paths(item, (*at, key))]]


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


def ask(stage: Stage, body: Any) -> Performance | Refusal:
    return stage.decide(json.dumps(body).encode(), HEADERS)[1]


@settings(deadline=None, max_examples=60)
@given(path=st.sampled_from(paths(whole())), value=JSON)
def test_any_value_anywhere_is_answered_or_refused(path: tuple[Any, ...], value: Any) -> None:
    """Whatever a client puts wherever, the stage plays or refuses; nothing ends in an exception."""
    stage = Stage(script({"blocks": [{"text": "hi"}], "repeat": 3}))
    decision = ask(stage, replaced(whole(), path, value))
    assert isinstance(decision, Performance | Refusal)
    counted = stage.count_tokens(json.dumps(replaced(whole(), path, value)).encode(), HEADERS)
    assert isinstance(counted, int | Refusal)


@settings(deadline=None, max_examples=60)
@given(body=JSON)
def test_any_body_is_refused(body: Any) -> None:
    """A body that is no request at all is refused."""
    assert isinstance(ask(Stage(script()), body), Refusal)


# --- usage


def usage(decision: Performance | Refusal) -> dict[str, int]:
    assert isinstance(decision, Performance), decision
    return decision.answer.usage.as_json()


def test_input_is_counted_at_about_four_characters_a_token() -> None:
    """A hundred words more cost about as many tokens as a quarter of their characters."""
    stage = Stage(script({"blocks": [{"text": "hi"}]}))
    small, large = (
        usage(ask(stage, whole(messages=[user(words)], cache_control=None)))["input_tokens"]
        for words in ("go", "go" + " word" * 400)
    )
    assert 480 <= large - small <= 520


def test_cache_is_written_once_and_read_after() -> None:
    """What stands before a breakpoint is written by the first call and read by the next; the sum is the whole input."""
    stage = Stage(script({"blocks": [{"text": "hi"}], "repeat": 9}))
    first_messages = [user([text("go " * 200, **CACHE)])]
    later_messages = [user("go " * 200), assistant(text("hi")), user([text("on " * 100, **CACHE)])]
    plain: dict[str, Any] = {"cache_control": None, "tools": [BASH], "system": "unit: a"}
    first = usage(ask(stage, whole(messages=first_messages, **plain)))
    later = usage(ask(stage, whole(messages=later_messages, **plain)))
    assert first["cache_read_input_tokens"] == 0
    assert first["input_tokens"] == 0
    assert later["cache_read_input_tokens"] == first["cache_creation_input_tokens"] > 100
    total = build({"tools": [BASH], "system": "unit: a", "messages": later_messages}).tokens
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert sum(later[part] for part in parts) == total


def test_cache_is_missed_beyond_twenty_blocks() -> None:
    """An entry is found up to twenty blocks before a breakpoint, and no further."""
    read = {}
    for between in (18, 19):
        stage = Stage(script({"blocks": [{"text": "hi"}], "repeat": 9}))
        plain: dict[str, Any] = {"cache_control": None, "tools": None, "system": "unit: a"}
        ask(stage, whole(messages=[user([text("go", **CACHE)])], **plain))
        blocks = [text("x") for _ in range(between)] + [text("last", **CACHE)]
        later = whole(messages=[user("go"), assistant(text("hi")), user(blocks)], **plain)
        read[between] = usage(ask(stage, later))["cache_read_input_tokens"]
    assert read[18] > 0
    assert read[19] == 0


def test_usage_may_be_overridden_field_by_field() -> None:
    """A step's usage replaces the counts that it names and leaves the others."""
    step = {"blocks": [{"text": "hi"}], "usage": {"input_tokens": 850_000, "cache_read_input_tokens": 7}, "repeat": 2}
    counted = usage(ask(Stage(script(step)), whole()))
    assert (counted["input_tokens"], counted["cache_read_input_tokens"]) == (850_000, 7)
    assert counted["output_tokens"] > 0


def test_memory_of_sessions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the oldest session is forgotten: its next request is as good as its first."""
    monkeypatch.setattr("workers.rehearsal.stage._SESSIONS", 2)
    stage = Stage(script({"blocks": [{"text": "hi"}], "repeat": 9}))

    def body(session: int, words: str) -> dict[str, Any]:
        return whole(system=f"unit: a\nsession: {session}", messages=[user(words)])

    ask(stage, body(1, "go"))
    assert isinstance(ask(stage, body(1, "went")), Refusal)
    for session in (2, 3):
        ask(stage, body(session, "go"))
    assert isinstance(ask(stage, body(1, "went")), Performance)
