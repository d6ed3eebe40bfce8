"""The steps of a connection that are TLS's handshake."""

import socket
import ssl
from typing import TYPE_CHECKING

from gateway import opening
from gateway.certificates import asking_context
from gateway.preface import Admitted
from gateway.protocols.interface import Dialogue
from gateway.relay import Relay
from gateway.routes import Route
from gateway.tls_session import TlsError, TlsSession

if TYPE_CHECKING:
    from gateway.shared import Shared


class TlsSteps(Relay):
    """`_read_first_request` is the step after them."""

    _dialogue: Dialogue

    def __init__(self, shared: "Shared", accepted: socket.socket) -> None:
        super().__init__(shared, accepted)
        self._host = ""
        self._asked_for: str | None = None  # the authorities whose certificates TLS asked for
        # Whose turn it takes to verify them: the instance's tenant, and the client's address.
        self._turn_of = ("", "")

    def broken_by(self, error: Exception) -> None:
        raise NotImplementedError

    def _read_first_request(self, data: memoryview) -> None:
        raise NotImplementedError

    def _agreed_context(
        self, route: Route | None, alpn: tuple[str, ...], address: str
    ) -> ssl.SSLContext | None:
        certificates = self._shared.certificates
        if route is None:
            return certificates.context(alpn)
        self._host = route.host
        if route.client_ca_pem is not None and opening.is_served(route):
            # Whoever asks for what is not served gets no further than its refusal.
            self._asked_for, self._turn_of = route.client_ca_pem, (route.tenant, address)
        return certificates.context(alpn, route.host, self._asked_for)

    def _begin_session(self, context: ssl.SSLContext, admitted: Admitted) -> None:
        remembers = self._asked_for is not None and not admitted.offers_tls_1_3
        self._tls = TlsSession(context, asking_context() if remembers else None)
        self._hear_hello(admitted.hello)

    def _hear_hello(self, hello: bytes) -> None:
        """With it may have come, in TLS 1.2, the client's certificates."""
        self._step = self._shake_hands
        if self._asked_for is None:
            self.session.receive(hello)
            self._shaken(b"", done=self.session.handshake())
        else:
            self._shake_hands(memoryview(hello))

    def _shake_hands(self, data: memoryview) -> None:
        further = self.session.receive_handshake(data)
        if self._asked_for is None:
            self._shaken(further, done=self.session.handshake())
        else:
            self._client.pause()
            self._opening = self._shared.loop.create_task(self._verify(further))

    async def _verify(self, further: bytes) -> None:
        try:
            certificates = self._shared.client_certificates
            done = await certificates.handshake(*self._turn_of, self.session)
            self._opening = None
            self._client.resume()
            self._shaken(further, done=done)
        except Exception as error:  # noqa: BLE001 - it must neither keep it open nor reach another
            self._opening = None
            self.broken_by(error)

    def _shaken(self, further: bytes, *, done: bool) -> None:
        self.flush()
        if self._client.closed:
            return
        if done:
            self._wait(self._shared.settings.first_request_timeout_s, "first_request_timeout")
            self._dialogue.tls_agreed(self.session.protocol)
            self._step = self._read_first_request
            self._step(memoryview(further))
        elif further:
            raise TlsError("the handshake is too long")

    def _prove(self, data: memoryview) -> None:
        """The handshake is the answer to an ACME challenge; nothing is heard after it."""
        tls = self.session
        tls.receive(data)
        done = tls.handshake()
        self.flush()
        if done and not self._client.closed:
            self._stop_waiting()
            self._step = self._ignore
            tls.end()
            self.flush()
            self._hang_up()
