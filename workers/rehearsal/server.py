"""The HTTP side: tornado handlers that ask the stage what to do and do it, faults included.

Speaks the Messages API closely enough for the real SDK to stream from it. Listens on the loopback interface by
default and knows one key; it is no server for a network.
"""

import socket

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from workers.rehearsal import endpoints
from workers.rehearsal.errors import ServerStartError
from workers.rehearsal.play import Messages
from workers.rehearsal.recording import Record, Recording, Tally
from workers.rehearsal.rules import MAX_BYTES
from workers.rehearsal.script import Script
from workers.rehearsal.stage import Stage

__all__ = ["RehearsalServer"]

# Over the API's own limit, so that the 413 is ours to give and not tornado's.
_BODY_LIMIT = 4 * MAX_BYTES
# A whole fleet may connect at once.
_BACKLOG = 512


class RehearsalServer:
    """A stand-in for the Messages API on `host`:`port` (0: any free one) that plays a script.

    It accepts `key` alone, as `x-api-key` or as a Bearer token. With `record_bodies` off, requests are counted
    but not kept. Start and stop it on one event loop; `url`, `requests`, `units` and `repeats` may be read
    from any thread.
    """

    def __init__(
        self,
        script: Script,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        key: str = "rehearsal",
        record_bodies: bool = True,
    ) -> None:
        self.script = script
        self.host = host
        self.port = port
        self.key = key
        self.recording = Recording(bodies=record_bodies)
        self._backstage = endpoints.Backstage(Stage(script), self.recording, key)
        self._http: HTTPServer | None = None

    @property
    def url(self) -> str:
        """What goes into ANTHROPIC_BASE_URL; the port is known once the server has started."""
        return f"http://{self.host}:{self.port}"

    @property
    def requests(self) -> list[Record]:
        """Every call of /v1/messages and count_tokens so far, in order of arrival; the records are live."""
        return self.recording.records

    @property
    def units(self) -> dict[str, Tally]:
        """How often each unit called, first and last."""
        return self.recording.tallies

    @property
    def repeats(self) -> dict[tuple[str, int, int, str], int]:
        """(unit, attempt, step, hash of the request) -> calls, for what was asked more than once."""
        return self.recording.repeats

    async def start(self) -> None:
        """Listen. Raises ServerStartError when the address is not to be had."""
        try:
            listening = socket.create_server((self.host, self.port), backlog=_BACKLOG)
        except OSError as error:
            raise ServerStartError(self.host, self.port, error.strerror or str(error)) from error
        listening.setblocking(False)
        self._backstage.closing = False
        self.port = listening.getsockname()[1]
        self._http = HTTPServer(self._application(), max_body_size=_BODY_LIMIT, max_buffer_size=_BODY_LIMIT)
        self._http.add_socket(listening)

    async def stop(self) -> None:
        """Stop listening and cut every connection; an answer in the middle of which this falls ends there."""
        if self._http is None:
            return
        http, self._http = self._http, None
        self._backstage.closing = True
        http.stop()
        await http.close_all_connections()

    def _application(self) -> Application:
        wiring = {"backstage": self._backstage}
        return Application(
            [
                (r"/v1/messages", Messages, wiring),
                (r"/v1/messages/count_tokens", endpoints.CountTokens, wiring),
                (r"/v1/models", endpoints.Models, wiring),
                (r"/v1/models/([^/]+)", endpoints.OneModel, wiring),
                (r"/rehearsal/requests", endpoints.Requests, wiring),
                (r"/", endpoints.Alive, wiring),
            ],
            default_handler_class=endpoints.Nothing,
            default_handler_args=wiring,
            log_function=_no_access_log,
        )


def _no_access_log(_handler: RequestHandler) -> None:
    """Say nothing: refusals are the business of this server, and the recording has them."""
