"""Requests of the control plane: believed by their signature, once, and only while fresh."""

import base64
import binascii
import hashlib
import re
import time
from collections.abc import Callable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from cell.database import Database
from specserver import Request, Unauthenticated

SKEW_MAX_S = 300
_NONCE = re.compile(r"[0-9a-f]{32}")


class Signatures:
    """Knows the public key alone: whoever reads the cell cannot sign."""

    def __init__(
        self, database: Database, public_key: bytes, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._key = Ed25519PublicKey.from_public_bytes(public_key)
        self._clock = clock

    def verify(self, request: Request, body: bytes) -> None:
        """Raises Unauthenticated for whatever the control plane did not just send."""
        given = request.headers
        try:
            timestamp, nonce = given["Menagerie-Timestamp"], given["Menagerie-Nonce"]
            signature = decode(given["Menagerie-Signature"])
        except KeyError as error:
            raise Unauthenticated("the request is not signed", code="not_signed") from error
        digest = hashlib.sha256(body).hexdigest()
        signed = f"{request.method}\n{_target(request)}\n{digest}\n{timestamp}\n{nonce}"
        self._check(signature, signed.encode())
        # Only what was signed is believed: the moment and the nonce are looked at after that.
        self._check_fresh(timestamp, nonce)

    def _check(self, signature: bytes, signed: bytes) -> None:
        try:
            self._key.verify(signature, signed)
        except InvalidSignature as error:
            raise Unauthenticated("the signature does not fit", code="bad_signature") from error

    def _check_fresh(self, timestamp: str, nonce: str) -> None:
        now = self._clock()
        skew_s = abs(now - int(timestamp)) if timestamp.isdecimal() else SKEW_MAX_S + 1
        if skew_s > SKEW_MAX_S or not _NONCE.fullmatch(nonce):
            raise Unauthenticated("the signature is not of now", code="stale_signature")
        # In the database, or a restart of the cell would let the last minutes be said again.
        until = now + 2 * SKEW_MAX_S
        if not self._database.note("INSERT OR IGNORE INTO nonces VALUES (?, ?)", nonce, until):
            raise Unauthenticated("the request was seen before", code="replayed")

    def forget_old(self) -> None:
        """What is older than the skew is refused by its date."""
        self._database.note("DELETE FROM nonces WHERE until < ?", self._clock())


def decode(text: str) -> bytes:
    """base64url without padding; empty for what is not that, which no signature is."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def _target(request: Request) -> str:
    raw = request.scope.get("raw_path") or request.path.encode()
    path: str = raw.partition(b"?")[0].decode("latin-1")
    return f"{path}?{request.query_string}" if request.query_string else path
