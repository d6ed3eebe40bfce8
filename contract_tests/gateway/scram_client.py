"""A client of PostgreSQL that says what it is told to say, by SCRAM-SHA-256 (RFC 5802)."""

import base64
import hashlib
import hmac
import socket
import struct

NONCE = "fyko+d2lbbFgONRv9qkxdawL"
HEADER = b"n,,"


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", 4 + len(body)) + body


def authentication(code: int, content: bytes = b"") -> bytes:
    return message(b"R", struct.pack("!I", code) + content)


class ScramClient:
    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._password = password
        self._first = f"n=,r={NONCE}".encode()
        self._server_first = b""
        self.salt = b""

    def startup(self, parameters: dict[str, str]) -> bytes:
        words = {"user": self.user, **parameters}
        body = b"".join(f"{name}\0{value}\0".encode() for name, value in words.items()) + b"\0"
        return struct.pack("!II", 8 + len(body), 3 << 16) + body

    def initial(self) -> bytes:
        content = HEADER + self._first
        return message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(content)) + content)

    def hear(self, server_first: bytes) -> None:
        self._server_first = server_first
        self.salt = base64.b64decode(server_first.split(b",")[1][2:])

    def proof(self) -> bytes:
        words = self._server_first.split(b",")
        iterations = int(words[2][2:])
        key = hashlib.pbkdf2_hmac("sha256", self._password.encode(), self.salt, iterations)
        client_key = hmac.digest(key, b"Client Key", "sha256")
        bare = b"c=" + base64.b64encode(HEADER) + b"," + words[0]
        self.signed = b",".join((self._first, self._server_first, bare))
        stored = hashlib.sha256(client_key).digest()
        signature = hmac.digest(stored, self.signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return message(b"p", bare + b",p=" + base64.b64encode(proof))

    def begin(self, stream: socket.socket, parameters: dict[str, str]) -> None:
        """Up to what the server asks to be proved."""
        stream.sendall(self.startup(parameters))
        assert _read(stream, 10)
        stream.sendall(self.initial())
        self.hear(_read(stream, 11))


def _read(stream: socket.socket, code: int) -> bytes:
    """The content of one message of authentication."""
    kind, size, found = struct.unpack("!cII", _exactly(stream, 9))
    content = _exactly(stream, size - 8)
    assert (kind, found) == (b"R", code), content
    return content


def _exactly(stream: socket.socket, count: int) -> bytes:
    said = b""
    while len(said) < count:
        chunk = stream.recv(count - len(said))
        assert chunk, said
        said += chunk
    return said
