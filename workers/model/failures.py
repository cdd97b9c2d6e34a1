"""What a failed model call means: each becomes one ModelError whose kind says what is worth doing. Pure.

    transient    try again             rate_limit   wait until            too_large    shrink the request
    invalid      give up               auth, spend_limit                  ask a person

The table of failures is that of the facts page; `client.py` knows which exception of the SDK is which row.
"""

import re
from collections.abc import Mapping

from workers.errors import ModelError, ModelErrorKind

from .headroom import read_headroom

__all__ = ["broken_stream", "from_status", "is_overload", "no_connection", "pauses_everybody"]

_SPEND_CODES = frozenset(
    {"enforced_spend_limit_reached", "contract_spend_limit_reached", "linked_organization_spend_limit_reached"}
)
# An error event inside a stream comes with status 200: its type says what the status would have been.
_STATUS_IN_STREAM = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}
# A request that outgrew the window is a plain 400 without a code of its own; the clouds word it in their own ways.
_TOO_LONG = re.compile(
    r"(prompt|input)( is)? too long|exceeds? (the )?(model'?s )?(maximum )?context (window|length|limit)", re.IGNORECASE
)


def from_status(
    status: int,
    message: str,
    *,
    error_type: str = "",
    error_code: str | None = None,
    request_id: str = "",
    headers: Mapping[bytes, bytes] | None = None,
) -> ModelError:
    """Return the error of an answer with this status, or of an error event in a stream (status 200)."""
    meant = status if status >= 400 else _STATUS_IN_STREAM.get(error_type, 500)
    return ModelError(
        _kind(meant, message, error_code),
        message,
        status=status,
        error_type=error_type,
        request_id=request_id,
        retry_after=_retry_after(headers or {}),
    )


def _kind(status: int, message: str, error_code: str | None) -> ModelErrorKind:
    if error_code in _SPEND_CODES or status == 402:
        return "spend_limit"
    if status == 413 or (status == 400 and _TOO_LONG.search(message)):
        return "too_large"
    named: dict[int, ModelErrorKind] = {401: "auth", 403: "auth", 408: "transient", 409: "transient", 429: "rate_limit"}
    return named.get(status, "invalid" if 400 <= status < 500 else "transient")


def _retry_after(headers: Mapping[bytes, bytes]) -> float | None:
    """Return the seconds that an answer asks to wait: said outright, or until a used-up limit is full again."""
    for header, unit in ((b"retry-after-ms", 1000.0), (b"retry-after", 1.0)):
        try:
            return float(headers[header]) / unit
        except (KeyError, ValueError):  # absent, or an HTTP date, which the API does not send
            continue
    found = read_headroom(headers.items())
    return found.pause if found is not None and found.pause > 0 else None


def no_connection(error: BaseException) -> ModelError:
    """Return the error of a connection that could not be made, broke, or stalled."""
    return ModelError("transient", f"no connection to the model: {type(error).__name__}: {error}")


def broken_stream(error: BaseException) -> ModelError:
    """Return the error of a stream that is none: empty, or with frames that cannot be read."""
    return ModelError("transient", f"the answer's stream was malformed: {type(error).__name__}: {error}")


def is_overload(error: ModelError) -> bool:
    """Tell whether the API itself is short of room: everybody who asks meets that, not this call alone."""
    return error.kind == "transient" and (error.status == 529 or error.error_type == "overloaded_error")


def pauses_everybody(error: ModelError) -> bool:
    """Tell whether a failure is one for all who share the endpoint and key: a limit, or an overload."""
    return error.kind == "rate_limit" or is_overload(error)
