"""Images on their way to the model: decoded, turned upright, made small enough and encoded anew. Only here is Pillow.

What comes out is an image block that every model takes, whatever the file was: nothing of the file's own bytes is
passed on.
"""

import base64
import io
from dataclasses import dataclass

from PIL import Image, ImageOps

from workers.errors import ImageRefused
from workers.session.events import Block

__all__ = ["USUAL_SIDE", "Picture", "is_image", "measured", "prepared"]

USUAL_SIDE = 1568
"""Pixels of the long side: the API shrinks larger ones itself, after they were paid for on the wire."""

_MOST_SIDE = 2000  # what the API takes when a request has more than 20 images (facts: caching and cost)
_MOST_PIXELS = 50_000_000  # decoded, 200 MB at four bytes each; a camera's photograph has half of it
_MOST_BASE64 = 1_000_000  # characters: twenty of them, and a step's new ones, stay under the API's 32 MB
_QUALITIES = (85, 70, 50, 30)
_KINDS = {"PNG": "png", "JPEG": "jpeg", "GIF": "gif", "WEBP": "webp"}
_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")

# Pillow only warns, on stderr, of an image between its limit and twice that; here the size is an error, always, and
# checked before anything is decoded.
Image.MAX_IMAGE_PIXELS = None


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as the model gets it: its block, and in words what the file was."""

    block: Block
    words: str


def is_image(data: bytes) -> bool:
    """Tell by its first bytes whether a file is an image of a kind that the API takes."""
    return data.startswith(_MAGIC) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP")


def measured(data: bytes) -> tuple[str, int, int]:
    """Return media type, width and height (pixels) of an image that is not decoded. Raises ImageRefused."""
    try:
        with Image.open(io.BytesIO(data), formats=tuple(_KINDS)) as opened:
            return f"image/{_KINDS[str(opened.format)]}", opened.width, opened.height
    except Exception as error:  # as below
        raise ImageRefused(f"it cannot be read ({type(error).__name__}: {error})") from error


def prepared(data: bytes, side: int = USUAL_SIDE) -> Picture:
    """Return a file's image with a long side of at most `side` pixels (never above 2000). It blocks: use a thread.

    Of an animation the first frame. Raises ImageRefused for a broken file and for one that is too large to decode.
    """
    side = min(side, _MOST_SIDE)
    try:
        with Image.open(io.BytesIO(data), formats=tuple(_KINDS)) as opened:
            _refuse_bomb(opened)
            kind, width, height = _KINDS[str(opened.format)], opened.width, opened.height
            opened.draft("RGB", (side, side))  # lets a large JPEG be decoded at a part of its size
            image = _plain(ImageOps.exif_transpose(opened))
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        media, encoded = _encoded(image, is_lossy=kind == "jpeg")
    except ImageRefused:
        raise
    except Exception as error:  # Pillow's readers raise whatever a broken file makes them stumble over
        raise ImageRefused(f"it cannot be decoded ({type(error).__name__}: {error}); the file may be broken") from error
    source = {"type": "base64", "media_type": media, "data": encoded}
    shown = "" if image.size in ((width, height), (height, width)) else f", shown at {image.width}x{image.height}"
    return Picture({"type": "image", "source": source}, f"[image {width}x{height} {kind}{shown}]")


def _refuse_bomb(image: Image.Image) -> None:
    if image.width * image.height > _MOST_PIXELS:
        raise ImageRefused(f"it has {image.width}x{image.height} pixels, more than {_MOST_PIXELS:,}; make it smaller")


def _plain(image: Image.Image) -> Image.Image:
    """Return an image of eight bits a channel, in grey or colour, with transparency only where there is some."""
    if image.mode.startswith("I;16"):
        return image.point(lambda value: value * (1 / 256)).convert("L")  # convert alone would cut off, not scale
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image if image.mode == "L" else image.convert("RGB")


def _encoded(image: Image.Image, *, is_lossy: bool) -> tuple[str, str]:
    """Return media type and base64 text: PNG where it fits, else JPEG as good as it may be."""
    if not is_lossy:
        text = _saved(image, "PNG")
        if len(text) <= _MOST_BASE64:
            return "image/png", text
    flat = _on_white(image)
    for quality in _QUALITIES:
        text = _saved(flat, "JPEG", quality=quality)
        if len(text) <= _MOST_BASE64:
            break
    return "image/jpeg", text


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode != "RGBA":
        return image
    flat = Image.new("RGB", image.size, "white")
    flat.paste(image, mask=image.getchannel("A"))
    return flat


def _saved(image: Image.Image, form: str, **options: int) -> str:
    """Return the image encoded without anything that the file said beside its pixels."""
    file = io.BytesIO()
    image.info = {}
    image.save(file, form, **options)
    return base64.b64encode(file.getvalue()).decode("ascii")
