"""The chain of a request: the same whatever carries a breakpoint, and never the same after an edit."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rehearsal_stand import assistant, call, result, text, user

from workers.rehearsal import seal
from workers.rehearsal.history import build

CACHE = {"cache_control": {"type": "ephemeral"}}
WORDS = st.text(min_size=1, max_size=4)
TURN = st.tuples(WORDS, WORDS).map(lambda pair: [assistant(text(pair[0])), user(pair[1])])
TALK = st.tuples(WORDS, st.lists(TURN, max_size=5)).map(
    lambda parts: [user(parts[0]), *(message for turn in parts[1] for message in turn)]
)


def chain(messages: list[Any], remembered: Any = None) -> Any:
    body = {"system": "s", "tools": [{"name": "x"}], "messages": messages}
    return build(body, remembered) if remembered else build(body)


@settings(deadline=None, max_examples=60)
@given(talk=TALK, more=TURN)
def test_longer_request_extends_the_shorter(talk: list[Any], more: list[Any]) -> None:
    """Appending changes no digest, and building on the remembered chain gives what building anew gives."""
    short = chain(talk)
    long = chain([*talk, *more], short)
    assert long.digests[: len(short.digests)] == short.digests
    assert long.digests == chain([*talk, *more]).digests
    assert long.shared == len(short.parts)
    assert [part.tokens for part in long.parts] == [part.tokens for part in chain([*talk, *more]).parts]


@settings(deadline=None, max_examples=60)
@given(talk=TALK, at=st.integers(min_value=0), words=WORDS)
def test_edit_changes_every_digest_from_there_on(talk: list[Any], at: int, words: str) -> None:
    """An edited message shares what stands before it, and nothing after it, with or without a remembered chain."""
    at %= len(talk)
    edited = [*talk[:at], {**talk[at], "content": f"{words} edited"}, *talk[at + 1 :]]
    before, after = chain(talk), chain(edited, chain(talk))
    assert after.common(before) == 2 + at
    assert not set(after.digests[2 + at :]) & set(before.digests)


def test_breakpoints_are_not_part_of_the_chain() -> None:
    """`cache_control` on a block, and inside a tool result, changes nothing; neither does the order of keys."""
    plain = chain([user([text("go")]), assistant(call()), user([result(content=[text("x")])])])
    marked = [user([text("go", **CACHE)]), assistant(call(**CACHE)), user([result(content=[text("x", **CACHE)])])]
    assert chain(marked).digests == plain.digests
    turned = [user([dict(reversed(text("go").items()))]), *marked[1:]]
    assert chain(turned).digests == plain.digests


def test_roles_are_part_of_the_chain() -> None:
    """The same words said by the other side are another chain; split over two messages they are the same."""
    assert chain([user("a"), user("b")]).digest != chain([user("a"), assistant(text("b"))]).digest
    assert chain([user("a"), user("b")]).digest == chain([user([text("a"), text("b")])]).digest


@settings(deadline=None, max_examples=60)
@given(words=st.text(), before=st.binary(max_size=16))
def test_seal_holds_for_its_text_and_place_alone(words: str, before: bytes) -> None:
    """A signature is good where it was given, moved elsewhere, and forged for other words."""
    signature = seal.sign(words, before)
    assert seal.check(words, signature, before) == "good"
    assert seal.check(words, signature, before + b"x") == "moved"
    assert seal.check(words + "x", signature, before) == "forged"
    assert seal.check(words, signature[:-4], before) != "good"
