"""The way to a provider and back: authorization code with PKCE (OAuth 2.1, RFC 9700).

What returns must come from the browser that was sent (its token), for a sign-in that was begun
(state), from the issuer that was asked (iss), and is exchanged with a secret that only this service
has (code verifier). The ID token must be of this sign-in as well (nonce). Each is used once.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from control.access.signed_tokens import KeyUnknown, TokenRefused, text_of
from control.delivery.guarded import Fetched
from control.sealing import Sealer
from control.sso.arrivals import SUBJECT_MAX, VerifiedIdentity
from control.sso.oidc import discovery, id_tokens
from control.sso.oidc.discovery import Provider
from control.sso.oidc.id_tokens import ExpectedClaims
from control.sso.oidc.records import OidcClient
from control.sso.providers import Providers, ProviderUnavailable, parsed, read_json
from gateway.peer_texts import printable
from storage.sso.sign_ins import TTL_S, SsoSignIn

CALLBACK: Final = "/account/sso/callback"
_RANDOM_BYTES: Final = 32
_VERIFIER_BYTES: Final = 48
_CODE_REFUSED: Final = 400
_SHOWN_MAX: Final = 200
_TOKEN_MAX: Final = 16 << 10
_CONTEXT: Final = "sso sign-in "


@dataclass(frozen=True)
class Begun:
    """Where the browser is sent, and what it keeps until it returns."""

    record: SsoSignIn
    redirect_url: str
    browser_token: str


@dataclass(frozen=True)
class Pending:
    """What is needed to complete a sign-in, in the clear."""

    nonce: str
    verifier: str


class SignInRefused(Exception):  # noqa: N818 -- a fact about a sign-in
    """The reason is a sentence that begins in lower case, for whoever signs in and their admin."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def sha256(text: str) -> str:
    """Hex, as stored. What is hashed has 256 random bits, so a fast hash gives nothing away."""
    return hashlib.sha256(text.encode()).hexdigest()


def redirect_uri(base_url: str) -> str:
    """The only address that a provider sends anybody back to."""
    return base_url.rstrip("/") + CALLBACK


def begin(
    client: OidcClient,
    sealer: Sealer,
    *,
    redirect_to: str,
    place: str,
    login_hint: str | None,
    now: datetime,
) -> Begun:
    """A sign-in that is to be stored. `place` is where it began: what is bounded by address."""
    state, browser = _random(), _random()
    pending = Pending(_random(), secrets.token_urlsafe(_VERIFIER_BYTES))
    sealed = sealer.seal(orjson.dumps(pending), _CONTEXT + sha256(state))
    where = {"org_id": client.org_id, "connection_id": client.connection_id, "place": place}
    record = new_record(state, browser, sealed=sealed, now=now, **where)
    asked = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_to,
        "scope": " ".join(client.scopes),
        "state": state,
        "nonce": pending.nonce,
        "code_challenge": _challenge(pending.verifier),
        "code_challenge_method": "S256",
        **({"login_hint": login_hint} if login_hint else {}),
    }
    endpoint = client.provider.authorization_endpoint
    joint = "&" if "?" in endpoint else "?"
    return Begun(record, f"{endpoint}{joint}{urlencode(asked, quote_via=quote)}", browser)


def new_record(
    state: str,
    browser: str,
    *,
    org_id: str,
    connection_id: str,
    sealed: bytes,
    place: str,
    now: datetime,
) -> SsoSignIn:
    """Of whichever protocol; what a browser and the provider have is hashed in it."""
    return SsoSignIn(
        state_hash=sha256(state),
        org_id=org_id,
        connection_id=connection_id,
        browser_hash=sha256(browser),
        sealed=sealed,
        place=place,
        expires_at=now + timedelta(seconds=TTL_S),
    )


def opened(sign_in: SsoSignIn, sealer: Sealer) -> Pending:
    told = orjson.loads(sealer.open(sign_in.sealed, _CONTEXT + sign_in.state_hash))
    return Pending(**told)


