"""MySQL and MariaDB: the gateway greets, ends TLS, and lets the server itself check the login.

The greeting is said before the host is known, so its challenge is the gateway's own. The login goes
to the server with the name of a plugin that no account has: it answers by asking the client anew,
with its own challenge and the account's own plugin. From there on packets pass to and fro, with
sequence ids that differ by the one packet the server does not see (the request for TLS), until the
server says OK; then bytes pass unseen.
"""

import secrets
from dataclasses import replace
from typing import Final, Literal

from gateway.protocols import mysql_wire as wire
from gateway.protocols.interface import TLS, FirstRequest, PlainReply, Rejected, SideRequest, Step
from gateway.protocols.mysql_wire import (
    Greeting,
    HandshakeResponse,
    MySqlWireError,
    Packet,
    ServerError,
)
from gateway.protocols.postgres_login import Logins
from gateway.refusal import Kind, Refusal

# What servers of both families can do, TLS included. Nothing a server lacks may be promised: the
# client would expect it from the first answer on.
COMMON_CAPABILITIES: Final = 0x81FF_FFFE
# MariaDB's own: progress, bulk statements, extended and cached metadata.
MARIADB_CAPABILITIES: Final = 0x1D << wire.EXTENDED_SHIFT
# What shapes the answers of a server, so that it cannot be left out of an agreement in silence.
SHAPING_CAPABILITIES: Final = (
    wire.COMPRESS | wire.SESSION_TRACK | wire.DEPRECATE_EOF | MARIADB_CAPABILITIES
)
DEFAULT_PLUGIN: Final = b"mysql_native_password"
NO_PLUGIN: Final = b"menagerie_ask_again"
# So begin the names of the cell's own accounts. They never come from outside.
RESERVED_USERNAMES: Final = b"menagerie"
# A server takes the quotes off that are around a name.
AROUND_A_NAME: Final = b"' \t\n\r\v\f"

NO_PLUGIN_AUTH = ServerError(
    1251,
    "08004",
    "Client does not support authentication protocol requested by server;"
    " consider upgrading MySQL client",
)
UNNAMED = (
    "No such instance: send the instance's host in TLS (SNI),"
    " or log in as <user>@<first label of the host>"
)
# Commands that were sent before the login had ended are held up to this.
HELD_MAX_BYTES: Final = 2 * wire.LOGIN_PACKET_MAX_BYTES
FIRST_OF_A_COMMAND: Final = 0
_OK, _ERROR, _AUTH_SWITCH = (bytes((kind,)) for kind in (wire.OK, wire.ERROR, wire.AUTH_SWITCH))

INSECURE_TRANSPORT = ServerError(
    3159,
    "HY000",
    "Connections using insecure transport are prohibited: this port accepts TLS only",
)
CODES: Final[dict[Kind, tuple[int, str]]] = {
    "too_many_connections": (1040, "08004"),
    "unknown": (1045, "28000"),
    "not_permitted": (1045, "28000"),
    "malformed": (1043, "08S01"),
}
# "Server shutdown in progress": what clients take for a server that is away for a while.
AWAY: Final = (1053, "08S01")


class MySql:
    alpn = ()

    def __init__(self, version: str) -> None:
        """`version` is what clients are told; it decides which of the two families they see."""
        self._version = version
        mariadb = "MariaDB" in version
        self._capabilities = COMMON_CAPABILITIES | (
            MARIADB_CAPABILITIES if mariadb else wire.LONG_PASSWORD
        )

    def dialogue(self) -> "MySqlDialogue":
        scramble = bytes(33 + secrets.randbelow(94) for _ in range(wire.SCRAMBLE_BYTES))
        # No server has a connection 0, so that a client which kills "its own" query by the number
        # in the greeting does not meet another's.
        return MySqlDialogue(Greeting(self._version, self._capabilities, scramble, DEFAULT_PLUGIN))


