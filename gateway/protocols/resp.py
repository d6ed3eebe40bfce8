"""RESP, which Redis and Valkey speak: TLS first, then commands."""

import re

from gateway.protocols.interface import FirstRequest, Step
from gateway.protocols.postgres_login import Logins
from gateway.protocols.tls_first import TlsFirst
from gateway.refusal import Refusal

TLS_REQUIRED = b"-ERR this port accepts TLS only: use rediss://\r\n"


class Resp:
    alpn = ()

    def dialogue(self) -> "RespDialogue":
        return RespDialogue()


# What is answered before a login: errors, and `+RESET`. Anything else is said to who is let in.
BEFORE_LOGIN = re.compile(rb"(?:(?:-[^\r\n]*|\+RESET)\r\n)*")
# With these Redis 7.0 refuses a HELLO whose AUTH has let the client in by then.
LET_IN = re.compile(rb"(?m)^-ERR ((?:Client names cannot|Syntax error in HELLO)[^\r\n]*)\r\n")
LINE_MAX_BYTES = 4_096
# To AUTH as to QUIT, which needs no login.
OK = b"+OK\r\n"


class RespDialogue(TlsFirst):
    logs_in = True
    must_answer = False

    def __init__(self) -> None:
        self._line = b""

    def opened(
        self,
        first: bytes,
        instance_id: str | None,  # noqa: ARG002 - of the seam
        logins: Logins,  # noqa: ARG002 - of the seam
    ) -> Step:
        return Step(to_backend=first)

    def from_client(self, data: bytes) -> Step:
        return Step(to_backend=data)

    def from_backend(self, data: bytes) -> Step:
        said = self._line + data
        end = BEFORE_LOGIN.match(said).end()  # type: ignore[union-attr]  # matches nothing
        # Whatever is answered before it, as `+RESET` to what was sent with it.
        if found := LET_IN.search(said, 0, end):
            # A session that counts as a login only would be none of its size's connections.
            raise Refusal("malformed", found[1].decode(errors="replace"))
        rest = said[end:]
        unclear = rest[:1] == b"-" or b"+RESET\r\n".startswith(rest)
        self._line = rest[:LINE_MAX_BYTES] if unclear else b""
        return Step(to_client=data, spliced=not unclear, unsure=rest.startswith(OK))

    def plaintext_refusal(self, first: bytes) -> bytes | None:  # noqa: ARG002 - said to anything
        return TLS_REQUIRED

    def begin(self, received: bytearray) -> FirstRequest | None:
        return FirstRequest(bytes(received)) if received else None

    def refusal(self, refusal: Refusal, *, problem: bool) -> bytes:  # noqa: ARG002 - engines only
        if refusal.kind == "too_many_connections":
            # Word for word what Redis says: clients know it as a class of its own.
            return b"-ERR max number of clients reached\r\n"
        # LOADING is what clients try again by themselves, a moment later.
        code = "LOADING" if refusal.kind in {"not_woken", "unreachable"} else "ERR"
        text = " ".join(refusal.text.split())
        return f"-{code} {text}\r\n".encode()
