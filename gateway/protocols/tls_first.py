"""What protocols have in common that begin with TLS and pass through it unchanged."""

from typing import Literal

from gateway.protocols.interface import TLS, PlainReply, Rejected, SideRequest, Step
from gateway.protocols.postgres_login import Logins

HANDSHAKE_RECORD = 0x16


class TlsFirst:
    """The part of a dialogue before TLS and behind the first request."""

    greeting = b""
    needs_alpn = False
    names_instances = False
    logs_in = False
    must_answer = False

    @property
    def evictable(self) -> bool:
        return True

    def plaintext_refusal(self, first: bytes) -> bytes | None:
        """What to say to a client that did not begin with TLS; None hangs up."""
        raise NotImplementedError

    def before_tls(
        self, received: bytearray
    ) -> Literal["tls"] | PlainReply | Rejected | SideRequest | None:
        if not received:
            return None
        if received[0] == HANDSHAKE_RECORD:
            return TLS
        answer = self.plaintext_refusal(bytes(received))
        return Rejected("plaintext", answer or b"", linger=answer is not None)

    def tls_agreed(self, protocol: str | None) -> None: ...

    def opened(
        self,
        first: bytes,
        instance_id: str | None,  # noqa: ARG002 - of the seam
        logins: Logins,  # noqa: ARG002 - of the seam
    ) -> Step:
        return Step(to_backend=first, spliced=True)

    def from_client(self, data: bytes) -> Step:
        return Step(to_backend=data, spliced=True)

    def from_backend(self, data: bytes) -> Step:
        return Step(to_client=data, spliced=True)

    def closed(self) -> None: ...
