"""Bytes between a client's TLS session and a backend, both ways, and every way that can end."""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.activity import ConnectionTraffic
from gateway.bounds import Reservations
from gateway.routes import Route
from gateway.stream import Stream
from gateway.tls_session import TlsSession

if TYPE_CHECKING:
    from gateway.shared import Shared

# What TLS itself may answer (key updates) to a client that reads nothing.
CONTROL_MAX_BYTES = 65_536
# Between the end of an answer and hanging up on a keep-alive connection, when the worker stops.
QUIET_S = 0.25


class Relay:
    """`_step` and `_backend_step` take what arrives from either side.

    Nothing is kept but what one side does not take, and then the other side is not read from.
    """

    def __init__(self, shared: "Shared", accepted: socket.socket) -> None:
        self._shared = shared
        self._client = Stream(shared.loop, accepted, self, shared.buffer)
        self._backend: Stream | None = None
        self._tls: TlsSession | None = None
        self._step: Callable[[memoryview], None] = self._ignore
        self._backend_step: Callable[[memoryview], None] = self._to_client
        self._opening: asyncio.Task[None] | None = None
        self._entered: Route | None = None
        self._reservations = Reservations(shared, self)
        self.traffic = ConnectionTraffic()
        self._client_ended = False
        self._backend_ended = False
        self.asked_last = False
        self._control_bytes = 0
        self.moved = True  # since it was last looked at
        self._moved_at = shared.loop.time()
        self._timer: asyncio.TimerHandle | None = None

    # What the streams report.

    def received(self, stream: Stream, data: memoryview) -> None:
        if stream is self._client:
            self._step(data)
        else:
            self._backend_step(data)

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
        self.moved = True
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

    # The relay.

    def _to_backend(self, data: memoryview) -> None:
        tls, backend = self.session, self._backend
        if backend is None:
            return
        tls.receive(data)
        chunks = tls.read()
        if tls.has_output:
            self.flush()
        if chunks:
            self.moved = True
            self.asked_last = True
            self.traffic.bytes_in += sum(map(len, chunks))
            backend.write(chunks)
        if tls.peer_ended and not self._client_ended:
            self._client.pause()
            self._on_client_end()

    def _to_client(self, data: bytes | memoryview) -> None:
        tls = self.session
        self.moved = True
        self.asked_last = False
        self.traffic.bytes_out += len(data)
        tls.write(data)
        self._client.write([tls.output()])

    def _ignore(self, data: memoryview) -> None:
        """Reads on, so that closing does not reset the connection before the answer is read."""

    # Endings.

    def _on_client_end(self) -> None:
        self._client_ended = True
        if self._backend is None or self._backend_ended:
            self._hang_up()
        else:
            self._backend.end()

    def _on_backend_end(self, *, whole: bool) -> None:
        self._backend_ended = True
        self._on_backend_gone()
        if whole:
            self.session.end()
            self.flush()
        self._hang_up()

    def _on_backend_gone(self) -> None:
        """Others may have its place, whether or not the client reads what is left for it."""
        route = self._entered
        self._leave()
        if route is not None and self._client.is_blocked:
            self._shared.draining.join(route.counted_as, self)

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
        self._shared.draining.leave(self)
        if self._opening is not None:
            self._opening.cancel()
        if self._backend is not None:
            self._backend.close()
        self._client.close()
        # The session is the heavy part, and would otherwise wait for the cycle collector.
        self._tls = None
        self._step = self._ignore

    def cut(self) -> None:
        """Closes; what the client has not taken by now need not be kept by the system either."""
        self._client.close(reset=self._client.is_blocked)
        self.close()

    def close_if_quiet(self) -> bool:
        """For a worker that stops: true where nothing is under way that closing would cut."""
        quiet_s = self._quiet_s()
        if self._opening is None and (
            self._backend is None or (not self.asked_last and quiet_s >= QUIET_S)
        ):
            if self._tls is not None and self._backend is not None:
                self._tls.end()
                self.flush()
            self.close()
        return self._client.closed

    def notice_breaks(self) -> None:
        """To be called now and then: asking after every read would cost more than most reads."""
        self._client.notice_break()
        if self._backend is not None:
            self._backend.notice_break()
            not_read = self._client.is_blocked and self._entered is not None
            if not_read and self._backend.has_hung_up():
                self._on_backend_gone()

    def reap(self) -> None:
        """Closes a connection on which nothing has moved for too long."""
        settings = self._shared.settings
        quiet_s = self._quiet_s()
        half_closed = self._client_ended or self._backend_ended
        limit_s = settings.half_closed_timeout_s if half_closed else settings.idle_timeout_s
        if self._backend is not None and quiet_s > limit_s:
            self._count("idle")
            self.close()

    # Small things.

    @property
    def evictable(self) -> bool:
        """Whether it may be hung up on for others, as it has not logged in, or is the cell's."""
        return True

    def take_turn(self) -> bool:
        return self._reservations.take_turn()

    def broken_by(self, error: Exception) -> None:
        """What went wrong while bytes were passed on ends this connection and no other."""
        raise NotImplementedError

    def _quiet_s(self) -> float:
        now = self._shared.loop.time()
        if self.moved:
            self.moved, self._moved_at = False, now
        return now - self._moved_at

    @property
    def session(self) -> TlsSession:
        assert self._tls is not None
        return self._tls

    def flush(self) -> None:
        if self._tls is None or not self._tls.has_output:
            return
        output = self._tls.output()
        if self._client.is_blocked:
            self._control_bytes += len(output)
            if self._control_bytes > CONTROL_MAX_BYTES:
                self.close()
                return
        self._client.write([output])

    def _report_login(self) -> None:
        """The engine does not have the login that the cell gave it, or may not."""
        if self._entered is not None and self._entered.instance_id is not None:
            self._shared.login_reports.note(
                self._entered.instance_id, self._shared.routes.cell_socket
            )

    def _leave(self) -> None:
        self._reservations.leave()
        if self._entered is not None:
            if self._entered.instance_id is not None:
                self._shared.activity.closed(self.traffic)
            self._entered = None

    def _wait(self, timeout_s: float, reason: str) -> None:
        self._stop_waiting()
        self._timer = self._shared.loop.call_later(timeout_s, self._timed_out, reason)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timed_out(self, reason: str) -> None:
        if not reason and self._backend is not None and self._client.is_blocked:
            # A slow reader still takes its answer; the kernel ends it when it takes nothing. Who
            # was refused, or broke TLS, is not waited for.
            self._wait(self._shared.settings.linger_s, reason)
            return
        if reason:
            self._count(reason)
        self.cut()

    def _count(self, reason: str) -> None:
        self._shared.refused[reason] += 1
