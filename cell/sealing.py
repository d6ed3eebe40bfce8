"""Secrets at rest: sealed with AES-GCM under a key that is in no database."""

import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
NONCE_BYTES = 12


class SealError(Exception):
    """What was sealed cannot be opened: another key, another context, or a changed byte."""


class Sealer:
    """Seals for one purpose; `context` (whose, which) must be the same to open."""

    def __init__(self, key: bytes, purpose: str) -> None:
        # Derived, so that the cell's one key serves several purposes and none shares a cipher.
        derivation = HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose.encode())
        self._cipher = AESGCM(derivation.derive(key))

    def seal(self, secret: str, context: str) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, secret.encode(), context.encode())

    def open(self, sealed: bytes, context: str) -> str:
        try:
            nonce, content = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
            return self._cipher.decrypt(nonce, content, context.encode()).decode()
        except InvalidTag as error:
            raise SealError(f"the sealed secret of {context} cannot be opened") from error


def read_or_make_key(path: Path) -> bytes:
    """The cell's key, made on the first start; whole or not there at all."""
    if not path.exists():
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(descriptor)
        try:
            # A link and not a rename: of two that make it at once, the first one's stays.
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise SealError(f"{path} has {len(key)} bytes instead of {KEY_BYTES}")
    return key
