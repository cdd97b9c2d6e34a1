"""The HTTP endpoints but the main one, and what all of them share: the key, the error body, the recording."""

import hmac
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tornado.httputil import HTTPServerRequest
from tornado.web import RequestHandler

from workers.rehearsal.models import model_info
from workers.rehearsal.recording import Record, Recording
from workers.rehearsal.refusal import Refusal
from workers.rehearsal.stage import Stage

__all__ = [
    "ERROR_TYPES",
    "Alive",
    "Backstage",
    "CountTokens",
    "Endpoint",
    "Models",
    "Nothing",
    "OneModel",
    "RecordedEndpoint",
    "Requests",
]

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_KEPT_HEADERS = ("anthropic-version", "anthropic-beta", "user-agent", "x-stainless-retry-count", "content-type")


@dataclass(slots=True)
class Backstage:
    """What every endpoint of one server works with."""

    stage: Stage
    recording: Recording
    key: str
    request_ids: Iterator[int] = field(default_factory=lambda: count(1))
    closing: bool = False


class Endpoint(RequestHandler):
    """What all endpoints share: the key, the error body, the headers of every answer."""

    backstage: Backstage

    def initialize(self, backstage: Backstage) -> None:
        """Take what tornado passes to each new handler."""
        self.backstage = backstage
        self.request_id = f"req_rehearsal_{next(backstage.request_ids):06d}"

    def set_default_headers(self) -> None:
        """Leave out tornado's own name."""
        self.clear_header("Server")

    def prepare(self) -> None:
        """Name the request and check its key."""
        self.set_header("request-id", self.request_id)
        if refusal := _wrong_key(self.request, self.backstage.key):
            self.refuse(refusal)

    def compute_etag(self) -> None:
        """Answer no etags: nothing here is cached by a client."""
        return

    def refuse(self, refusal: Refusal, *, code: str | None = None) -> None:
        """Answer with an error in the API's form."""
        self.set_status(refusal.status, "Refused")
        # Once more: tornado clears the headers before it has its own errors written.
        self.set_header("request-id", self.request_id)
        for name, value in refusal.headers:
            self.set_header(name, value)
        error: dict[str, Any] = {"type": refusal.type, "message": refusal.message}
        if code is not None:
            error["details"] = {"error_code": code}
        self.reply({"type": "error", "error": error, "request_id": self.request_id})

    def reply(self, data: dict[str, Any]) -> None:
        """Answer with JSON."""
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(data))

    def write_error(self, status_code: int, **_kwargs: Any) -> None:
        """Answer tornado's own errors (405, a bug of ours) in the API's form too."""
        kind = ERROR_TYPES.get(status_code, "api_error" if status_code >= 500 else "invalid_request_error")
        self.refuse(Refusal(self._reason, status=status_code, type=kind))


def _wrong_key(request: HTTPServerRequest, key: str) -> Refusal | None:
    bearer = request.headers.get("Authorization", "")
    given = request.headers.get("x-api-key") or bearer.removeprefix("Bearer ").strip()
    if not given:
        return Refusal(
            "Authentication is required: send `x-api-key` or `Authorization: Bearer`",
            status=401,
            type="authentication_error",
        )
    if not hmac.compare_digest(given.encode(), key.encode()):
        return Refusal("invalid x-api-key", status=401, type="authentication_error")
    return None


class Alive(Endpoint):
    """Liveness: needs no key."""

    def prepare(self) -> None:
        """Ask for no key."""

    def get(self) -> None:
        """Say that this is a rehearsal."""
        self.reply({"rehearsal": True})

    def head(self) -> None:
        """Say that the server is there."""
        self.set_status(200)


class Nothing(Endpoint):
    """Whatever the rehearsal does not speak."""

    def prepare(self) -> None:
        """Answer 404, whatever the method."""
        super().prepare()
        if not self._finished:
            self.refuse(Refusal(f"Not found: {self.request.method} {self.request.path}", 404, "not_found_error"))


class Models(Endpoint):
    """`GET /v1/models`."""

    def get(self) -> None:
        """List every model that the rehearsal knows, in one page."""
        data = [model_info(model) for model in self.backstage.stage.models.values()]
        self.reply({"data": data, "has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]})


class OneModel(Endpoint):
    """`GET /v1/models/{id}`."""

    def get(self, name: str) -> None:
        """Describe one model, with its capabilities and limits."""
        model = self.backstage.stage.models.get(name)
        if model is None:
            self.refuse(Refusal(f"model: {name}", 404, "not_found_error"))
        else:
            self.reply(model_info(model))


class Requests(Endpoint):
    """`GET /rehearsal/requests`: what the recording holds. Needs the key, since bodies may hold anything."""

    def get(self) -> None:
        """Return the recording as JSON."""
        self.reply(self.backstage.recording.as_json())


class RecordedEndpoint(Endpoint):
    """An endpoint whose calls go into the recording."""

    record: Record

    def prepare(self) -> None:
        """Open the record before anything can be refused."""
        headers = self.request.headers
        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        self.record = self.backstage.recording.open(self.request.path, kept)
        super().prepare()

    def refuse(self, refusal: Refusal, *, code: str | None = None) -> None:
        """Record the refusal and answer with it."""
        self.record.status, self.record.error = refusal.status, refusal.message
        super().refuse(refusal, code=code)

    def on_finish(self) -> None:
        """Note when the answer was complete."""
        if self.record.disconnected is None:
            self.record.finished = time.time()


class CountTokens(RecordedEndpoint):
    """`POST /v1/messages/count_tokens`."""

    def post(self) -> None:
        """Count, roughly; see `history.tokens_of`."""
        counted = self.backstage.stage.count_tokens(self.request.body, self.request.headers)
        if isinstance(counted, Refusal):
            self.refuse(counted)
        else:
            self.record.status = 200
            self.reply({"input_tokens": counted})
