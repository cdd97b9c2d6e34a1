"""Text that can leave this process: names of files, and a model's own words, may hold what UTF-8 does not.

A name that is no UTF-8 comes from the system with half characters in it; a request that holds one is refused by the
API, and so would be every later one of that session. Pure.
"""

__all__ = ["is_sendable", "sendable"]


def is_sendable(text: str) -> bool:
    """Tell whether UTF-8 can hold a text."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def sendable(text: str) -> str:
    """Return a text with a `?` for each half of a character; the same object where there is none."""
    return text if is_sendable(text) else text.encode("utf-8", errors="replace").decode("utf-8")
