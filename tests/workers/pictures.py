"""Image files for tests."""

import io
from typing import Any

from PIL import Image


def picture(form: str = "PNG", size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: Any) -> bytes:
    """An image's bytes, red all over."""
    colour: Any = {"RGB": (255, 0, 0), "RGBA": (255, 0, 0, 0), "CMYK": (0, 255, 255, 0)}.get(mode, 1)
    file = io.BytesIO()
    Image.new(mode, size, colour).save(file, form, **options)
    return file.getvalue()
