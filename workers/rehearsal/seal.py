"""Signatures of thinking blocks: an HMAC over the text and over everything that stood before the block.

So the server can check them without remembering what it answered. The key is no secret: it proves nothing to
anybody, it only makes a changed block or a changed past visible.
"""

import hmac
from base64 import b64decode, b64encode
from typing import Literal

__all__ = ["Finding", "check", "sign"]

Finding = Literal["good", "forged", "moved"]

_KEY = b"overnight rehearsal: not a secret"
_SIZE = 15


def _mac(data: bytes) -> bytes:
    return hmac.digest(_KEY, data, "sha256")[:_SIZE]


def sign(text: str, before: bytes) -> str:
    """Sign thinking `text` that stands after everything with the digest `before`."""
    plain = text.encode("utf-8", "surrogatepass")
    return b64encode(_mac(plain) + _mac(before + plain)).decode()


def check(text: str, signature: str, before: bytes) -> Finding:
    """Say whether the signature is good, was never given to this text (forged), or belongs elsewhere (moved)."""
    plain = text.encode("utf-8", "surrogatepass")
    try:
        seal = b64decode(signature, validate=True)
    except ValueError:
        return "forged"
    if not hmac.compare_digest(seal[:_SIZE], _mac(plain)):
        return "forged"
    return "good" if hmac.compare_digest(seal[_SIZE:], _mac(before + plain)) else "moved"
