"""Rules about images: what a source may be, how large an image, and how many a request may hold."""

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any

from workers.errors import ImageRefused
from workers.images import measured
from workers.rehearsal.history import History, blocks_of
from workers.rehearsal.models import Model
from workers.rehearsal.refusal import EXTRA, MISSING, Body, Refusal

__all__ = ["image", "images"]

MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
MOST_SIDE = 8000
"""Pixels of one side of an image."""

MANY, MOST_SIDE_OF_MANY = 20, 2000
"""In a request with more images than this, pixels of one side of each."""

_SOURCES = {"base64": ("media_type", "data"), "url": ("url",), "file": ("file_id",)}


def image(block: Body, where: str) -> Iterator[Refusal]:
    """One image: a whole source, data that is an image of the kind that it says, and sides that are not too long."""
    source, where = block.get("source"), f"{where}.image.source"
    if not isinstance(source, dict):
        yield Refusal(f"{where}: Input should be an object")
        return
    yield from _shape(source, where)
    if source["type"] == "base64":
        yield from _data(source, where)


def _shape(source: Body, where: str) -> Iterator[Refusal]:
    kind = source.get("type")
    if not isinstance(kind, str) or kind not in _SOURCES:
        known = ", ".join(repr(name) for name in _SOURCES)
        yield Refusal(f"{where}: Input tag {kind!r} does not match any of the expected: {known}")
        return
    needed = _SOURCES[kind]
    yield from (Refusal(f"{where}.{kind}.{key}: {EXTRA}") for key in source if key not in {"type", *needed})
    yield from (Refusal(f"{where}.{kind}.{name}: {MISSING}") for name in needed if name not in source)
    yield from (
        Refusal(f"{where}.{kind}.{name}: Input should be a valid string")
        for name in needed
        if not isinstance(source[name], str)
    )
    if kind == "base64" and source["media_type"] not in MEDIA_TYPES:
        yield Refusal(f"{where}.base64.media_type: Input should be one of {', '.join(map(repr, MEDIA_TYPES))}")
    if kind == "url" and not source["url"].startswith(("https://", "http://")):
        yield Refusal(f"{where}.url.url: Only HTTP and HTTPS URLs are supported")


def _data(source: Body, where: str) -> Iterator[Refusal]:
    try:
        media, width, height = _measured(source)
    except binascii.Error as error:
        yield Refusal(f"{where}.base64.data: invalid base64 data: {error}")
    except ImageRefused:
        yield Refusal(f"{where}.base64.data: Could not process image")
    else:
        said = source["media_type"]
        if media != said:
            yield Refusal(f"{where}.base64.data: Image does not match the provided media type {said}: it is {media}")
        if max(width, height) > MOST_SIDE:
            yield Refusal(
                f"{where}.base64.data: At least one of the image dimensions exceed max allowed size: {MOST_SIDE} pixels"
            )


def _measured(source: Body) -> tuple[str, int, int]:
    try:
        data = base64.b64decode(source["data"], validate=True)
    except ValueError as error:  # also: characters that are no ASCII
        raise binascii.Error(str(error)) from error
    return measured(data)


def images(history: History, model: Model) -> Iterator[Refusal]:
    """Not more images than the model takes, and none with a long side where there are many."""
    most = 100 if model.max_input_tokens <= 200_000 else 600
    found = [found for part in history.messages for found in _images_in(part.blocks, part.where)]
    if len(found) > most:
        yield Refusal(f"messages: a request may hold at most {most} images; found {len(found)}")
    if len(found) <= MANY:
        return
    for where, block in found:
        source = block["source"]
        if source["type"] == "base64" and max(_measured(source)[1:]) > MOST_SIDE_OF_MANY:
            yield Refusal(
                f"{where}.image.source.base64.data: At least one of the image dimensions exceed max allowed size for "
                f"many-image requests: {MOST_SIDE_OF_MANY} pixels"
            )


def _images_in(blocks: Sequence[Any], where: str) -> Iterator[tuple[str, Body]]:
    for index, block in enumerate(blocks):
        at = f"{where}.content.{index}"
        if block["type"] == "image":
            yield at, block
        elif block["type"] == "tool_result":
            yield from _images_in(blocks_of(block.get("content")), f"{at}.tool_result")
