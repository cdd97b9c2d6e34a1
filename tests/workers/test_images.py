"""Images as the model gets them: upright, small enough, of a kind that the API takes, or refused with a reason."""

import base64
import io
import os
import struct
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import picture
from PIL import Image

from workers.errors import ImageRefused
from workers.images import Picture, is_image, prepared


def decoded(shown: Picture) -> Image.Image:
    source = shown.block["source"]
    assert (shown.block["type"], source["type"]) == ("image", "base64")
    image = Image.open(io.BytesIO(base64.b64decode(source["data"], validate=True)))
    assert Image.MIME[str(image.format)] == source["media_type"]
    image.load()
    return image


@pytest.mark.parametrize(
    ("form", "media"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("GIF", "image/png"), ("WEBP", "image/png")]
)
def test_the_four_kinds(form: str, media: str) -> None:
    """Each kind that the API takes is recognised by its bytes and comes out as a clean PNG or JPEG of its size."""
    data = picture(form)
    assert is_image(data)
    shown = prepared(data)
    assert shown.words == f"[image 40x30 {form.lower()}]"
    assert shown.block["source"]["media_type"] == media
    image = decoded(shown).convert("RGB")
    assert image.size == (40, 30)
    red, green, blue = image.getpixel((20, 15))
    assert red > 240
    assert max(green, blue) < 20


@pytest.mark.parametrize(
    "mode",
    ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"],
    ids=["bits", "grey", "grey+alpha", "table", "rgb", "rgba", "16"],
)
def test_every_mode(mode: str) -> None:
    """Whatever the channels are, the picture can be shown."""
    assert decoded(prepared(picture("PNG", mode=mode))).size == (40, 30)


def test_sixteen_bits_are_scaled() -> None:
    """A grey image of 16 bits keeps its middle grey instead of turning white."""
    file = io.BytesIO()
    Image.new("I;16", (4, 4), 30_000).save(file, "PNG")
    assert 110 < decoded(prepared(file.getvalue())).getpixel((1, 1)) < 125


@pytest.mark.parametrize(
    ("size", "side", "after"),
    [
        ((3136, 1000), 1568, (1568, 500)),
        ((1000, 4000), 2000, (500, 2000)),
        ((9000, 2), 5000, (2000, 1)),
        ((5, 5), 9, (5, 5)),
    ],
)
def test_large_ones_shrink(size: tuple[int, int], side: int, after: tuple[int, int]) -> None:
    """The long side is cut to what was asked for, never above 2000; small ones stay; the words say both sizes."""
    shown = prepared(picture("PNG", size=size), side)
    assert decoded(shown).size == after
    told = f"[image {size[0]}x{size[1]} png" + (f", shown at {after[0]}x{after[1]}]" if size != after else "]")
    assert shown.words == told


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_what_is_large_in_bytes(form: str) -> None:
    """Noise, which no format makes small, still stays under a megabyte of base64: twenty of them fit into a request."""
    file = io.BytesIO()
    Image.frombytes("RGB", (1500, 1500), os.urandom(1500 * 1500 * 3)).save(file, form)
    shown = prepared(file.getvalue())
    assert len(shown.block["source"]["data"]) <= 1_000_000
    assert decoded(shown).format == "JPEG"


def test_transparent_noise_is_put_on_white() -> None:
    """What must become a JPEG has no transparency left, and no colour of what was not to be seen."""
    noise = Image.frombytes("RGBA", (900, 900), os.urandom(900 * 900 * 4))
    noise.putalpha(0)
    file = io.BytesIO()
    noise.save(file, "PNG")
    image = decoded(prepared(file.getvalue()))
    assert image.format == "JPEG"
    assert image.getpixel((5, 5)) == (255, 255, 255)


def test_turned_photographs() -> None:
    """A photograph that lies on its side, as its camera noted, is shown upright; the note itself is gone."""
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "home address"
    shown = prepared(picture("JPEG", exif=exif))
    assert decoded(shown).size == (30, 40)
    assert shown.words == "[image 40x30 jpeg]"
    assert not decoded(shown).getexif()


def test_the_first_frame_of_an_animation() -> None:
    """An animated image shows how it begins."""
    file = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert decoded(prepared(file.getvalue())).convert("RGB").getpixel((1, 1)) == (255, 0, 0)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_a_bomb() -> None:
    """An image of few bytes and many pixels is refused before it is decoded, with its size."""
    head = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    data = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )
    with pytest.raises(ImageRefused, match=r"50000x50000 pixels, more than 50,000,000"):
        prepared(data)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
def test_files_cut_short(form: str) -> None:
    """A file that ends too early is refused with a reason, wherever it was cut, or shown."""
    data = picture(form, size=(200, 200))
    for at in {12, 20, len(data) // 2, len(data) - 30}:
        with suppress(ImageRefused):
            decoded(prepared(data[:at]))
    with pytest.raises(ImageRefused, match="cannot be decoded"):
        prepared(data[:20])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_broken_files(data: Any) -> None:
    """No byte that is wrong lets another error out."""
    whole = bytearray(picture(data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP"]))))
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=6)):
        whole[at] = data.draw(st.integers(0, 255))
    with suppress(ImageRefused):
        decoded(prepared(bytes(whole)))


@pytest.mark.parametrize("data", [b"", b"text", b"RIFF....AVI ", b"<svg/>", b"%PDF-1.7", b"BM"])
def test_other_files(data: bytes) -> None:
    """What is no such image is not taken for one."""
    assert not is_image(data)
    with pytest.raises(ImageRefused):
        prepared(data)
