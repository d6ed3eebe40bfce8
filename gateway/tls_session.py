"""One TLS session as bytes in and bytes out; it knows no sockets and never waits."""

import contextlib
import ssl

from gateway import client_chains

CHUNK_BYTES = 16_384
# Of a client, after its hello, and with it where certificates are asked for: a chain of three takes
# some 6 KB.
HANDSHAKE_MAX_BYTES = 16_384


class TlsError(Exception):
    """The session is over; `output` may hold an alert that the peer should get."""

    counted_as = "tls_failed"


class CostlyCertificatesError(TlsError):
    counted_as = "costly_certificates"


class TlsSession:
    """Where `memory` is given it is remembered there, and not in its context.

    Python cannot keep OpenSSL from remembering sessions of TLS 1.2, so that they can be resumed.
    """

    def __init__(self, context: ssl.SSLContext, memory: ssl.SSLContext | None = None) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        begun_in = memory or context
        self._object = begun_in.wrap_bio(self.incoming, self.outgoing, server_side=True)
        if memory is not None:
            self._object.context = context
        self._asks = context.verify_mode is ssl.CERT_REQUIRED
        self.decrypt, self.encrypt = self._object.read, self._object.write
        self.peer_ended = False
        self._ended = False
        self._handshake_bytes = 0

    @property
    def version(self) -> str | None:
        return self._object.version()

    @property
    def protocol(self) -> str | None:
        """What was agreed on by ALPN."""
        return self._object.selected_alpn_protocol()

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        self.incoming.write(data)

    def receive_handshake(self, data: memoryview) -> bytes:
        """Answers what is more than a handshake may take: it has to belong to what follows it."""
        taken = data[: HANDSHAKE_MAX_BYTES - self._handshake_bytes]
        self._handshake_bytes += len(taken)
        self.incoming.write(taken)
        return bytes(data[len(taken) :])

    def handshake(self) -> bool:
        """True when it is complete."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            refused = client_chains.refusal(self._object)
            if refused:
                raise CostlyCertificatesError(refused) from error
            raise TlsError(error.reason or "handshake failed") from error
        if self._asks:
            if self._object.session_reused:
                raise TlsError("a resumed session shows no certificate")
            client_chains.look_no_more(self._object)
        return True

    def read(self) -> list[bytes]:
        """Every whole record that has arrived, decrypted."""
        chunks: list[bytes] = []
        read, incoming = self._object.read, self.incoming
        try:
            while incoming.pending or self._object.pending():
                chunk = read(CHUNK_BYTES)
                if not chunk:
                    self.peer_ended = True
                    break
                chunks.append(chunk)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.peer_ended = True
        except ssl.SSLError as error:
            raise TlsError(error.reason or "broken record") from error
        return chunks

    def write(self, data: bytes | memoryview) -> None:
        if self._ended or not data:
            return
        try:
            self._object.write(data)
        except ssl.SSLError as error:
            raise TlsError(error.reason or "cannot write") from error

    def end(self) -> None:
        """Say close_notify: nothing more will be written. Reading goes on."""
        if not self._ended:
            self._ended = True
            # It fails where the peer has not said its own yet, or is beyond saying anything.
            with contextlib.suppress(ssl.SSLError):
                self._object.unwrap()

    @property
    def has_output(self) -> bool:
        return self.outgoing.pending > 0

    def output(self) -> bytes:
        return self.outgoing.read()
