"""SCRAM-SHA-256 verifiers as PostgreSQL keeps them (RFC 5802, RFC 7677)."""

import base64
import hashlib
import hmac
import os

ITERATIONS = 4096
SALT_BYTES = 16
_NAME = "SCRAM-SHA-256"


def verifier(password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> str:
    """What the server keeps of a password; ours are ASCII, so SASLprep would change nothing."""
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    parts = f"{iterations}:{_base64(salt)}", f"{_base64(stored_key)}:{_base64(server_key)}"
    return f"{_NAME}${parts[0]}${parts[1]}"


def fits(password: str, kept: str) -> bool:
    """Whether a verifier is of that password."""
    try:
        name, salting, _ = kept.split("$")
        iterations, salt = salting.split(":")
        again = verifier(password, base64.b64decode(salt), int(iterations))
    except ValueError:
        return False
    return name == _NAME and hmac.compare_digest(again, kept)


def without_way_in(kept: str) -> str:
    """Of a verifier, what tells it from another and lets nobody log in: not the StoredKey."""
    _, salting, keys = kept.split("$")
    return f"{salting}${keys.partition(':')[2]}"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
