"""Logs in to a source with its password, which is not sent in clear unless TLS is verified.

The cell does it itself: the tool that dumps is given a connection that has logged in, and no
password.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from cell.migrations.errors import MigrationError, SourceUnreachableError
from cell.migrations.report import bounded
from cell.migrations.source_uri import SourceUri
from gateway.protocols import mysql_wire as wire
from gateway.protocols.mysql_wire import Greeting, HandshakeResponse, Packet

# Nothing that changes what is understood of answers, and no files of the client's.
CAPABILITIES = (
    wire.LONG_PASSWORD
    | wire.LONG_FLAG
    | wire.PROTOCOL_41
    | wire.TRANSACTIONS
    | wire.SECURE_CONNECTION
    | wire.MULTI_RESULTS
    | wire.PLUGIN_AUTH
)
PACKET_BYTES_MAX = 1 << 30
NATIVE, SHA2 = "mysql_native_password", "caching_sha2_password"
IN_CLEAR = ("mysql_clear_password", "sha256_password")
# Each of a user's passwords may be asked for.
QUESTIONS_MAX = 10
MORE, FAST_OK, ALL_OF_IT = 0x01, b"\x03", b"\x04"
NO_TLS = "the source does not offer TLS; have it enabled there, or say that TLS is off"
NO_MYSQL = "what answers at the source is no MySQL or MariaDB"
PLUGINS = f"name a user of {NATIVE} or {SHA2}"

Send = Callable[[bytes, int], None]
Receive = Callable[[], Awaitable[Packet]]


async def only_packet(reader: asyncio.StreamReader) -> Packet:
    """What a server says first. More would have come from somebody in between.

    It is taken piece by piece, so that nothing that arrived with it is read after TLS was made.
    """
    heard = bytearray()
    try:
        while (packet := wire.take_packet(heard)) is None:
            if not (block := await reader.read(wire.LOGIN_PACKET_MAX_BYTES)):
                raise SourceUnreachableError("the source ended the connection before its greeting")
            heard += block
    except wire.MySqlWireError as error:
        raise SourceUnreachableError(NO_MYSQL) from error
    if heard or packet.sequence:
        raise SourceUnreachableError(NO_MYSQL)
    return packet


class Hello:
    """Hears the greeting, and asks for TLS where that is wanted."""

    def __init__(self, source: SourceUri) -> None:
        self._source = source
        self.greeting: Greeting | None = None

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        packet = await only_packet(reader)
        try:
            if packet.payload[:1] == bytes((wire.ERROR,)):
                said = wire.parse_error(packet.payload)
                raise SourceUnreachableError(f"the source refused the connection: {told(said)}")
            self.greeting = greeting = wire.parse_greeting(packet.payload)
        except wire.MySqlWireError as error:
            raise SourceUnreachableError(NO_MYSQL) from error
        if CAPABILITIES & ~wire.LONG_PASSWORD & ~greeting.capabilities:
            raise SourceUnreachableError("the source is older than MySQL 5.5 and MariaDB 5.5")
        if len(greeting.scramble) != wire.SCRAMBLE_BYTES:
            raise SourceUnreachableError(NO_MYSQL)
        if self._source.tls == "off":
            return
        if not greeting.capabilities & wire.SSL:
            raise SourceUnreachableError(NO_TLS)
        # Nothing is waited for from here until TLS is made.
        writer.write(wire.frame(wire.build_tls_request(CAPABILITIES), 1))

    @property
    def login_sequence(self) -> int:
        return 1 if self._source.tls == "off" else 2


class LoginDialogue:
    """What a source asks, and what it is answered."""

    def __init__(self, source: SourceUri, greeting: Greeting) -> None:
        self._source = source
        self._greeting = greeting
        self._plugin = ""

    def begin(self) -> bytes:
        """With the plugin of the server where the password stays unknown by that."""
        named = self._greeting.plugin.decode("latin-1")
        self._plugin = named if named in (NATIVE, SHA2) else NATIVE
        answer = _proof(self._plugin, self._source.password, self._greeting.scramble)
        response = HandshakeResponse(
            CAPABILITIES | (0 if self._source.tls == "off" else wire.SSL),
            *(PACKET_BYTES_MAX, wire.UTF8MB4_GENERAL_CI),
            *(self._source.user.encode(), answer),
            plugin=self._plugin.encode(),
        )
        return wire.build_response(response)

    def answer(self, said: bytes) -> bytes | None:
        """To a question of the source; None where it has to say more. Raises MigrationError."""
        kind, content = said[:1], said[1:]
        if kind == bytes((wire.AUTH_SWITCH,)):
            name, _, scramble = content.partition(b"\0")
            return self._switched(name.decode("latin-1"), scramble.removesuffix(b"\0"))
        if kind == bytes((MORE,)) and self._plugin == SHA2 and content == FAST_OK:
            return None
        if kind == bytes((MORE,)) and self._plugin == SHA2 and content == ALL_OF_IT:
            return self._in_clear()
        raise MigrationError("the source asked something at the login that is not understood")

    def _switched(self, plugin: str, scramble: bytes) -> bytes:
        self._plugin = plugin
        if plugin in (NATIVE, SHA2):
            return _proof(plugin, self._source.password, scramble)
        if plugin in IN_CLEAR:
            return self._in_clear()
        named = bounded(plugin)[:60] or "that of MySQL 4.0"
        raise MigrationError(
            f"the source asks for a login by {named}, which is not supported; {PLUGINS}"
        )

    def _in_clear(self) -> bytes:
        if self._source.tls != "verify":
            raise MigrationError(
                f"the source wants the password in clear ({self._plugin}), which it gets only where"
                f" TLS is verified; name the CA of its certificate, or {PLUGINS}"
            )
        return self._source.password.encode() + b"\0"


def _proof(plugin: str, password: str, scramble: bytes) -> bytes:
    """That the password is known, by which nobody who hears it can tell it."""
    if not password:
        return b""
    secret = password.encode()
    if plugin == SHA2:
        first = hashlib.sha256(secret).digest()
        twice = hashlib.sha256(first).digest()
        return _xor(first, hashlib.sha256(twice + scramble).digest())
    first = hashlib.sha1(secret).digest()  # noqa: S324 - as the protocol has it
    twice = hashlib.sha1(first).digest()  # noqa: S324 - as above
    return _xor(first, hashlib.sha1(scramble + twice).digest())  # noqa: S324 - as above


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


async def log_in(
    source: SourceUri, greeting: Greeting, send: Send, receive: Receive, sequence: int
) -> None:
    """Returns when the source said that it is well. Raises MigrationError."""
    dialogue = LoginDialogue(source, greeting)
    send(dialogue.begin(), sequence)
    for _ in range(QUESTIONS_MAX):
        packet = await receive()
        kind = packet.payload[:1]
        if kind == bytes((wire.OK,)):
            return
        if kind == bytes((wire.ERROR,)):
            said = wire.parse_error(packet.payload)
            raise MigrationError(f"the source refused the login: {told(said)}")
        if (answer := dialogue.answer(packet.payload)) is not None:
            send(answer, packet.sequence + 1)
    raise MigrationError("the source asked too many things at the login")


def told(said: wire.ServerError) -> str:
    return bounded(f"{said.message} (error {said.code})")
