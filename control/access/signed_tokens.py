"""JSON Web Tokens of others: whether a key that they published signed one, and when it holds.

Whoever sends one is nobody yet, so nothing of a token is believed before its signature, and what
verifies it is chosen by the key and not by the token. No symmetric algorithm and no `none` is ever
among those allowed, so that a public key is no secret to sign with.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

KEYS_MAX: Final = 50
"""Of one issuer."""
LEEWAY_S: Final = 30
"""By which the clocks of issuer and database may differ."""
TOKEN_BYTES_MAX: Final = 32 << 10
TYPES: Final[Mapping[str, str]] = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
"""The algorithms there are, with the type of key that each needs."""
_CURVES: Final = {"EC": "P-256", "OKP": "Ed25519"}
# A smaller RSA key can be broken, and a larger one takes long to verify with.
_RSA_BITS: Final = range(2048, 8193)
_PUBLIC: Final = ("kty", "kid", "alg", "n", "e", "crv", "x", "y")
# Of times beyond this there is no date.
_LATEST: Final = 1e11
# Times are compared with the database's clock, and the audience with what is trusted.
_SIGNATURE_ALONE: Final[Any] = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
# Beside those of the library: JSON that is nested deeply, and numbers without end.
BROKEN: Final = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)

Jwk = dict[str, Any]


class TokenRefused(Exception):  # noqa: N818 -- a fact about a token
    """The reason is the end of a sentence that begins with "the token was refused"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class KeyUnknown(TokenRefused):
    """None of the keys that are known signed it; the issuer may have published another since."""


def usable_keys(published: Any, algorithms: Sequence[str]) -> list[Jwk]:
    """Of what an issuer publishes, the keys that a token can be verified with; public parts only.

    Raises ValueError where that is no set of keys.
    """
    keys = published.get("keys") if isinstance(published, dict) else None
    if not isinstance(keys, list) or len(keys) > KEYS_MAX:
        raise ValueError(f"not a set of at most {KEYS_MAX} keys")
    return [_public(each) for each in keys if _is_usable(each, algorithms)]


def header_of(text: str, algorithms: Sequence[str]) -> tuple[str, str | None]:
    """The algorithm and the key's id that a token names, neither of which is believed yet."""
    if len(text) > TOKEN_BYTES_MAX:
        raise TokenRefused(f"it is longer than {TOKEN_BYTES_MAX:,} bytes")
    try:
        header = jwt.get_unverified_header(text)
    except BROKEN:
        raise TokenRefused("it is not a JSON Web Token") from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in algorithms:
        raise TokenRefused(f"it must be signed by {' or '.join(algorithms)}")
    if "crit" in header or "b64" in header or not isinstance(key_id, str | None):
        raise TokenRefused("its header must have neither crit nor b64, and a kid that is a text")
    return str(algorithm), key_id


def verified_claims(
    text: str, algorithm: str, key_id: str | None, keys: Sequence[Jwk]
) -> dict[str, Any]:
    """What the token says, which one of the keys signed.

    Without a key's id it is the only key that there is for the algorithm.
    """
    fitting = [each for each in keys if _fits(each, algorithm)]
    if key_id is not None:
        fitting = [each for each in fitting if each.get("kid") == key_id]
    if not fitting or (key_id is None and len(fitting) > 1):
        raise KeyUnknown("it is signed with a key that the issuer does not publish")
    try:
        told: dict[str, Any] = jwt.decode(
            text,
            jwt.PyJWK(fitting[0], algorithm),
            algorithms=[algorithm],
            options=_SIGNATURE_ALONE,
        )
    except BROKEN:
        raise TokenRefused("its signature is wrong") from None
    return told


def check_times(claims: Mapping[str, Any], now: float) -> None:
    if moment(claims, "exp") <= now - LEEWAY_S:
        raise TokenRefused("it has expired")
    if moment(claims, "iat") > now + LEEWAY_S:
        raise TokenRefused("it was issued in the future")
    if "nbf" in claims and moment(claims, "nbf") > now + LEEWAY_S:
        raise TokenRefused("it is not valid yet")


def moment(claims: Mapping[str, Any], name: str) -> float:
    """A time of the token's, in seconds since 1970."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"it has no time {name}")
    if not (math.isfinite(value) and 0 <= value < _LATEST):
        raise TokenRefused(f"its {name} is no time")
    return value


def text_of(claims: Mapping[str, Any], name: str, length_max: int) -> str:
    """One that can be stored and shown as it is."""
    value = claims.get(name)
    if not isinstance(value, str) or not is_text(value, length_max):
        raise TokenRefused(f"it must have a text as its {name}, of at most {length_max} characters")
    return value


def is_text(text: str, length_max: int) -> bool:
    return 0 < len(text) <= length_max and text.isprintable()


def _fits(key: Jwk, algorithm: str) -> bool:
    return bool(key["kty"] == TYPES[algorithm] and key.get("alg", algorithm) == algorithm)


def _public(key: Jwk) -> Jwk:
    return {name: key[name] for name in _PUBLIC if name in key}


def _is_usable(key: Any, algorithms: Sequence[str]) -> bool:
    if not isinstance(key, dict) or not all(
        isinstance(each, str) for each in _public(key).values()
    ):
        return False
    kty = key.get("kty", "")
    fitting = [each for each in algorithms if TYPES[each] == kty]
    if not fitting or key.get("use", "sig") != "sig" or key.get("alg", fitting[0]) not in fitting:
        return False
    if key.get("crv") != _CURVES.get(kty):
        return False
    try:
        loaded = jwt.PyJWK(_public(key), key.get("alg", fitting[0])).key
    except BROKEN:
        return False
    return not isinstance(loaded, RSAPublicKey) or loaded.key_size in _RSA_BITS