class MySqlDialogue:
    needs_alpn = False
    names_instances = True
    logs_in = True
    must_answer = True
    evictable = True

    def __init__(self, greeting: Greeting) -> None:
        self._greeting = greeting
        self._login: HandshakeResponse | None = None
        self._fault: ServerError | None = None
        self._backend_greeted = False
        self._session = 0
        self._from_client = bytearray()
        self._from_backend = bytearray()
        # Of the last packet the client sent, and by how much its ids are ahead of the server's.
        self._sequence = 0
        self._ahead = 0
        # The last question that asked for a plugin, and what the client has answered since.
        self._asked = b""
        self._answered: list[bytes] = []

    @property
    def greeting(self) -> bytes:
        return wire.frame(wire.build_greeting(self._greeting), 0)

    def before_tls(
        self, received: bytearray
    ) -> Literal["tls"] | PlainReply | Rejected | SideRequest | None:
        if len(received) < wire.HEADER_BYTES:
            return None
        # The header tells a request for TLS from a login, which need not come whole to be refused.
        if int.from_bytes(received[:3], "little") == wire.SSL_REQUEST_BYTES:
            packet = wire.take_packet(received)
            if packet is None:
                return None
            if wire.wants_tls(packet.payload):
                return TLS
        return Rejected("plaintext", _framed(INSECURE_TRANSPORT, 2), linger=True)

    def tls_agreed(self, protocol: str | None) -> None: ...

    def begin(self, received: bytearray) -> FirstRequest | None:
        try:
            packet = wire.take_packet(received)
            if packet is None:
                return None
            self._sequence = packet.sequence
            self._login = login = wire.parse_response(packet.payload)
        except MySqlWireError as error:
            raise Refusal("malformed", f"Bad handshake: {error}") from error
        self._ahead = self._sequence - 1
        self._from_client += received
        if not login.capabilities & wire.PLUGIN_AUTH:
            self._fault = NO_PLUGIN_AUTH
            raise Refusal("malformed", self._fault.message)
        username, _, name = login.username.rpartition(b"@")
        names = (each.strip(AROUND_A_NAME).lower() for each in (username, login.username))
        if any(each.startswith(RESERVED_USERNAMES) for each in names):
            text = f"Access denied for user '{RESERVED_USERNAMES.decode()}'"
            raise Refusal("not_permitted", text)
        if not username:
            return FirstRequest(login.username)
        return FirstRequest(username, name.decode("ascii", "replace"), otherwise=login.username)

    def opened(
        self,
        first: bytes,
        instance_id: str | None,  # noqa: ARG002 - of the seam
        logins: Logins,  # noqa: ARG002 - of the seam
    ) -> Step:
        self._login = replace(self._known_login, username=first)
        return Step()

    def from_client(self, data: bytes) -> Step:
        self._from_client += data
        if len(self._from_client) > HELD_MAX_BYTES:
            raise Refusal("malformed", "Bad handshake: commands before its end")
        return Step(to_backend=self._answers())

    def from_backend(self, data: bytes) -> Step:
        self._from_backend += data
        said, answered = b"", b""
        try:
            while (packet := wire.take_packet(self._from_backend)) is not None:
                kind = packet.payload[:1]
                if self._backend_greeted and self._is_repeated(packet):
                    answered += self._repeat_answer(packet)
                elif self._backend_greeted:
                    said += self._for_client(packet.payload, packet.sequence + self._ahead)
                    if kind == _OK:
                        # Where it is refused after all, that comes in this packet's place.
                        self._sequence = (self._sequence - 1) & 0xFF
                        return self._spliced(said)
                elif kind == _ERROR:
                    error = wire.build_error(wire.parse_error(packet.payload))
                    said += self._for_client(error, self._sequence + 1)
                else:
                    answered += self._forwarded_login(packet)
                    self._backend_greeted = True
        except MySqlWireError as error:
            raise Refusal("unreachable", "the server does not speak this protocol") from error
        return Step(to_client=said, to_backend=answered + self._answers())

    def refusal(self, refusal: Refusal, *, problem: bool) -> bytes:  # noqa: ARG002 - engines only
        code, sqlstate = CODES.get(refusal.kind, AWAY)
        text = UNNAMED if refusal.kind == "unknown" else refusal.text
        error = ServerError(code, sqlstate, text[:1].upper() + text[1:])
        return _framed(self._fault or error, self._sequence + 1)

    def closed(self) -> None: ...

    def _forwarded_login(self, packet: Packet) -> bytes:
        greeting = wire.parse_greeting(packet.payload)
        server, self._session = greeting.capabilities, greeting.thread_id
        login, promised = self._known_login, self._greeting.capabilities
        if login.capabilities & promised & SHAPING_CAPABILITIES & ~server:
            raise MySqlWireError("the server lacks a capability that the gateway announced")
        # LONG_PASSWORD only says which family a client is of.
        bits = login.capabilities & (promised & server & ~wire.SSL | wire.LONG_PASSWORD)
        if login.database is None:
            bits &= ~wire.CONNECT_WITH_DB
        if login.attributes is None:
            bits &= ~wire.CONNECT_ATTRS
        # The client's answer to the gateway's own challenge is of no use, but tells the server
        # whether there is a password.
        forwarded = replace(login, capabilities=bits, plugin=NO_PLUGIN, tail=b"")
        return wire.frame(wire.build_response(forwarded), packet.sequence + 1)

    # A server asks once for each password that an account may have. Few clients answer twice, so
    # the same question gets the same answer without them.

    def _is_repeated(self, packet: Packet) -> bool:
        if packet.payload[:1] != _AUTH_SWITCH:
            return False
        repeated = packet.payload == self._asked and len(self._answered) == 1
        if not repeated:
            self._asked, self._answered = packet.payload, []
        return repeated

    def _repeat_answer(self, packet: Packet) -> bytes:
        self._ahead -= 2  # two packets that the client does not see
        return wire.frame(self._answered[0], packet.sequence + 1)

    def _for_client(self, payload: bytes, sequence: int) -> bytes:
        self._sequence = sequence & 0xFF
        return wire.frame(payload, sequence)

    def _answers(self) -> bytes:
        """What the client has said to the server's questions; commands wait for the OK."""
        received, answers = self._from_client, b""
        if not self._backend_greeted:
            return answers
        try:
            while len(received) >= wire.HEADER_BYTES and received[3] != FIRST_OF_A_COMMAND:
                packet = wire.take_packet(received)
                if packet is None:
                    break
                self._sequence = packet.sequence
                self._answered.append(packet.payload)
                answers += wire.frame(packet.payload, packet.sequence - self._ahead)
        except MySqlWireError as error:
            raise Refusal("malformed", f"Bad handshake: {error}") from error
        return answers

    def _spliced(self, said: bytes) -> Step:
        return Step(
            to_client=said + bytes(self._from_backend),
            to_backend=bytes(self._from_client),
            spliced=True,
            session=self._session,
        )

    @property
    def _known_login(self) -> HandshakeResponse:
        assert self._login is not None
        return self._login


def _framed(error: ServerError, sequence: int) -> bytes:
    return wire.frame(wire.build_error(error), sequence)
