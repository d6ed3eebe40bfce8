"""Cursors: where a list goes on, signed, and good only for the list that gave it."""

import base64
import binascii
import hashlib
import hmac
from typing import Any

import orjson

from specserver import Invalid

_MAC_BYTES = 16


class Cursors:
    """Opaque to callers: base64url of a MAC and the position. `place` is operation and org."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def write(self, position: dict[str, Any], place: str) -> str:
        content = orjson.dumps(position)
        return _encode(self._mac(content, place) + content)

    def read(self, cursor: str, place: str) -> dict[str, Any]:
        """Raises Invalid for a cursor that was altered, or belongs to another list."""
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if _encode(raw) != cursor:  # padded, or with bits set that mean nothing
            raw = b""
        mac, content = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(content, place)):
            message = "must be a next_cursor from this list; leave it out to start at the beginning"
            raise Invalid(
                "the cursor does not belong to this list",
                errors=[{"parameter": "cursor", "keyword": "cursor", "message": message}],
            )
        position: dict[str, Any] = orjson.loads(content)
        return position

    def _mac(self, content: bytes, place: str) -> bytes:
        message = b"cursor\0" + place.encode() + b"\0" + content
        return hmac.digest(self._key, message, hashlib.sha256)[:_MAC_BYTES]


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
