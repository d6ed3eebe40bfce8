"""PostgreSQL: TLS after SSLRequest or at once, cancel requests that find their backend."""

import re
import struct
from dataclasses import replace
from typing import Literal

from gateway.cancels import BackendSession, Cancels
from gateway.protocols import postgres_wire as wire
from gateway.protocols.interface import TLS, FirstRequest, PlainReply, Rejected, SideRequest, Step
from gateway.protocols.postgres_login import Logins, ScramLogin
from gateway.protocols.tls_first import HANDSHAKE_RECORD
from gateway.refusal import Kind, Refusal

# The roles that cells administer an instance by, and act for its owner: nobody from outside does.
RESERVED_ROLES = frozenset({b"menagerie", b"app_0"})
# The server writes both into its log as they are, for anybody: with ends of lines, too.
CONTROLS = re.compile(rb"[\0-\x1f\x7f]")
OFF = frozenset({b"false", b"off", b"no", b"0", b"f", b"n"})
NO_REQUEST = SideRequest("", b"")
TLS_REQUIRED = wire.error("28000", "this server requires TLS (sslmode=require or stronger)")
SQLSTATES: dict[Kind, str] = {
    "paused": "57P03",
    "too_many_connections": "53300",
    "unreachable": "57P03",
    "not_woken": "57P03",
    "unknown": "08004",
    "not_permitted": "28000",
    "malformed": "08P01",
    "changed_login": "57P03",
}
HOW_TO_NAME = (
    "Send the instance's host in TLS (SNI, as libpq 14 and later do), or the "
    "connection option options=endpoint=<first label of the host>."
)


class Postgres:
    alpn = ("postgresql",)

    def __init__(self, cancels: Cancels) -> None:
        self._cancels = cancels

    def dialogue(self) -> "PostgresDialogue":
        return PostgresDialogue(self._cancels)


class PostgresDialogue:
    greeting = b""
    names_instances = True
    logs_in = True
    must_answer = True
    evictable = True

    def __init__(self, cancels: Cancels) -> None:
        self._cancels = cancels
        # With TLS at once, ALPN is what keeps other protocols' bytes from being taken for ours.
        self.needs_alpn = True
        self._asked_for_gss = False
        self._instance_id = ""
        self._messages = wire.Messages()
        self._row: int | None = None
        self._user = self._early = b""
        self._login: ScramLogin | None = None
        self._is_owners_role = False

    def before_tls(
        self, received: bytearray
    ) -> Literal["tls"] | PlainReply | Rejected | SideRequest | None:
        if not self.needs_alpn or received[:1] == bytes((HANDSHAKE_RECORD,)):
            return TLS
        try:
            size = wire.packet_size(received)
            return None if size is None else self._answer(received, size)
        except wire.PostgresWireError:
            return Rejected("plaintext")

    def _answer(self, received: bytearray, size: int) -> PlainReply | Rejected | SideRequest | None:
        if received.startswith(wire.SSL_REQUEST):
            del received[:size]
            self.needs_alpn = False
            return PlainReply(b"S")
        if received.startswith(wire.GSSENC_REQUEST) and not self._asked_for_gss:
            del received[:size]
            self._asked_for_gss = True
            return PlainReply(b"N")
        if struct.unpack_from("!I", received, 4)[0] != wire.CANCEL_CODE:
            return Rejected("plaintext", TLS_REQUIRED, linger=True)
        # libpq before 17 cancels in plaintext. The key says nothing of use to who overhears
        # it but this: it can cancel what that session runs.
        return self._side_request(bytes(received[:size])) if len(received) >= size else None

    def tls_agreed(self, protocol: str | None) -> None: ...

    def begin(self, received: bytearray) -> FirstRequest | SideRequest | None:
        try:
            size = wire.packet_size(received)
            if size is None or len(received) < size:
                return None
            first = wire.parse(bytes(received[:size]))
        except wire.PostgresWireError as error:
            raise Refusal("malformed", str(error)) from error
        if isinstance(first, wire.Cancel):
            return self._side_request(bytes(received[:size]))
        if any(map(CONTROLS.search, first.values(b"user") + first.values(b"database"))):
            text = "invalid startup packet: control characters in the user or the database"
            raise Refusal("malformed", text)
        for role in RESERVED_ROLES.intersection(first.values(b"user")):
            raise Refusal("not_permitted", f'role "{role.decode()}" is reserved')
        if not OFF.issuperset(first.values(b"replication")):
            raise Refusal("not_permitted", "replication connections are not supported")
        startup, name = wire.take_endpoint(first)
        # Where one is named twice, the server takes the last.
        self._user = (first.values(b"user") or [b""])[-1]
        self._early = bytes(received[size:])
        return FirstRequest(wire.build(startup), name)

    def opened(self, first: bytes, instance_id: str | None, logins: Logins) -> Step:
        self._instance_id = instance_id or ""
        # Roles that owners made are theirs to change.
        if (proof := logins.get(self._user)) is not None:
            self._login = ScramLogin(self._user, proof)
        self._is_owners_role = bool(logins) and proof is None
        early, self._early = self._early, b""
        return Step(to_backend=first + self.from_client(early).to_backend)

    def from_client(self, data: bytes) -> Step:
        if self._login is None:
            return Step(to_backend=data)
        self._login.from_client(data)
        return Step(to_backend=self._login.answers())

    def from_backend(self, data: bytes) -> Step:
        try:
            if (login := self._login) is None:
                return self._pass_on(data)
            passing = self._pass_on(login.from_backend(data))
        except wire.PostgresWireError as error:
            raise Refusal("unreachable", "the instance does not speak this protocol") from error
        if login.proved:
            self._login = None
        return replace(passing, to_backend=login.answers(), suspect=login.failed)

    def _pass_on(self, data: bytes) -> Step:
        passing, end = self._messages.take(data)
        if end is None:
            return Step(to_client=passing)
        letting_in = passing + self._with_our_key(end)
        return Step(to_client=letting_in, spliced=True, of_owners_role=self._is_owners_role)

    def _with_our_key(self, end: bytes) -> bytes:
        kind, size, pid = struct.unpack_from("!BII", end.ljust(9, b"\0"))
        if kind != wire.BACKEND_KEY_DATA:
            return end
        session = BackendSession(self._instance_id, pid, end[9 : 1 + size])
        secret, self._row = self._cancels.add(session)
        return wire.key_data(pid, secret) + end[1 + size :]

    def _side_request(self, packet: bytes) -> SideRequest:
        """A wrong key is passed over in silence, as PostgreSQL does."""
        cancel = wire.parse(packet)
        if not isinstance(cancel, wire.Cancel):
            return NO_REQUEST
        session = self._cancels.find(cancel.pid, cancel.secret)
        if session is None:
            return NO_REQUEST
        message = wire.cancel_request(wire.Cancel(session.pid, session.secret))
        return SideRequest(session.instance_id, message)

    def refusal(self, refusal: Refusal, *, problem: bool) -> bytes:  # noqa: ARG002 - of the seam
        hint = HOW_TO_NAME if refusal.kind == "unknown" else None
        return wire.error(SQLSTATES[refusal.kind], refusal.text, hint)

    def closed(self) -> None:
        if self._row is not None:
            self._cancels.remove(self._row)
            self._row = None
