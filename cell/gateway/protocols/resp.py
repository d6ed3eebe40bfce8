"""RESP, which Redis and Valkey speak: TLS first, then commands."""

from cell.gateway.protocols.front import Begun
from cell.gateway.protocols.tls_first import TlsFirst
from cell.gateway.refusal import Refusal

TLS_REQUIRED = b"-ERR this port speaks TLS only: use rediss://\r\n"


class Resp:
    alpn = ()

    def talk(self) -> "RespTalk":
        return RespTalk()


class RespTalk(TlsFirst):
    def plaintext_refusal(self, first: bytes) -> bytes | None:  # noqa: ARG002 - said to anything
        return TLS_REQUIRED

    def begin(self, received: bytearray) -> Begun | None:
        return Begun(bytes(received)) if received else None

    def refusal(self, refusal: Refusal, *, problem: bool) -> bytes:  # noqa: ARG002 - engines only
        if refusal.kind == "too_many_connections":
            # Word for word what Redis says: clients know it as a class of its own.
            return b"-ERR max number of clients reached\r\n"
        # LOADING is what clients try again by themselves, a moment later.
        code = "LOADING" if refusal.kind in {"not_woken", "unreachable"} else "ERR"
        text = " ".join(refusal.text.split())
        return f"-{code} {text}\r\n".encode()
