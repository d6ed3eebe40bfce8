"""An authenticator in software: makes passkeys as a phone does, and signs what it is asked to."""

import hashlib
import json
import os
from dataclasses import dataclass, field
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from control.boundary.authenticators import base64url, from_base64url

ORIGIN = "http://localhost:8080"
PRESENT, VERIFIED, ELIGIBLE, BACKED_UP, ATTESTED = 0x01, 0x04, 0x08, 0x10, 0x40
_AAGUID = bytes(16)


@dataclass
class Authenticator:
    """Has one key. What it says of itself can be changed before it is asked."""

    origin: str = ORIGIN
    rp_id: str | None = None
    flags: int = PRESENT | VERIFIED | ELIGIBLE | BACKED_UP
    counter: int = 0
    credential_id: bytes = field(default_factory=lambda: os.urandom(32))
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    user_handle: str = ""
    client_data: dict[str, Any] = field(default_factory=dict)

    def create(self, options: dict[str, Any]) -> dict[str, Any]:
        """What `navigator.credentials.create` returns, as JSON."""
        self.user_handle = options["user"]["id"]
        rp_id = self.rp_id or options["rp"]["id"]
        long = len(self.credential_id).to_bytes(2)
        attested = _AAGUID + long + self.credential_id + cbor2.dumps(self._cose_key())
        data = self._data(rp_id, self.flags | ATTESTED) + attested
        return self._credential(
            {
                "clientDataJSON": base64url(self._client_data("webauthn.create", options)),
                "attestationObject": base64url(
                    cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
                ),
            }
        )

    def get(self, options: dict[str, Any]) -> dict[str, Any]:
        """What `navigator.credentials.get` returns, as JSON."""
        data = self._data(self.rp_id or options["rpId"], self.flags)
        told = self._client_data("webauthn.get", options)
        signature = self.key.sign(data + hashlib.sha256(told).digest(), ec.ECDSA(SHA256()))
        return self._credential(
            {
                "clientDataJSON": base64url(told),
                "authenticatorData": base64url(data),
                "signature": base64url(signature),
                "userHandle": self.user_handle,
            }
        )

    def _credential(self, response: dict[str, str]) -> dict[str, Any]:
        shown = base64url(self.credential_id)
        return {"id": shown, "rawId": shown, "type": "public-key", "response": response}

    def _client_data(self, kind: str, options: dict[str, Any]) -> bytes:
        told = {"type": kind, "challenge": options["challenge"], "origin": self.origin}
        return json.dumps({**told, "crossOrigin": False, **self.client_data}).encode()

    def _data(self, rp_id: str, flags: int) -> bytes:
        head = hashlib.sha256(rp_id.encode()).digest()
        return head + bytes([flags]) + self.counter.to_bytes(4)

    def _cose_key(self) -> dict[int, Any]:
        numbers = self.key.public_key().public_numbers()
        x, y = numbers.x.to_bytes(32), numbers.y.to_bytes(32)
        return {1: 2, 3: -7, -1: 1, -2: x, -3: y}


def altered(text: str) -> str:
    """Base64url with one bit of its last byte another."""
    plain = bytearray(from_base64url(text))
    plain[-1] ^= 1
    return base64url(bytes(plain))
