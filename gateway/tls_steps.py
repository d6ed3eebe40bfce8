"""The steps of a connection that are TLS's handshake."""

import socket
from typing import TYPE_CHECKING

from gateway.relay import Relay
from gateway.tls_session import TlsError

if TYPE_CHECKING:
    from gateway.shared import Shared


class TlsSteps(Relay):
    """`_read_first_request` is the step after them."""

    def __init__(self, shared: "Shared", accepted: socket.socket) -> None:
        super().__init__(shared, accepted)
        self._host = ""
        self._asked_for: str | None = None  # the authorities whose certificates TLS asked for

    def broken_by(self, error: Exception) -> None:
        raise NotImplementedError

    def _read_first_request(self, data: memoryview) -> None:
        raise NotImplementedError

    def _counted_as(self) -> str | None:
        raise NotImplementedError

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
            done = await certificates.handshake(self._counted_as() or self._host, self.session)
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
