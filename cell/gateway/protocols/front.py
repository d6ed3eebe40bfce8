"""What the gateway asks of a protocol."""

from typing import Protocol

from cell.gateway.refusal import Refusal


class Front(Protocol):
    """Bytes only: a front neither waits nor knows sockets."""

    @property
    def alpn(self) -> tuple[str, ...]: ...

    def plaintext_refusal(self, first: bytes) -> bytes | None:
        """What to say to a client that did not begin with TLS; None hangs up."""
        ...

    def has_begun(self, first: bytes | bytearray) -> bool:
        """Whether the client has asked for something, so that it is no mere probe."""
        ...

    def refusal(self, refusal: Refusal, first: bytes, *, problem: bool) -> bytes:
        """`problem` asks for the shape of the cell's own API instead of the engines'."""
        ...
