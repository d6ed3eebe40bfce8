"""Cursors: where a list goes on, signed, and good only for the list that gave it."""

import hashlib
from typing import Any

from itsdangerous import BadData, URLSafeSerializer

from specserver import Invalid


class Cursors:
    """Opaque to callers. `place` is operation and org: a cursor of one is none of another."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def write(self, position: dict[str, Any], place: str) -> str:
        written = self._serializer(place).dumps(position)
        return written if isinstance(written, str) else written.decode()

    def read(self, cursor: str, place: str) -> dict[str, Any]:
        """Raises Invalid for a cursor that was altered, or belongs to another list."""
        try:
            position: dict[str, Any] | None = self._serializer(place).loads(cursor)
        except BadData:
            position = None
        # base64 has bits that mean nothing, and padding: each position has one cursor all the same.
        if position is None or self.write(position, place) != cursor:
            message = "must be a next_cursor from this list; leave it out to start at the beginning"
            raise Invalid(
                "the cursor does not belong to this list",
                errors=[{"parameter": "cursor", "keyword": "cursor", "message": message}],
            )
        return position

    def _serializer(self, place: str) -> URLSafeSerializer:
        return URLSafeSerializer(
            self._key,
            salt=b"cursor\0" + place.encode(),
            signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha256},
        )
