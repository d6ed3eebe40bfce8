"""Tokens of jobs: whether an issuer signed one, and whose it is."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import jwt

from control.access import signed_tokens
from control.access.signed_tokens import BROKEN, Jwk, KeyUnknown, TokenRefused
from specserver import Unauthenticated

SUBJECT_MAX: Final = 500
ALGORITHMS: Final = ("RS256", "ES256")
_UNVERIFIED: Final[Any] = {"verify_signature": False}


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
    return [each for each in signed_tokens.usable_keys(published, ALGORITHMS) if "kid" in each]


def read(text: str) -> UnverifiedToken:
    """Raises Unauthenticated for what is no token that any issuer could have signed."""
    with _told():
        algorithm, key_id = signed_tokens.header_of(text, ALGORITHMS)
        if key_id is None:
            raise TokenRefused("its header must have a kid")
        try:
            issuer = jwt.decode(text, options=_UNVERIFIED).get("iss")
        except BROKEN:
            raise TokenRefused("it is not a JSON Web Token") from None
        if not isinstance(issuer, str):
            raise TokenRefused("it names no issuer (iss)")
        return UnverifiedToken(text, algorithm, key_id, issuer)


def verify(token: UnverifiedToken, keys: Sequence[Jwk], at: datetime) -> WorkloadToken:
    """Raises Unauthenticated for a token that none of its issuer's keys signed, or not for now."""
    with _told():
        claims = _claims(token, keys)
        signed_tokens.check_times(claims, at.timestamp())
        subject = signed_tokens.text_of(claims, "sub", SUBJECT_MAX)
        return WorkloadToken(token.issuer, _audience(claims), subject)


def refused(reason: str) -> Unauthenticated:
    return Unauthenticated(f"the token was refused: {reason}", code="token_refused")


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except TokenRefused as error:
        raise refused(error.reason) from None


def _claims(token: UnverifiedToken, keys: Sequence[Jwk]) -> dict[str, Any]:
    try:
        return signed_tokens.verified_claims(token.text, token.algorithm, token.key_id, keys)
    except KeyUnknown:
        raise TokenRefused(
            "it is signed with a key that the issuer did not publish when its keys were read last;"
            " they are read every 5 minutes"
        ) from None


def _audience(claims: Mapping[str, Any]) -> str:
    """One: a token for several can be used by each of them with all others."""
    told = claims.get("aud")
    audience = told[0] if isinstance(told, list) and len(told) == 1 else told
    if not isinstance(audience, str) or not signed_tokens.is_text(audience, SUBJECT_MAX):
        raise TokenRefused(f"it must have one audience (aud), of at most {SUBJECT_MAX} characters")
    return audience
