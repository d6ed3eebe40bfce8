"""Reports of leaked keys, as secret scanning partners of GitHub get them: who signed, and what."""

import base64
import binascii
import functools
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

KEYS_MAX: Final = 100
_SOURCE: Final = re.compile(r"[A-Za-z0-9_]{1,40}")
_LONGEST_URL: Final = 1_000


def read_keys(text: str) -> dict[str, str]:
    """Public keys as PEM by their identifiers, from what GitHub's `meta/public_keys` answers.

    Raises ValueError with what is wrong.
    """
    try:
        listed = json.loads(text)["public_keys"]
        keys = {str(each["key_identifier"]): str(each["key"]) for each in listed}
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            'it is not as {"public_keys": [{"key_identifier": "…", "key": "-----BEGIN PUBLIC'
            ' KEY-----…"}]}, which https://api.github.com/meta/public_keys/secret_scanning answers'
        ) from None
    if not 0 < len(keys) <= KEYS_MAX:
        raise ValueError(f"it has {len(keys)} keys, and must have between 1 and {KEYS_MAX}")
    for identifier, pem in keys.items():
        if _public_key(pem) is None:
            raise ValueError(f"the key {identifier} is no public key of ECDSA P-256 as PEM")
    return keys


def is_signed(
    keys: Mapping[str, str], identifier: str | None, signature: str | None, body: bytes
) -> bool:
    """Whether these bytes were signed (ECDSA P-256, SHA-256; base64 of DER) by the key so named."""
    pem = keys.get(identifier or "")
    public = None if pem is None else _public_key(pem)
    if public is None or not signature:
        return False
    try:
        public.verify(base64.b64decode(signature, validate=True), body, ec.ECDSA(SHA256()))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def place_of(match: Mapping[str, Any]) -> tuple[str, str]:
    """Source and URL of a match, as they can be shown: both are a stranger's words."""
    source, url = str(match.get("source") or ""), str(match.get("url") or "")
    plain = "".join(character for character in url if character.isprintable())
    return (source if _SOURCE.fullmatch(source) else "unknown"), plain[:_LONGEST_URL]


@functools.lru_cache(maxsize=2 * KEYS_MAX)
def _public_key(pem: str) -> ec.EllipticCurvePublicKey | None:
    try:
        found = load_pem_public_key(pem.encode())
    except ValueError:
        return None
    is_p256 = isinstance(found, ec.EllipticCurvePublicKey) and found.curve.name == "secp256r1"
    return found if is_p256 and isinstance(found, ec.EllipticCurvePublicKey) else None
