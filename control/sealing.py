"""Secrets that must be read again, sealed with a key that is not in the database (AES-256-GCM)."""

import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_VERSION = b"\x01"
_KEY_ID_BYTES = 4
_NONCE_BYTES = 12
_HEADER_BYTES = len(_VERSION) + _KEY_ID_BYTES + _NONCE_BYTES


class SealError(Exception):
    """The sealed bytes were altered, belong to another context, or to a key that is not here."""


class Sealer:
    """Seals with `key`; opens what it, or one of `earlier_keys`, has sealed.

    Layout: version (1 byte), key id (4), nonce (12), ciphertext and tag. `context` is bound to
    the sealed bytes, so that they cannot be moved to another record.
    """

    def __init__(self, key: bytes, *earlier_keys: bytes) -> None:
        for one in (key, *earlier_keys):
            if len(one) != KEY_BYTES:
                raise ValueError(f"a sealing key has {KEY_BYTES} bytes, not {len(one)}")
        self._key_id = _key_id(key)
        self._ciphers = {_key_id(one): AESGCM(one) for one in (key, *earlier_keys)}

    def __repr__(self) -> str:
        return f"Sealer(key {self._key_id.hex()})"

    def seal(self, secret: bytes, context: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[self._key_id].encrypt(nonce, secret, context.encode())
        return _VERSION + self._key_id + nonce + sealed

    def open(self, sealed: bytes, context: str) -> bytes:
        """Raises SealError when the bytes are not what was sealed in this context."""
        if len(sealed) < _HEADER_BYTES or not sealed.startswith(_VERSION):
            raise SealError("not sealed by this service")
        cipher = self._ciphers.get(sealed[1 : 1 + _KEY_ID_BYTES])
        if cipher is None:
            raise SealError("sealed with a key that is not available")
        nonce = sealed[1 + _KEY_ID_BYTES : _HEADER_BYTES]
        try:
            return cipher.decrypt(nonce, sealed[_HEADER_BYTES:], context.encode())
        except InvalidTag as error:
            raise SealError("sealed bytes were altered, or belong to another context") from error


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"menagerie sealing key " + key).digest()[:_KEY_ID_BYTES]
