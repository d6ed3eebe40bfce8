"""One client's connection, from its first byte to its last.

It goes through steps, each a method that takes what arrived: the preface (PROXY header, what the
protocol says before TLS, and ClientHello, where host and address are checked before any
cryptography), the TLS handshake, the first request, what the protocol says to the backend before
it is done, the relay, and for refusals a short while of not listening.
"""

import socket
import ssl
from typing import TYPE_CHECKING

import structlog

from gateway import opening, splice
from gateway.bounds import Handshake
from gateway.listening import Entry
from gateway.preface import (
    ACME_TLS,
    ALERT_INTERNAL_ERROR,
    ALERT_UNRECOGNIZED_NAME,
    Admitted,
    Challenged,
    Preface,
    alert,
)
from gateway.protocols.interface import FirstRequest, PlainReply, Rejected, SideRequest, Step
from gateway.refusal import Refusal
from gateway.routes import Route
from gateway.stream import Stream
from gateway.tls_session import TlsError, TlsSession
from gateway.tls_steps import TlsSteps

if TYPE_CHECKING:
    from gateway.shared import Shared

log = structlog.get_logger("gateway.connection")


class Connection(TlsSteps):
    def __init__(
        self, shared: "Shared", entry: Entry, accepted: socket.socket, address: str
    ) -> None:
        super().__init__(shared, accepted)
        self._entry = entry
        self._dialogue = entry.protocol.dialogue()
        self._preface = Preface(shared.routes, entry, self._dialogue, address, shared.proxies)
        self._received = bytearray()
        self._first = b""
        self._session: int | None = None
        self._step = self._read_preface
        self._wait(shared.settings.handshake_timeout_s, "handshake_timeout")
        shared.connections.add(self)
        self._handshake = Handshake(shared, self)
        if not self._preface.is_proxied:
            self._handshake.is_from(self._preface.address)
        if self._dialogue.greeting:
            self._read_preface(b"")
        self._client.resume()

    def received(self, stream: Stream, data: memoryview) -> None:
        try:
            if stream is self._client:
                self._step(data)
            else:
                self._backend_step(data)
        except Exception as error:  # noqa: BLE001 - it must neither keep it open nor reach another
            self.broken_by(error)

    def broken_by(self, error: Exception) -> None:
        if isinstance(error, TlsError | ssl.SSLError):
            self._on_tls_error(getattr(error, "counted_as", TlsError.counted_as))
        elif isinstance(error, Refusal):
            self._refuse(error)
        else:
            log.error("gateway.connection_failed", step=self._step.__name__, exc_info=error)
            self.close()

    @property
    def evictable(self) -> bool:
        return not self._reservations.logs_in or self._dialogue.evictable

    def notice_breaks(self) -> None:
        half = self._dialogue.must_answer
        # It is not read from while it waits, so nothing else tells that nobody is there any more.
        if self._reservations.waits and self._client.has_hung_up(both_ways=not half):
            self.close()
            return
        super().notice_breaks()

    def close(self) -> None:
        self._note_abandoned()
        super().close()
        self._dialogue.closed()
        self._shared.connections.discard(self)
        self._handshake.end()

    # The steps.

    def _read_preface(self, data: bytes | memoryview) -> None:
        verdict = self._preface.take(data)
        while isinstance(verdict, PlainReply):
            self._client.write([verdict.data])
            if self._client.is_blocked:  # so little is only left by who reads nothing at all
                self.close()
                return
            verdict = self._preface.take(b"")
        if not self._preface.is_proxied:
            self._handshake.is_from(self._preface.address)
        if isinstance(verdict, Admitted):
            self._begin_tls(verdict)
        elif isinstance(verdict, Challenged):
            self._begin_challenge(verdict)
        elif isinstance(verdict, Rejected):
            self._turn_away(verdict)
        elif isinstance(verdict, SideRequest):
            self._run(verdict)

    def _begin_tls(self, admitted: Admitted) -> None:
        route = admitted.route
        if route is not None and route.client_ca_pem is not None and not opening.is_served(route):
            # It may run by now, and then asks for certificates.
            self._shared.routes.refresh()
            route = self._shared.routes.find(route.host, self._entry.protocols) or route
        context = self._agreed_context(route, admitted.alpn, self._preface.address)
        if context is None:
            self._turn_away(Rejected("no_certificate", alert(ALERT_INTERNAL_ERROR)))
            return
        self._begin_session(context, admitted)

    def _begin_challenge(self, challenged: Challenged) -> None:
        context = self._shared.certificates.challenge(challenged.host, ACME_TLS.decode())
        if context is None:
            self._turn_away(Rejected("no_challenge", alert(ALERT_UNRECOGNIZED_NAME)))
            return
        self._tls = TlsSession(context)
        self._step = self._prove
        self._step(memoryview(challenged.hello))

    def _read_first_request(self, data: memoryview) -> None:
        tls = self.session
        tls.receive(data)
        for chunk in tls.read():
            self._received += chunk
        self.flush()
        if self._client.closed:
            return
        begun = self._dialogue.begin(self._received)
        if isinstance(begun, SideRequest):
            self._run(begun)
        elif begun is not None:
            self._client.pause()
            self._received.clear()
            self._handshake.end()
            self._open(begun)
        elif tls.peer_ended:
            self.close()

    def _open(self, begun: FirstRequest) -> None:
        self._stop_waiting()
        self._first = begun.first
        if not opening.is_served(self._shared.routes.find(self._host, self._entry.protocols)):
            # Whoever was told a moment ago that it runs must not be refused for what was before.
            self._shared.routes.refresh()
        route = self._lead(begun)
        if not route.admits(self._preface.address):
            self._turn_away(Rejected("not_allowed"))
            return
        # First whether it is served: where it was not, TLS asked for no certificates.
        opening.check(route)
        opening.check_admitted(route, self._preface.address, self._asked_for)
        if (route.state == "running" or route.is_cell) and self._enter(route):
            try:
                self._splice(opening.connect(route.socket))
            except OSError:
                pass
            else:
                return
        if not self._reservations.held:
            self._reservations.wait(route, self._preface.address)
            self._note(route)
        self._opening = self._shared.loop.create_task(self._open_later())

    def _lead(self, begun: FirstRequest) -> Route:
        """Where the names lead that TLS and the protocol gave; both must lead to the same."""
        routes, protocols = self._shared.routes, self._entry.protocols
        by_name = routes.named(begun.name, protocols) if begun.name is not None else None
        if not self._host:
            if by_name is None:
                raise Refusal("unknown", "there is no such instance")
            self._host = by_name.host
            if by_name.client_ca_pem is not None:
                # TLS asked for no certificate, since it was told no name.
                text = "this instance requires a client certificate, so send its host in TLS (SNI)"
                raise Refusal("not_permitted", text)
            return by_name
        route = opening.check(routes.find(self._host, protocols))
        if begun.name is not None and by_name is None and begun.otherwise is not None:
            self._first = begun.otherwise
        elif begun.name is not None and (by_name is None or by_name.counted_as != route.counted_as):
            raise Refusal("unknown", "the TLS host and the instance in the login differ")
        return route

    async def _open_later(self) -> None:
        try:
            backend = await opening.wait_for_backend(
                self._shared,
                self._host,
                self._entry.protocols,
                self._has_place,
                self._reservations.placed,
            )
            self._opening = None
            self._splice(backend)
        except Refusal as refusal:
            self._opening = None
            self._refuse(refusal)
        except TlsError:
            self.close()

    def _splice(self, backend: socket.socket) -> None:
        self._backend = Stream(self._shared.loop, backend, self, self._shared.buffer)
        self._step, self._backend_step = self._hear_client, self._hear_backend
        instance_id = None if self._entered is None else self._entered.instance_id
        first, self._first = self._first, b""
        if self._entered is not None and self._entered.sends_proxy_header:
            first = opening.announcement(self._shared, self._preface.address) + first
        if self._dialogue.logs_in and self._reservations.logs_in:
            self._wait(self._shared.settings.login_timeout_s, "login_timeout")
        logins = opening.logins(self._shared, self._entered, self._entry.protocols)
        self._take(self._dialogue.opened(first, instance_id, logins))
        self.asked_last = True
        self._backend.resume()
        if self.session.peer_ended:
            self._on_client_end()
        elif not self._backend.is_blocked:
            self._client.resume()

    def _hear_client(self, data: memoryview) -> None:
        tls = self.session
        tls.receive(data)
        chunks = tls.read()
        self.flush()
        if chunks and self._backend is not None:
            self.asked_last = True
            self._take(self._dialogue.from_client(b"".join(chunks)))
        if tls.peer_ended and not self._client_ended:
            self._client.pause()
            self._on_client_end()

    def _hear_backend(self, data: memoryview) -> None:
        self._take(self._dialogue.from_backend(bytes(data)))
        if self._reservations.logs_in and self._timer is None and not self._client.closed:
            self._wait(self._shared.settings.login_timeout_s, "login_timeout")

    def _take(self, step: Step) -> None:
        if step.spliced:
            self._let_in(step)
            self._session = step.session
            self._step, self._backend_step = self._to_backend, self._to_client
            if self._backend is not None:
                self._client.read_by(splice.from_client(self, self._client, self._backend))
                self._backend.read_by(splice.from_backend(self, self._backend, self._client))
        if step.to_backend and self._backend is not None:
            self.moved = True
            self.traffic.bytes_in += len(step.to_backend)
            self._backend.write([step.to_backend])
        if step.suspect:
            self._report_login()
        if step.to_client:
            self._to_client(step.to_client)

    # A side request: one message, which counts as no connection.

    def _run(self, side_request: SideRequest) -> None:
        self._client.pause()
        self._handshake.end()
        routes = self._shared.routes
        route = routes.of_instance(side_request.instance_id, self._entry.protocols)
        if route is None and routes.refresh():
            # Another worker has served a session of it already.
            route = routes.of_instance(side_request.instance_id, self._entry.protocols)
        led_elsewhere = route is not None and self._host and self._counted_as() != route.counted_as
        if route is None or led_elsewhere or not route.admits(self._preface.address):
            self._end_side_request()
            return
        self._opening = self._shared.loop.create_task(self._deliver(route, side_request.message))

    async def _deliver(self, route: Route, message: bytes) -> None:
        await opening.deliver(self._shared, route.socket, message)
        self._opening = None
        self._end_side_request()

    def _end_side_request(self) -> None:
        if self._tls is not None:
            self._tls.end()
            self.flush()
        self.close()

    def _counted_as(self) -> str | None:
        route = self._shared.routes.find(self._host, self._entry.protocols)
        return None if route is None else route.counted_as

    # Refusals.

    def _on_tls_error(self, counted_as: str) -> None:
        self._count(counted_as)
        self._drop_backend()
        self.flush()  # the alert
        self._hang_up()

    def _refuse(self, refusal: Refusal) -> None:
        self._stop_waiting()
        self._count(refusal.kind)
        if refusal.kind == "changed_login":
            self._report_login()
        self._drop_backend()
        route = self._shared.routes.find(self._host, self._entry.protocols)
        problem = route is not None and route.is_cell
        self.session.write(self._dialogue.refusal(refusal, problem=problem))
        self.session.end()
        self.flush()
        self._hang_up()

    def _drop_backend(self) -> None:
        self._note_abandoned()
        self._session = None
        self._on_backend_gone()
        if self._backend is not None:
            self._backend.close()
            self._backend = None
        self._step = self._ignore

    def _turn_away(self, verdict: Rejected) -> None:
        self._count(verdict.reason)
        if verdict.answer:
            self._client.write([verdict.answer])
        if verdict.linger:
            self._step = self._ignore
            self._hang_up()
        else:
            self.close()

    def _has_place(self) -> bool:
        route = opening.check(self._shared.routes.find(self._host, self._entry.protocols))
        opening.check_admitted(route, self._preface.address, self._asked_for)
        return not self._reservations.waits or self._enter(route)

    def _enter(self, route: Route) -> bool:
        """False where it has to wait for a place among those who log in."""
        if route.instance_id is None:
            self._reservations.enter_cell(route, self._preface.address)
        elif not self._reservations.begin_login(route, self._preface.address):
            return False
        self._note(route)
        return True

    def _note(self, route: Route) -> None:
        if self._entered is None:
            self._entered = route
            if route.instance_id is not None:
                self.traffic = self._shared.activity.opened(
                    route.instance_id, self._preface.address, route.protocol
                )

    def _on_client_end(self) -> None:
        self._note_abandoned()
        super()._on_client_end()

    def _on_backend_gone(self) -> None:
        if self._session is not None and self._entered is not None:
            self._shared.abandoned.ended(self._entered.instance_id or "", self._session)
            self._session = None
        super()._on_backend_gone()

    def _note_abandoned(self) -> None:
        """The engine may work on for a client that is not there to hear its answer."""
        if self._session is not None and self._entered is not None:
            self._shared.abandoned.note(self._entered.instance_id or "", self._session)

    def _let_in(self, step: Step) -> None:
        """The engine has let the client in: from now on it counts against the size's limit."""
        if self._reservations.logs_in and self._entered is not None:
            self._reservations.end_login(self._entered, step)
            self._stop_waiting()
