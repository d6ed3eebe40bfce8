"""Objects of the store, sealed: nothing of them can be read or changed without the key.

    8 bytes    what it is, and the version of this format
    32 bytes   salt: each object has a key of its own, also one that is written a second time
    4 bytes    how long the clear text is that follows
    ...        clear text, which anybody may read and nobody may change
    ...        frames of AES-256-GCM, each of 1 MiB of content and a tag, the last one shorter

A frame's nonce is its number and whether it is the last, so none can be left out, moved or added.
With it are authenticated the object's name and all that stands before the frames.
"""

import hashlib
import os
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MAGIC = b"MNGRBKP\x01"
KEY_BYTES = 32
SALT_BYTES = 32
FRAME_BYTES = 1 << 20
TAG_BYTES = 16
CLEAR_BYTES_MAX = 1 << 16
_LENGTH = struct.Struct(">I")
# Together the 12 bytes of a nonce.
_NONCE = struct.Struct(">3xQ?")
_HEAD_BYTES = len(MAGIC) + SALT_BYTES + _LENGTH.size


class DamagedError(Exception):
    """It is not what was sealed under this name with this key."""


def seal(key: bytes, name: str, content: bytes | bytearray, clear: bytes = b"") -> bytes:
    """`clear` is readable without the key, and bound to the rest as well."""
    if len(clear) > CLEAR_BYTES_MAX:
        raise ValueError("too much clear text")
    salt = os.urandom(SALT_BYTES)
    head = b"".join((MAGIC, salt, _LENGTH.pack(len(clear)), clear))
    cipher, bound = _cipher(key, salt, name), _bound(name, head)
    sealed = bytearray(head)
    view = memoryview(content)
    last = max(0, (len(view) - 1) // FRAME_BYTES)
    for number in range(last + 1):
        frame = view[number * FRAME_BYTES : (number + 1) * FRAME_BYTES]
        sealed += cipher.encrypt(_NONCE.pack(number, number == last), frame, bound)
    return bytes(sealed)


def unseal(key: bytes, name: str, sealed: bytes) -> bytearray:
    """The content. Raises DamagedError."""
    view = memoryview(sealed)
    start = _HEAD_BYTES + len(clear_text(sealed))
    cipher = _cipher(key, bytes(view[len(MAGIC) : len(MAGIC) + SALT_BYTES]), name)
    bound = _bound(name, view[:start])
    frames, step = view[start:], FRAME_BYTES + TAG_BYTES
    last = max(0, (len(frames) - 1) // step)
    content = bytearray()
    for number in range(last + 1):
        frame = frames[number * step : (number + 1) * step]
        try:
            content += cipher.decrypt(_NONCE.pack(number, number == last), frame, bound)
        except InvalidTag as error:
            raise DamagedError(f"{name} is damaged, or of another backup") from error
    return content


def clear_text(sealed: bytes) -> bytes:
    """What is readable without the key, and so not yet known to be true. Raises DamagedError."""
    if sealed[: len(MAGIC)] != MAGIC or len(sealed) < _HEAD_BYTES:
        raise DamagedError("it is no object of a backup, or of a newer version")
    (length,) = _LENGTH.unpack_from(sealed, _HEAD_BYTES - _LENGTH.size)
    if length > CLEAR_BYTES_MAX or len(sealed) < _HEAD_BYTES + length:
        raise DamagedError("an object of the backup is cut off")
    return bytes(sealed[_HEAD_BYTES : _HEAD_BYTES + length])


def _cipher(key: bytes, salt: bytes, name: str) -> AESGCM:
    purpose = b"menagerie backup object v1\0" + name.encode()
    return AESGCM(HKDF(hashes.SHA256(), KEY_BYTES, salt=salt, info=purpose).derive(key))


def _bound(name: str, head: bytes | memoryview) -> bytes:
    return hashlib.sha256(head).digest() + name.encode()
