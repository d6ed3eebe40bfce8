"""SCRAM-SHA-256 verifiers as PostgreSQL keeps them (RFC 5802, RFC 7677)."""

import base64
import hashlib
import hmac
import os
from dataclasses import dataclass

from cell.runtime.relay import ITERATIONS

SALT_BYTES = 16
_NAME = "SCRAM-SHA-256"


def verifier(password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> str:
    """What the server keeps of a password; ours are ASCII, so SASLprep would change nothing."""
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    client_key, server_key = _keys(password, salt, iterations)
    stored_key = hashlib.sha256(client_key).digest()
    parts = f"{iterations}:{_base64(salt)}", f"{_base64(stored_key)}:{_base64(server_key)}"
    return f"{_NAME}${parts[0]}${parts[1]}"


@dataclass(frozen=True)
class Keys:
    """What a password and a salt come to: who has them logs in without working it out again."""

    client: str
    server: str


def keys(password: str, kept: str) -> Keys | None:
    """Those of a verifier of ours that is of this password."""
    iterations, salt = kept.split("$")[1].split(":")
    if iterations != str(ITERATIONS):
        return None
    client, server = _keys(password, base64.b64decode(salt), ITERATIONS)
    return Keys(_base64(client), _base64(server))


def fits(password: str, kept: str) -> bool:
    """Whether a verifier is of that password."""
    try:
        name, salting, _ = kept.split("$")
        iterations, salt = salting.split(":")
        again = verifier(password, base64.b64decode(salt), int(iterations))
    except ValueError:
        return False
    return name == _NAME and hmac.compare_digest(again, kept)


def without_login(kept: str) -> str:
    """Of a verifier, what tells it from another and lets nobody log in: not the StoredKey."""
    _, salting, keys = kept.split("$")
    return f"{salting}${keys.partition(':')[2]}"


def _keys(password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    return hmac.digest(salted, b"Client Key", "sha256"), hmac.digest(
        salted, b"Server Key", "sha256"
    )


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
