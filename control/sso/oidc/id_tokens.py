"""ID tokens: that the provider signed one for this client and this sign-in, and who it names."""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from control.access import signed_tokens
from control.access.signed_tokens import Jwk, TokenRefused
from control.sso.arrivals import SUBJECT_MAX, VerifiedIdentity
from control.sso.oidc.discovery import Provider

MAPPING: Final[Mapping[str, str]] = {"email": "email", "name": "name", "groups": "groups"}
"""The claims that are read unless the connection says otherwise."""
GROUPS_MAX: Final = 1_000
_TEXT_MAX: Final = 500
_HASHES: Final = {"RS256": "sha256", "PS256": "sha256", "ES256": "sha256", "EdDSA": "sha512"}
# RFC 8176, and what the profiles of acr call more than one factor, or resistant to phishing.
_MFA_METHODS: Final = frozenset({"mfa"})
_MFA_CLASSES: Final = frozenset(
    {"phr", "phrh", "http://schemas.openid.net/pape/policies/2007/06/multi-factor"}
)


@dataclass(frozen=True)
class ExpectedClaims:
    """What the token must say: `nonce` is that of the sign-in, in the clear."""

    client_id: str
    nonce: str
    now: datetime


def verify(
    text: str,
    provider: Provider,
    keys: Sequence[Jwk],
    expected: ExpectedClaims,
    access_token: str | None,
) -> dict[str, Any]:
    """The token's claims. Raises TokenRefused, and KeyUnknown where other keys may verify it."""
    algorithm, key_id = signed_tokens.header_of(text, provider.algorithms)
    claims = signed_tokens.verified_claims(text, algorithm, key_id, keys)
    if claims.get("iss") != provider.issuer:
        raise TokenRefused("its issuer (iss) is another one")
    _check_audience(claims, expected.client_id)
    signed_tokens.check_times(claims, expected.now.timestamp())
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not _is_same(nonce, expected.nonce):
        raise TokenRefused("its nonce is not that of this sign-in")
    signed_tokens.text_of(claims, "sub", SUBJECT_MAX)
    if "at_hash" in claims:
        _check_at_hash(claims["at_hash"], algorithm, access_token)
    return claims


def identity(claims: Mapping[str, Any], mapping: Mapping[str, str]) -> VerifiedIdentity:
    """Who that is, by the claims that the connection's mapping names."""
    named = {**MAPPING, **mapping}
    return VerifiedIdentity(
        subject=claims["sub"],
        email=_text(claims.get(named["email"])),
        # Who does not say it at all says as much as an assertion of SAML does.
        email_is_verified=claims.get("email_verified", True) in (True, "true"),
        name=_text(claims.get(named["name"])),
        groups=_texts(claims.get(named["groups"])),
        has_mfa=_has_mfa(claims),
        authenticated_at=_authenticated_at(claims),
    )


def _check_audience(claims: Mapping[str, Any], client_id: str) -> None:
    told = claims.get("aud")
    audiences = [told] if isinstance(told, str) else told
    if not isinstance(audiences, list) or client_id not in audiences:
        raise TokenRefused("its audience (aud) is another client")
    authorized = claims.get("azp")
    if authorized is None and len(audiences) == 1:
        return
    # One for several is this client's only where the provider says to whom it was given.
    if authorized != client_id:
        raise TokenRefused("it was given to another client (azp)")


def _check_at_hash(told: Any, algorithm: str, access_token: str | None) -> None:
    if access_token is None or not access_token.isascii():
        raise TokenRefused("it has an at_hash, and no access token came with it")
    digest = hashlib.new(_HASHES[algorithm], access_token.encode()).digest()
    half = base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode()
    if not isinstance(told, str) or not _is_same(told, half):
        raise TokenRefused("its at_hash is of another access token")


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())


def _has_mfa(claims: Mapping[str, Any]) -> bool:
    methods, level = claims.get("amr"), claims.get("acr")
    passed = isinstance(methods, list) and any(each in _MFA_METHODS for each in _strings(methods))
    return passed or (isinstance(level, str) and level in _MFA_CLASSES)


def _authenticated_at(claims: Mapping[str, Any]) -> datetime | None:
    if "auth_time" not in claims:
        return None
    return datetime.fromtimestamp(signed_tokens.moment(claims, "auth_time"), UTC)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= _TEXT_MAX else ""


def _texts(value: Any) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list):
        return ()
    return tuple(each for each in _strings(given[:GROUPS_MAX]) if 0 < len(each) <= _TEXT_MAX)


def _strings(values: Sequence[Any]) -> list[str]:
    return [each for each in values if isinstance(each, str)]
