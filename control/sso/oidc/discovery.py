"""What an OpenID Connect provider publishes of itself: endpoints, keys, and what it can do."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from control.access import signed_tokens
from control.access.signed_tokens import Jwk
from control.delivery.receiver_urls import Reach, UrlRefused, receiver_url
from control.sso.providers import Providers, ProviderUnavailable, read_json

CONFIGURATION: Final = "/.well-known/openid-configuration"
ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
"""Asymmetric ones alone, whatever a provider offers beside them."""
_BASIC: Final = "client_secret_basic"
_POST: Final = "client_secret_post"
_REQUIRED: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True)
class Provider:
    """`algorithms` are those that its ID tokens may be signed by, of ALGORITHMS."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    algorithms: tuple[str, ...]
    token_auth: str
    """How the client shows its secret: `client_secret_basic` or `client_secret_post`."""
    names_issuer: bool
    """Whether it says beside each code which issuer it is of (RFC 9207)."""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "algorithms": list(self.algorithms)}

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> "Provider":
        return cls(**{**told, "algorithms": tuple(told["algorithms"])})


def discover(providers: Providers, issuer: str, *, whose: str) -> tuple[Provider, list[Jwk]]:
    """The provider and its keys. Raises ProviderUnavailable, with what is wrong of it."""
    told = read_json(providers, issuer.removesuffix("/") + CONFIGURATION, whose=whose)
    if not isinstance(told, dict):
        raise ProviderUnavailable(f"what is at {issuer}{CONFIGURATION} is no configuration")
    if told.get("issuer") != issuer:
        raise ProviderUnavailable(_another_issuer(told.get("issuer")))
    found = _provider(issuer, told, providers.reach)
    return found, read_keys(providers, found, whose=whose)


def read_keys(providers: Providers, provider: Provider, *, whose: str) -> list[Jwk]:
    published = read_json(providers, provider.jwks_uri, whose=whose)
    try:
        keys = signed_tokens.usable_keys(published, provider.algorithms)
    except ValueError as error:
        raise ProviderUnavailable(f"what is at {provider.jwks_uri} is {error}") from error
    if not keys:
        wanted = ", ".join(provider.algorithms)
        raise ProviderUnavailable(f"{provider.jwks_uri} has no key for {wanted}")
    return keys


def _another_issuer(named: Any) -> str:
    shown = named if isinstance(named, str) and signed_tokens.is_text(named, 300) else "none"
    return (
        f"its configuration names another issuer, {shown}: the issuer of the connection must be"
        " that one, to the letter (of Entra ID: that of your tenant)"
    )


def _provider(issuer: str, told: dict[str, Any], reach: Reach) -> Provider:
    for name in _REQUIRED:
        _check_url(name, told.get(name), reach)
    userinfo = told.get("userinfo_endpoint")
    if userinfo is not None:
        _check_url("userinfo_endpoint", userinfo, reach)
    if "code" not in _listed(told, "response_types_supported", ["code"]):
        raise ProviderUnavailable("it does not offer the authorization code flow")
    return Provider(
        issuer=issuer,
        authorization_endpoint=told["authorization_endpoint"],
        token_endpoint=told["token_endpoint"],
        jwks_uri=told["jwks_uri"],
        userinfo_endpoint=userinfo,
        algorithms=_algorithms(told),
        token_auth=_token_auth(told),
        names_issuer=told.get("authorization_response_iss_parameter_supported") is True,
    )


def _algorithms(told: dict[str, Any]) -> tuple[str, ...]:
    offered = _listed(told, "id_token_signing_alg_values_supported", ["RS256"])
    found = tuple(each for each in ALGORITHMS if each in offered)
    if not found:
        raise ProviderUnavailable(
            f"it signs ID tokens by none of {', '.join(ALGORITHMS)}, which are accepted here"
        )
    return found


def _token_auth(told: dict[str, Any]) -> str:
    offered = _listed(told, "token_endpoint_auth_methods_supported", [_BASIC])
    found = next((each for each in (_BASIC, _POST) if each in offered), None)
    if found is None:
        raise ProviderUnavailable(f"its token endpoint takes neither {_BASIC} nor {_POST}")
    return found


def _listed(told: dict[str, Any], name: str, default: list[str]) -> list[Any]:
    found = told.get(name, default)
    return found if isinstance(found, list) else []


def _check_url(name: str, url: Any, reach: Reach) -> None:
    if not isinstance(url, str):
        raise ProviderUnavailable(f"its configuration has no {name}")
    try:
        receiver_url(url, reach)
    except UrlRefused as refused:
        raise ProviderUnavailable(f"its {name} {refused}") from refused
