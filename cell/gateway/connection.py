"""One client's connection, from its first byte to its last.

It goes through steps, each a method that takes what arrived: the preface (PROXY header and
ClientHello, where host and address are checked before any cryptography), the TLS handshake, the
first request, the relay, and for refusals a short while of not listening.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from cell.gateway import opening
from cell.gateway.activity import Traffic
from cell.gateway.preface import ALERT_INTERNAL_ERROR, Preface, TurnedAway, alert
from cell.gateway.protocols.front import Front
from cell.gateway.refusal import Refusal
from cell.gateway.routes import Route
from cell.gateway.stream import Stream
from cell.gateway.tls_session import TlsError, TlsSession

if TYPE_CHECKING:
    from cell.gateway.shared import Shared

log = structlog.get_logger("gateway.connection")

# What TLS itself may answer (key updates) to a client that reads nothing.
CONTROL_MAX_BYTES = 65_536
# Between the end of an answer and hanging up on a keep-alive connection, when the worker stops.
QUIET_S = 0.25


class Connection:
    def __init__(
        self, shared: "Shared", front: Front, accepted: socket.socket, address: str
    ) -> None:
        self._shared = shared
        self._front = front
        self._preface = Preface(shared.routes, front, address, shared.proxies)
        self._client = Stream(shared.loop, accepted, self, shared.buffer)
        self._backend: Stream | None = None
        self._tls: TlsSession | None = None
        self._host = ""
        self._first = bytearray()
        self._step: Callable[[memoryview], None] = self._read_preface
        self._opening: asyncio.Task[None] | None = None
        self._entered: Route | None = None
        self._traffic = Traffic()
        self._client_ended = False
        self._backend_ended = False
        self._asked_last = False
        self._control_bytes = 0
        self._moved_at = shared.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._wait(shared.settings.handshake_timeout_s, "handshake_timeout")
        shared.connections.add(self)
        shared.unproven[self] = None
        self._client.resume()

    # What the streams report.

    def received(self, stream: Stream, data: memoryview) -> None:
        try:
            if stream is self._client:
                self._step(data)
            else:
                self._to_client(data)
        except TlsError:
            self._on_tls_error()
        except Exception:
            # A fault met by one connection must neither keep it open nor reach another.
            log.exception("gateway.connection_failed", step=self._step.__name__)
            self.close()

    def ended(self, stream: Stream) -> None:
        if stream is self._backend:
            self._on_backend_end(whole=True)
        elif self._backend is None:
            self.close()
        else:
            self._on_client_end()

    def failed(self, stream: Stream) -> None:
        if stream is self._backend:
            # It broke off: saying close_notify would call what was sent complete.
            self._on_backend_end(whole=False)
        else:
            self.close()

    def blocked(self, stream: Stream) -> None:
        other = self._backend if stream is self._client else self._client
        if other is not None:
            other.pause()

    def drained(self, stream: Stream) -> None:
        self._moved_at = self._shared.loop.time()
        if stream is not self._client:
            self._client.resume()
        elif self._backend is not None:
            self._control_bytes = 0
            self._backend.resume()

    def unwritable(self, stream: Stream) -> None:
        if stream is self._client:
            self.close()
        else:
            # It may have answered before it stopped reading, so the relay back goes on.
            self._client.resume()

    # The steps.

    def _read_preface(self, data: memoryview) -> None:
        verdict = self._preface.take(data)
        if isinstance(verdict, TurnedAway):
            self._turn_away(verdict)
        elif verdict is not None:
            context = self._shared.certificates.context
            if context is None:
                self._turn_away(TurnedAway("no_certificate", alert(ALERT_INTERNAL_ERROR)))
                return
            self._host = verdict.route.host
            self._tls = TlsSession(context)
            self._step = self._shake_hands
            self._step(memoryview(verdict.hello))

    def _shake_hands(self, data: memoryview) -> None:
        tls = self._session
        tls.receive(data)
        done = tls.handshake()
        self._flush()
        if done and not self._client.closed:
            self._wait(self._shared.settings.first_request_timeout_s, "first_request_timeout")
            self._step = self._read_first_request
            self._step(data[:0])

    def _read_first_request(self, data: memoryview) -> None:
        tls = self._session
        tls.receive(data)
        for chunk in tls.read():
            self._first += chunk
        self._flush()
        if self._client.closed:
            return
        if self._front.has_begun(self._first):
            self._client.pause()
            self._stop_waiting()
            self._shared.unproven.pop(self, None)
            self._open()
        elif tls.peer_ended:
            self.close()

    def _open(self) -> None:
        try:
            route = opening.check(self._shared.routes.find(self._host))
            self._enter(route)
        except Refusal as refusal:
            self._refuse(refusal)
            return
        if route.state == "running":
            try:
                self._splice(opening.connect(route.socket))
            except OSError:
                pass
            else:
                return
        self._opening = self._shared.loop.create_task(self._open_later())

    async def _open_later(self) -> None:
        try:
            backend = await opening.wait_for_backend(self._shared, self._host)
        except Refusal as refusal:
            self._opening = None
            self._refuse(refusal)
        except TlsError:
            self.close()
        else:
            self._opening = None
            self._splice(backend)

    def _splice(self, backend: socket.socket) -> None:
        self._backend = Stream(self._shared.loop, backend, self, self._shared.buffer)
        self._step = self._to_backend
        self._asked_last = True
        self._moved_at = self._shared.loop.time()
        self._traffic.came_in(len(self._first))
        self._backend.write([bytes(self._first)])
        self._first.clear()
        self._backend.resume()
        if self._session.peer_ended:
            self._on_client_end()
        elif not self._backend.is_blocked:
            self._client.resume()

    def _to_backend(self, data: memoryview) -> None:
        tls, backend = self._session, self._backend
        if backend is None:
            return
        tls.receive(data)
        chunks = tls.read()
        if tls.has_output:
            self._flush()
        if chunks:
            self._moved_at = self._shared.loop.time()
            self._asked_last = True
            self._traffic.came_in(sum(map(len, chunks)))
            backend.write(chunks)
        if tls.peer_ended and not self._client_ended:
            self._client.pause()
            self._on_client_end()

    def _to_client(self, data: memoryview) -> None:
        tls = self._session
        self._moved_at = self._shared.loop.time()
        self._asked_last = False
        self._traffic.went_out(len(data))
        tls.write(data)
        self._client.write([tls.output()])

    def _ignore(self, data: memoryview) -> None:
        """Reads on, so that closing does not reset the connection before the answer is read."""

    # Endings.

    def _on_tls_error(self) -> None:
        self._count("tls_failed")
        self._leave()
        if self._backend is not None:
            self._backend.close()
            self._backend = None
        self._step = self._ignore
        self._flush()  # the alert
        self._hang_up()

    def _on_client_end(self) -> None:
        self._client_ended = True
        if self._backend is None or self._backend_ended:
            self._hang_up()
        else:
            self._backend.end()

    def _on_backend_end(self, *, whole: bool) -> None:
        self._backend_ended = True
        self._leave()
        if whole:
            self._session.end()
            self._flush()
        self._hang_up()

    def _hang_up(self) -> None:
        """Lets what is queued go out, then closes."""
        if self._client.closed:
            return
        self._client.end()
        if self._client_ended and not self._client.is_blocked:
            self.close()
            return
        if self._backend is None or self._backend_ended:
            self._step = self._ignore if self._backend is None else self._step
            self._client.resume()
        self._wait(self._shared.settings.linger_s, "")

    def close(self) -> None:
        self._stop_waiting()
        self._leave()
        if self._opening is not None:
            self._opening.cancel()
        if self._backend is not None:
            self._backend.close()
        self._client.close()
        # The session is the heavy part, and would otherwise wait for the cycle collector.
        self._tls = None
        self._step = self._ignore
        self._shared.connections.discard(self)
        self._shared.unproven.pop(self, None)

    def close_if_quiet(self) -> bool:
        """For a worker that stops: true where nothing is under way that closing would cut."""
        quiet_s = self._shared.loop.time() - self._moved_at
        if self._opening is None and (
            self._backend is None or (not self._asked_last and quiet_s >= QUIET_S)
        ):
            if self._tls is not None and self._backend is not None:
                self._tls.end()
                self._flush()
            self.close()
        return self._client.closed

    def reap(self) -> None:
        """Closes a connection on which nothing has moved for too long."""
        settings = self._shared.settings
        quiet_s = self._shared.loop.time() - self._moved_at
        half_closed = self._client_ended or self._backend_ended
        limit_s = settings.half_closed_timeout_s if half_closed else settings.idle_timeout_s
        if self._backend is not None and quiet_s > limit_s:
            self._count("idle")
            self.close()

    # Refusals.

    def _refuse(self, refusal: Refusal) -> None:
        self._count(refusal.kind)
        self._leave()
        route = self._shared.routes.find(self._host)
        problem = route is not None and route.is_cell
        answer = self._front.refusal(refusal, bytes(self._first), problem=problem)
        self._session.write(answer)
        self._session.end()
        self._flush()
        self._hang_up()

    def _turn_away(self, verdict: TurnedAway) -> None:
        self._count(verdict.reason)
        if verdict.answer:
            self._client.write([verdict.answer])
        if verdict.linger:
            self._hang_up()
        else:
            self.close()

    # Small things.

    @property
    def _session(self) -> TlsSession:
        assert self._tls is not None
        return self._tls

    def _flush(self) -> None:
        if self._tls is None or not self._tls.has_output:
            return
        output = self._tls.output()
        if self._client.is_blocked:
            self._control_bytes += len(output)
            if self._control_bytes > CONTROL_MAX_BYTES:
                self.close()
                return
        self._client.write([output])

    def _enter(self, route: Route) -> None:
        limit, what = route.connections_max, "this size"
        if route.instance_id is None:
            limit, what = self._shared.settings.cell_connections_max, "the cell"
        if not self._shared.slots.enter(route.place, limit):
            text = f"too many connections: {what} allows {limit}"
            raise Refusal("too_many_connections", text, 1)
        self._entered = route
        if route.instance_id is not None:
            self._traffic = self._shared.activity.opened(route.instance_id)

    def _leave(self) -> None:
        if self._entered is not None:
            self._shared.slots.leave(self._entered.place)
            if self._entered.instance_id is not None:
                self._shared.activity.closed(self._traffic)
            self._entered = None

    def _wait(self, timeout_s: float, reason: str) -> None:
        self._stop_waiting()
        self._timer = self._shared.loop.call_later(timeout_s, self._timed_out, reason)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timed_out(self, reason: str) -> None:
        if not reason and self._client.is_blocked:
            # A slow reader still takes its answer; the kernel ends it when it takes nothing.
            self._wait(self._shared.settings.linger_s, reason)
            return
        if reason:
            self._count(reason)
        self.close()

    def _count(self, reason: str) -> None:
        self._shared.refused[reason] += 1