def check_issuer(provider: Provider, named: str | None) -> None:
    """Against mix-up: a code of one provider is never sent to another (RFC 9207)."""
    if named is None and provider.names_issuer:
        raise SignInRefused("the answer does not name its issuer (iss), which this provider does")
    if named is not None and named != provider.issuer:
        raise SignInRefused("the answer names another issuer (iss) than that of the connection")


class CodeExchange:
    """A code becomes an identity, by asking the provider; nothing is written meanwhile."""

    def __init__(self, providers: Providers, client: OidcClient) -> None:
        self._providers, self._client = providers, client

    def tokens(self, code: str, verifier: str, redirect_to: str) -> dict[str, Any]:
        """What the token endpoint answers. Raises SignInRefused, and ProviderUnavailable."""
        client, provider = self._client, self._client.provider
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_to,
            "code_verifier": verifier,
        }
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        if provider.token_auth == "client_secret_basic":  # noqa: S105 -- the name of a method
            headers["Authorization"] = _basic(client.client_id, client.client_secret)
        else:
            form |= {"client_id": client.client_id, "client_secret": client.client_secret}
        url = provider.token_endpoint
        answer = self._providers.fetch(
            url,
            whose=client.org_id,
            method="POST",
            content=urlencode(form).encode(),
            headers=headers,
        )
        return _token_answer(url, answer)

    def identity(self, answered: Mapping[str, Any], expected: ExpectedClaims) -> VerifiedIdentity:
        """Raises SignInRefused; KeyUnknown where the keys may have changed since they were read."""
        id_token, access_token = answered.get("id_token"), answered.get("access_token")
        if not isinstance(id_token, str):
            raise SignInRefused("the provider gave no ID token: is the scope openid asked for?")
        usable = isinstance(access_token, str) and _is_bearer(access_token)
        given = access_token if usable else None
        client = self._client
        try:
            claims = id_tokens.verify(id_token, client.provider, client.keys, expected, given)
            found = id_tokens.identity(claims, client.mapping)
            if not found.email and given is not None and client.provider.userinfo_endpoint:
                claims = {**self._userinfo(claims["sub"], given), **claims}
                found = id_tokens.identity(claims, client.mapping)
        except KeyUnknown:
            raise
        except TokenRefused as refused:
            raise SignInRefused(f"the ID token was refused: {refused.reason}") from None
        return found

    def _userinfo(self, subject: str, access_token: str) -> dict[str, Any]:
        """Of the same person: the answer is no more than that of whoever holds the address."""
        url = self._client.provider.userinfo_endpoint
        assert url is not None
        told = read_json(
            self._providers,
            url,
            whose=self._client.org_id,
            headers={"Authorization": f"Bearer {access_token}"},
        )
        if not isinstance(told, dict) or text_of(told, "sub", SUBJECT_MAX) != subject:
            raise TokenRefused("the provider's userinfo is of somebody else (sub)")
        return {name: told[name] for name in told.keys() - {"iss", "aud", "nonce", "amr", "acr"}}


def refreshed_keys(providers: Providers, client: OidcClient) -> list[dict[str, Any]]:
    return discovery.read_keys(providers, client.provider, whose=client.org_id)


def _token_answer(url: str, answer: Fetched) -> dict[str, Any]:
    told = parsed(url, answer)
    if not isinstance(told, dict):
        raise ProviderUnavailable(f"what {url} answers is no token response")
    if answer.status >= _CODE_REFUSED:
        error = told.get("error")
        named = printable(error, _SHOWN_MAX) if isinstance(error, str) else str(answer.status)
        hint = "; the client secret may have expired" if error == "invalid_client" else ""
        raise SignInRefused(f"the provider refused the code ({named}){hint}")
    return told


def _basic(client_id: str, client_secret: str) -> str:
    """Encoded as a form first (RFC 6749, 2.3.1): either may have a colon in it."""
    pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _is_bearer(token: str) -> bool:
    """What a header can carry."""
    return 0 < len(token) <= _TOKEN_MAX and all("!" <= each <= "~" for each in token)


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _random() -> str:
    return secrets.token_urlsafe(_RANDOM_BYTES)
