"""Tokens of jobs: whether an issuer signed one, and whose it is.

Whoever sends one is nobody yet, so nothing of a token is believed before its signature, and what
verifies it is chosen by the key and not by the token.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from specserver import Unauthenticated

KEYS_MAX: Final = 50
"""Of one issuer."""
SUBJECT_MAX: Final = 500
LEEWAY_S: Final = 30
"""By which the clocks of issuer and database may differ."""
ALGORITHMS: Final[Mapping[str, str]] = {"RS256": "RSA", "ES256": "EC"}
"""With the type of key that each needs."""
# A smaller RSA key can be broken, and a larger one takes long to verify with.
_RSA_BITS: Final = range(2048, 8193)
_PUBLIC: Final = ("kty", "kid", "n", "e", "crv", "x", "y")
# Of times beyond this there is no date.
_LATEST: Final = 1e11
_UNVERIFIED: Final[Any] = {"verify_signature": False}
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
_BROKEN: Final = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)

Jwk = dict[str, Any]


@dataclass(frozen=True)
class WorkloadToken:
    """What a token says that was verified."""

    issuer: str
    audience: str
    subject: str


@dataclass(frozen=True)
class UnverifiedToken:
    """Of nothing but the issuer that it names can anything be said, and only to find its keys."""

    text: str
    algorithm: str
    key_id: str
    issuer: str


def usable_keys(published: Any) -> list[Jwk]:
    """Of what an issuer publishes, the keys that a token can be verified with; public parts only.

    Raises ValueError where that is no set of keys.
    """
    keys = published.get("keys") if isinstance(published, dict) else None
    if not isinstance(keys, list) or len(keys) > KEYS_MAX:
        raise ValueError(f"not a set of at most {KEYS_MAX} keys")
    return [_public(each) for each in keys if _is_usable(each)]


def read(text: str) -> UnverifiedToken:
    """Raises Unauthenticated for what is no token that any issuer could have signed."""
    try:
        header = jwt.get_unverified_header(text)
        claims = jwt.decode(text, options=_UNVERIFIED)
    except _BROKEN:
        raise refused("it is not a JSON Web Token") from None
    algorithm, key_id, issuer = header.get("alg"), header.get("kid"), claims.get("iss")
    if algorithm not in ALGORITHMS:
        raise refused(f"it must be signed by {' or '.join(ALGORITHMS)}")
    if not isinstance(key_id, str) or "crit" in header or "b64" in header:
        raise refused("its header must have a kid, and neither crit nor b64")
    if not isinstance(issuer, str):
        raise refused("it names no issuer (iss)")
    return UnverifiedToken(text, str(algorithm), key_id, issuer)


def verify(token: UnverifiedToken, keys: Sequence[Jwk], at: datetime) -> WorkloadToken:
    """Raises Unauthenticated for a token that none of its issuer's keys signed, or not for now."""
    wanted = (token.key_id, ALGORITHMS[token.algorithm])
    key = next((each for each in keys if (each["kid"], each["kty"]) == wanted), None)
    if key is None:
        raise refused(
            "it is signed with a key that the issuer did not publish when its keys were read last;"
            " they are read every 5 minutes"
        )
    try:
        claims = jwt.decode(
            token.text,
            jwt.PyJWK(key, token.algorithm),
            algorithms=[token.algorithm],
            options=_SIGNATURE_ALONE,
        )
    except _BROKEN:
        raise refused("its signature is wrong") from None
    _check_times(claims, at.timestamp())
    return WorkloadToken(token.issuer, _audience(claims), _subject(claims))


def refused(reason: str) -> Unauthenticated:
    return Unauthenticated(f"the token was refused: {reason}", code="token_refused")


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    if _moment(claims, "exp") <= now - LEEWAY_S:
        raise refused("it has expired")
    if _moment(claims, "iat") > now + LEEWAY_S:
        raise refused("it was issued in the future")
    if "nbf" in claims and _moment(claims, "nbf") > now + LEEWAY_S:
        raise refused("it is not valid yet")


def _moment(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(f"it has no time {name}")
    if not (math.isfinite(value) and 0 <= value < _LATEST):
        raise refused(f"its {name} is no time")
    return value


def _audience(claims: Mapping[str, Any]) -> str:
    """One: a token for several can be used by each of them with all others."""
    told = claims.get("aud")
    audience = told[0] if isinstance(told, list) and len(told) == 1 else told
    if not isinstance(audience, str) or not _is_text(audience):
        raise refused(f"it must have one audience (aud), of at most {SUBJECT_MAX} characters")
    return audience


def _subject(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not _is_text(subject):
        raise refused(f"it must have a subject (sub), of at most {SUBJECT_MAX} characters")
    return subject


def _is_text(text: str) -> bool:
    """One that can be stored and shown as it is."""
    return 0 < len(text) <= SUBJECT_MAX and text.isprintable()


def _public(key: Jwk) -> Jwk:
    return {name: key[name] for name in _PUBLIC if name in key}


def _is_usable(key: Any) -> bool:
    if not isinstance(key, dict) or not all(
        isinstance(each, str) for each in _public(key).values()
    ):
        return False
    algorithm = {"RSA": "RS256", "EC": "ES256"}.get(key.get("kty", ""))
    named = key.get("kid")
    if algorithm is None or named is None or key.get("use", "sig") != "sig":
        return False
    if key.get("alg", algorithm) != algorithm or (
        algorithm == "ES256" and key.get("crv") != "P-256"
    ):
        return False
    try:
        loaded = jwt.PyJWK(_public(key), algorithm).key
    except _BROKEN:
        return False
    return not isinstance(loaded, RSAPublicKey) or loaded.key_size in _RSA_BITS
