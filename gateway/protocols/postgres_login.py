"""A login by SCRAM-SHA-256, let through only where the server proves that it knows our key.

In PostgreSQL each role can change its own password, so code that an owner runs can. The server's
last message of the exchange (RFC 5802) is signed with the key of the verifier that it has: one that
is not of the cell's verifier belongs to another password. Until that is seen, nothing that the
client says after its proof reaches the server, and nothing of a session reaches the client.
"""

import base64
import binascii
import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from gateway.protocols.postgres_wire import PostgresWireError
from gateway.refusal import Refusal

MECHANISM: Final = b"SCRAM-SHA-256"
HEADER_BYTES: Final = 5
# Of one message: the server takes 1 kB of a proof, and quotes no more than the startup packet.
MESSAGE_MAX_BYTES: Final = 65_536
ERROR, NOTICE, NEGOTIATION, AUTHENTICATION = b"ENvR"
ANSWER: Final = ord("p")
SASL, SASL_CONTINUE, SASL_FINAL = 10, 11, 12
WRONG_PASSWORD: Final = b"C28P01"
KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of a login's verifier; nobody can log in with it."""

    salting: bytes
    """The end of the server's first message: salt and iterations."""
    server_key: bytes

    @classmethod
    def parse(cls, written: str) -> Self:
        """As the cell writes it: `<iterations>:<salt>$<ServerKey>`, the latter two in base64."""
        salting, separator, key = written.partition("$")
        iterations, _, salt = salting.partition(":")
        try:
            server_key = base64.b64decode(key, validate=True)
        except binascii.Error as error:
            raise ValueError("the key of a login is not in base64") from error
        if not (separator and salt and iterations.isdecimal() and len(server_key) == KEY_BYTES):
            raise ValueError("what is known of a login is not <iterations>:<salt>$<key>")
        return cls(f",s={salt},i={iterations}".encode(), server_key)


Logins = Mapping[bytes, Proof]
"""By user name."""


class ScramLogin:
    """What arrives goes in; `answers` and what `from_backend` returns may go on.

    `proved` once the server is seen to have our verifier; `failed` once it says that the password
    is wrong, which may be because it has another.
    """

    def __init__(self, user: bytes, proof: Proof) -> None:
        self._user = user.decode(errors="replace")
        self._proof = proof
        self._from_client, self._from_backend = bytearray(), bytearray()
        self._asked = self._answered = 0
        self._signed = b""
        self._server_first = b""
        self.proved = self.failed = False

    def from_client(self, data: bytes) -> None:
        self._from_client += data
        if len(self._from_client) > MESSAGE_MAX_BYTES:
            raise Refusal("malformed", "too much data was sent before the login was complete")

    def answers(self) -> bytes:
        """What the server may hear now: one message for each of its questions, till the end."""
        if self.proved:
            return self._take_all(self._from_client)
        if self._answered == self._asked:
            return b""
        try:
            message = _take(self._from_client)
        except PostgresWireError as error:
            raise Refusal("malformed", str(error)) from error
        if message is None:
            return b""
        if message[0] != ANSWER:
            raise Refusal("malformed", "a SASL response was expected")
        self._answered += 1
        self._note(message[HEADER_BYTES:])
        return message

    def from_backend(self, data: bytes) -> bytes:
        """What the client may hear of it; WireError where it is of no such protocol."""
        self._from_backend += data
        passing = b""
        while not self.proved and (message := _take(self._from_backend)) is not None:
            self._hear(message[0], message[HEADER_BYTES:])
            passing += message
        return passing + self._take_all(self._from_backend) if self.proved else passing

    def _hear(self, kind: int, body: bytes) -> None:
        if kind == ERROR:
            self.failed = self.failed or WRONG_PASSWORD in body.split(b"\0")
        elif kind == AUTHENTICATION:
            self._hear_question(struct.unpack_from("!I", body.ljust(4, b"\0"))[0], body[4:])
        elif kind not in (NOTICE, NEGOTIATION):
            raise self._changed()

    def _hear_question(self, code: int, content: bytes) -> None:
        """Cleartext, MD5, or no question at all are not how a login of the cell's gets in."""
        step = self._asked, self._answered
        if code == SASL and step == (0, 0):
            if MECHANISM not in content.split(b"\0"):
                raise self._changed()
        elif code == SASL_CONTINUE and step == (1, 1):
            # A client would work out a proof for as many iterations as are asked for.
            if not content.endswith(self._proof.salting):
                raise self._changed()
            self._server_first = content
        elif code == SASL_FINAL and step == (2, 2):
            self.proved = hmac.compare_digest(content, self._signature())
            if not self.proved:
                raise self._changed()
            return
        else:
            raise self._changed()
        self._asked += 1

    def _note(self, body: bytes) -> None:
        """Of the client's messages, what the server signs."""
        if self._answered == 1:
            mechanism, _, rest = body.partition(b"\0")
            # The header of GS2 says whether the client binds its channel, and as whom it acts.
            parts = rest[4:].split(b",", 2)
            if mechanism != MECHANISM or len(parts) != 3:  # noqa: PLR2004 - two of the header
                raise Refusal("malformed", "the login must be by SCRAM-SHA-256")
            self._signed = parts[2]
        else:
            without_proof = body.rpartition(b",p=")[0]
            self._signed += b"," + self._server_first + b"," + without_proof

    def _signature(self) -> bytes:
        made = hmac.digest(self._proof.server_key, self._signed, "sha256")
        return b"v=" + base64.b64encode(made)

    def _changed(self) -> Refusal:
        return Refusal(
            "changed_login",
            f'the password of "{self._user}" was changed in the database, but only the credential'
            " is valid; its password is being restored: connect again with it",
        )

    @staticmethod
    def _take_all(waiting: bytearray) -> bytes:
        taken = bytes(waiting)
        waiting.clear()
        return taken


def _take(waiting: bytearray) -> bytes | None:
    """The first whole message, off the front."""
    if len(waiting) < HEADER_BYTES:
        return None
    size = 1 + struct.unpack_from("!I", waiting, 1)[0]
    if not HEADER_BYTES <= size <= MESSAGE_MAX_BYTES:
        raise PostgresWireError("a message of the login has an invalid length")
    if len(waiting) < size:
        return None
    message = bytes(waiting[:size])
    del waiting[:size]
    return message
