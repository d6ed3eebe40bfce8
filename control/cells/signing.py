"""The control plane's signature (Ed25519): one-time tokens for the public, requests to cells."""

import base64
import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

TOKEN_VERSION = 1
NONCE_BYTES = 16


class Signer:
    """Signs what a cell will believe. Cells hold only the public key.

    `clock` answers unix seconds, for the timestamps of requests; the database's, as no node's is
    trusted.
    """

    def __init__(self, private_key: Ed25519PrivateKey, *, clock: Callable[[], float]) -> None:
        self._private_key = private_key
        self._clock = clock

    @property
    def public_key(self) -> bytes:
        """The raw 32 bytes."""
        return self._private_key.public_key().public_bytes_raw()

    def token(self, cell_id: str, claims: Mapping[str, Any]) -> str:
        """A token for the path of a one-time URL on that cell: a JWT.

        `claims` name instance_id, action, jti, exp (unix seconds) and what the action needs.
        """
        document = {"v": TOKEN_VERSION, "aud": cell_id, **claims}
        return jwt.encode(document, self._private_key, algorithm="EdDSA")

    def sign(self, purpose: str, content: bytes) -> str:
        """Good for this purpose only: neither a token nor a request begins like it."""
        return _base64url(self._private_key.sign(purpose.encode() + b"\n" + content))

    def sign_request(
        self,
        cell_id: str,
        method: str,
        path_and_query: str,
        body: bytes = b"",
        *,
        timestamp_s: int | None = None,
        challenge: str = "",
    ) -> dict[str, str]:
        """The headers that make that cell believe the request, once and within its clock skew.

        With the `challenge` of a cell that did not, it is believed whatever the cell's clock says.
        """
        timestamp = str(int(self._clock()) if timestamp_s is None else timestamp_s)
        nonce = secrets.token_hex(NONCE_BYTES)
        digest = hashlib.sha256(body)
        lines = [cell_id, method.upper(), path_and_query, digest.hexdigest(), timestamp, nonce]
        if challenge:
            lines.append(challenge)
        answered = {"Menagerie-Challenge": challenge} if challenge else {}
        return answered | {
            # With it the cell can check the signature before it reads the body.
            "Content-Digest": f"sha-256=:{base64.b64encode(digest.digest()).decode()}:",
            "Menagerie-Cell": cell_id,
            "Menagerie-Timestamp": timestamp,
            "Menagerie-Nonce": nonce,
            "Menagerie-Signature": _base64url(self._private_key.sign("\n".join(lines).encode())),
        }


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
