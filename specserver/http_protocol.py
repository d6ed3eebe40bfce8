"""Owns HTTP below ASGI: what is no request, or never ends, is answered in the service's own form.

Uvicorn answers what its parser refuses in plain text, bounds no header, and waits for the rest of
a request without end.
"""

import contextlib
import re
import traceback
from asyncio import TimerHandle, Transport
from typing import Any, cast

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from specserver.connection_counts import ConnectionCounts
from specserver.log_budget import LogBudget
from specserver.problems import (
    BadRequest,
    InternalError,
    Problem,
    RenderProblem,
    TooManyRequests,
    render_problem,
)
from specserver.replies import raw_headers
from specserver.request_sizes import FIELDS_BYTES_MAX, RequestSizes, too_large
from specserver.requests import Headers, request_id_of
from specserver.streaming import PEER, ConnectionEnd
from specserver.turns import overloaded
from specserver.whole_answers import sends_whole

ARRIVE_WITHIN_S = 30.0
# RFC 9110 asks for 8,000 octets at the least.
TARGET_BYTES_MAX = 16_384
# So do requests that are sent before those ahead of them are answered: some thousands of bytes.
PIPELINED_MAX = 32
# Hanging up on bytes unread resets the connection, and may take the answer from the client.
LINGER_S = 2.0
# So much of a request is kept as tells its method.
_OPENING_BYTES = 64
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,40}( |$)")
# A name or an address, and a port. Nothing that would mean more where it is put into a URL.
_HOST = re.compile(rb"([0-9A-Za-z._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{0,5})?")

log = structlog.get_logger("specserver")
# Connections are had for nothing, and each may end in a refusal.
_refusals = LogBudget()


def http_protocol(
    render: RenderProblem = render_problem, connection_counts: ConnectionCounts | None = None
) -> "type[HttpProtocol]":
    """For uvicorn's `http=`; give it what renders the problems of the app behind it."""
    members = {"render": staticmethod(render), "connection_counts": connection_counts}
    return cast("type[HttpProtocol]", type("Http", (HttpProtocol,), members))


class HttpProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which refuses in the service's form, after the answers due before.

    It is the `streaming.Peer` of its requests.

    A request has `arrive_within_s` from its first byte to its last, and its head a bounded size.
    Whoever is refused is hung up on, as nobody knows where their next request would begin.
    """

    render: RenderProblem = staticmethod(render_problem)
    arrive_within_s = ARRIVE_WITHIN_S
    connection_counts: ConnectionCounts | None = None

    _counted_as: tuple[str, ...] | None = None
    _arriving = True
    _head_is_read = False
    _opening = b""
    _unseen_bytes = 0
    _due = 0
    _refused = False
    _refusal = b""
    _framing_only = False
    _limit: TimerHandle | None = None
    _answering: RequestResponseCycle | None = None

    # What the transport tells.

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # uvicorn's
        super().connection_made(transport)
        self.ending = ConnectionEnd()
        self._sizes = RequestSizes()
        self._wait()
        if self.connection_counts is not None and self.client:
            self._enter(self.connection_counts, self.client[0])

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        self._forget_answers()
        if self.connection_counts is not None and self._counted_as is not None:
            self.connection_counts.leave(self._counted_as, self)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._refused:
            return
        if not self._arriving or (not self._head_is_read and len(self._opening) < _OPENING_BYTES):
            self._arriving = True
            self._opening += data[:_OPENING_BYTES]
        self._unseen_bytes += len(data)
        problem = self._parse(data)
        if problem is None and self._unseen_bytes > FIELDS_BYTES_MAX:
            problem = too_large()
        if problem is not None:
            self._refuse(problem)
        elif self._arriving and self._limit is None:
            # A request that came whole, which is nearly every one, costs no timer.
            self._wait()
        elif not self._arriving:
            self._stop_waiting()

    def eof_received(self) -> None:
        begun = self._opening and self._arriving and not self._refused
        if begun and not self._is_behind_others():
            self._refuse(BadRequest("the request ended before it was complete"))

    def cut(self) -> None:
        self.transport.abort()

    def shutdown(self) -> None:
        self.ending.set()
        if self._refused and self._due == 0:
            self.transport.close()
        else:
            super().shutdown()

    def _enter(self, connection_counts: ConnectionCounts, peer: str) -> None:
        self._counted_as, count = connection_counts.enter(peer, self)
        if count > 2 * connection_counts.of_one:
            self.transport.abort()  # so many were told already, and hold on
        elif count > connection_counts.of_one:
            self._refuse(_too_many(connection_counts.of_one))
        elif connection_counts.is_full():
            first = connection_counts.first_to_go(self)
            if first is None:
                self._refuse(overloaded())
            else:
                first.transport.abort()

    # What the parser tells.

    def on_message_begin(self) -> None:
        if self._framing_only:
            return
        self._arriving = True
        self._head_is_read = False
        self._sizes.begin()
        super().on_message_begin()
        self.scope[PEER] = self  # type: ignore[typeddict-unknown-key]  # ours

    def on_url(self, url: bytes) -> None:
        if self._framing_only:
            return
        self._unseen_bytes = 0
        self.url += url
        if len(self.url) > TARGET_BYTES_MAX:
            raise Problem(414, f"the request target is longer than {TARGET_BYTES_MAX} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._unseen_bytes = 0
        self._sizes.add_field(name, value)
        # A trailer is no header: whoever stands before us has not looked at it as one.
        if not self._head_is_read:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._framing_only:
            return
        if self.parser.get_method() == b"CONNECT":
            raise _unknown_method()
        if len(self.pipeline) >= PIPELINED_MAX:
            raise _too_many_ahead()
        try:
            if not self.url.startswith(b"/") and httptools.parse_url(self.url).path is None:
                raise BadRequest("the request target does not have a path")
            _check_host(self.headers, self.parser.get_http_version())
            super().on_headers_complete()
        except httptools.HttpParserInvalidURLError:
            raise BadRequest("the request target is malformed") from None
        self._head_is_read = True
        self._due += 1

    def on_body(self, body: bytes) -> None:
        self._unseen_bytes = 0
        self._sizes.add_piece(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and self._framing():
            return  # the parser leaves out the body of a request that would switch protocols
        super().on_message_complete()
        self._arriving = False
        self._head_is_read = False
        self._opening = b""
        self._unseen_bytes = 0
        self.headers = []
        self._stop_waiting()

    def _parse(self, data: bytes) -> Problem | None:
        rest = data
        try:
            while rest:
                rest = self._feed(rest)
        except httptools.HttpParserCallbackError as error:
            return _as_problem(error.__context__)
        except httptools.HttpParserError as error:
            # These texts are the parser's own; they hold nothing of the request.
            reason = str(error)
            if "nvalid method" in reason and _METHOD.match(self._opening.lstrip(b"\r\n")):
                return _unknown_method()
            return BadRequest(f"this is not well-formed HTTP: {reason}")
        return None

    def _feed(self, data: bytes) -> bytes:
        """What the parser has left over of it, which is nothing but after an offer to upgrade."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._stay_with_http()
            return data[offer.args[0] :]
        return b""

    def _stay_with_http(self) -> None:
        """Goes on with the body of a request that offered another protocol, as if it had not."""
        framing = self._framing()
        if not framing:
            return
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._framing_only = True
        head = [b"POST / HTTP/1.1", *(name + b": " + value for name, value in framing), b"\r\n"]
        self.parser.feed_data(b"\r\n".join(head))
        self._framing_only = False

    def _framing(self) -> list[tuple[bytes, bytes]]:
        """The fields that say how long the body is, where there is one."""
        return [
            (name, value)
            for name, value in self.headers
            if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 \t"))
        ]

    # Answers, and their order.

    def on_response_complete(self) -> None:
        self._due -= 1
        if self._answering is not None:
            self._answering.body = bytearray()  # unread, it would stay with the connection
        super().on_response_complete()
        if self._refused and self._due == 0 and not self.transport.is_closing():
            self._hang_up()

    def _refuse(self, problem: Problem) -> None:
        """Answers the request that is arriving with a problem, once its turn has come."""
        self._refused = True
        self._stop_waiting()
        broken = self.cycle if self._arriving and self._head_is_read else None
        if broken is None or not broken.response_started:
            self._refusal = self._encode(problem)
        if broken is not None and not broken.response_complete:
            self._abandon(broken)
        if self._due == 0:
            self._hang_up()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        cycle.send = sends_whole(cycle)  # type: ignore[method-assign]  # uvicorn has no seam for it
        super()._start_asgi_task(cycle, app)

    def _forget_answers(self) -> None:
        """Uvicorn tells only the latest request, which need not be the one being answered."""
        self.pipeline.clear()
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def _abandon(self, cycle: RequestResponseCycle) -> None:
        """The app learns that the rest will not come, and what it may say is not sent."""
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
        cycle.disconnected = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()
        self._due -= 1

    def _encode(self, problem: Problem) -> bytes:
        request_id = request_id_of(Headers(self.headers or []))
        reply = self.render(problem, request_id)
        refused = {"status": reply.status, "reason": problem.detail, "request_id": request_id}
        _refusals.info(self.client[0] if self.client else "", "request refused", **refused)
        body = reply.encode()
        fields = [*self.server_state.default_headers, *raw_headers(reply, request_id, len(body))]
        lines = [name + b": " + value for name, value in (*fields, (b"connection", b"close"))]
        head = STATUS_LINE[reply.status] + b"\r\n".join([*lines, b"\r\n"])
        return head if self._opening.lstrip(b"\r\n").startswith(b"HEAD ") else head + body

    def _hang_up(self) -> None:
        self._unset_keepalive_if_required()
        if not self._refusal or not self.transport.can_write_eof():
            self.transport.write(self._refusal)
            self.transport.close()
            return
        self.transport.write(self._refusal)
        # Whoever has reset the connection meanwhile is not there to be told.
        with contextlib.suppress(OSError):
            self.transport.write_eof()
        self.flow.resume_reading()
        self._limit = self.loop.call_later(LINGER_S, self.transport.close)

    # Time.

    def _wait(self) -> None:
        self._limit = self.loop.call_later(self.arrive_within_s, self._too_late)

    def _stop_waiting(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _too_late(self) -> None:
        self._limit = None
        if self._is_behind_others():
            self._wait()  # an earlier request of the connection has yet to be answered
        elif not self.transport.is_closing():
            within = f"{self.arrive_within_s:.0f} seconds"
            self._refuse(Problem(408, f"the request did not arrive within {within}"))

    def _is_behind_others(self) -> bool:
        """Whether answers are due to requests before the one that is arriving."""
        begun = self._arriving and self._head_is_read and not self.cycle.response_complete
        return self._due > begun


def _check_host(headers: list[tuple[bytes, bytes]], version: str) -> None:
    """Raises where two servers on the way could read different hosts from one request."""
    hosts = [value for name, value in headers if name == b"host"]
    if not hosts and version == "1.0":
        return
    if len(hosts) != 1:
        raise BadRequest(
            f"a request must have exactly one Host field, and this one has {len(hosts) or 'none'}"
        )
    if not _HOST.fullmatch(hosts[0].strip()):
        raise BadRequest("Host must be a host name or an address, with or without a port")


def _as_problem(cause: BaseException | None) -> Problem:
    """What a callback of the parser raised; other than a problem it is a fault of ours."""
    if isinstance(cause, Problem):
        return cause
    # As text, since a renderer that shows local variables shows credentials.
    text = "".join(traceback.format_exception(cause))
    log.error("the request header could not be processed", exception=text)
    return InternalError()


def _too_many(allowed: int) -> Problem:
    detail = (
        f"too many connections from your address: {allowed} are allowed at a time; close some,"
        " or send further requests on those that are open"
    )
    return TooManyRequests(detail, code="too_many_at_once", headers={"Retry-After": "1"})


def _too_many_ahead() -> Problem:
    detail = (
        f"more than {PIPELINED_MAX} requests of this connection are waiting for their responses;"
        " send further ones when some of them have been answered"
    )
    return TooManyRequests(detail, code="too_many_at_once", headers={"Retry-After": "1"})


def _unknown_method() -> Problem:
    return Problem(501, "this method is not supported")
