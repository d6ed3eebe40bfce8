"""Owns the check of credentials by the document's security schemes, for apps with no boundary."""

import base64
import binascii
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from specserver.connexion_seam import (
    ApiKeySecurityHandler,
    BasicSecurityHandler,
    BearerSecurityHandler,
    SecurityHandlerFactory,
)
from specserver.document import DocumentInvalid
from specserver.operations import Operation
from specserver.parameters import read_query
from specserver.problems import Unauthenticated
from specserver.requests import Request

Verifier = Callable[..., Any]
# What a scheme finds in a request: the arguments for its verifier, or None where it is not used.
Credential = Callable[[Request], tuple[str, ...] | None]

_VERIFIER = "x-specserver-verifier"


class Authenticated(NamedTuple):
    principal: Any
    scheme: str


class Check(NamedTuple):
    """One scheme of one requirement."""

    name: str
    credential: Credential
    verifier: Verifier
    wants_request: bool

    def call(self, request: Request) -> Any:
        """The principal, None for a refused credential, or an awaitable of either."""
        found = self.credential(request)
        if found is None:
            return None
        return (
            self.verifier(*found, request=request) if self.wants_request else self.verifier(*found)
        )


class _Bearer(BearerSecurityHandler):  # type: ignore[misc]  # connexion is untyped
    def get_fn(self, security_scheme: dict[str, Any], _scopes: list[str]) -> Check:
        return _check(security_scheme, bearer_token)


class _Basic(BasicSecurityHandler):  # type: ignore[misc]  # connexion is untyped
    def get_fn(self, security_scheme: dict[str, Any], _scopes: list[str]) -> Check:
        return _check(security_scheme, basic_credential)


class _ApiKey(ApiKeySecurityHandler):  # type: ignore[misc]  # connexion is untyped
    def get_fn(self, security_scheme: dict[str, Any], _scopes: list[str]) -> Check:
        return _check(security_scheme, _key_in(security_scheme["in"], security_scheme["name"]))


# Connexion's table of scheme kinds; its own entries rebuild coroutines on every request.
SECURITY_MAP = {"bearer": _Bearer, "basic": _Basic, "apiKey": _ApiKey, "openIdConnect": _Bearer}


class Security:
    """The requirements of one operation: any one of them will do, and each may ask for several."""

    def __init__(
        self,
        operation: Operation,
        verifiers: Mapping[str, Verifier],
        security_map: Mapping[str, Any] | None = None,
    ) -> None:
        factory = SecurityHandlerFactory(dict(security_map or SECURITY_MAP))
        self.requirements: list[list[Check]] = [
            [_parse(factory, operation, name, scopes, verifiers) for name, scopes in needed.items()]
            for needed in operation.security
        ]
        self._challenge = _challenge(operation)

    def authenticate(self, request: Request) -> Authenticated | Awaitable[Authenticated]:
        """Who is calling; an awaitable where a verifier is asynchronous."""
        for position, requirement in enumerate(self.requirements):
            passed: list[Authenticated] = []
            for check in requirement:
                principal = check.call(request)
                if hasattr(principal, "__await__"):
                    return self._finish(request, position)
                if principal is None:
                    break
                passed.append(Authenticated(principal, check.name))
            else:
                return passed[0] if passed else Authenticated(None, "")
        raise Unauthenticated(headers={"WWW-Authenticate": self._challenge})

    async def _finish(self, request: Request, position: int) -> Authenticated:
        for requirement in self.requirements[position:]:
            passed: list[Authenticated] = []
            for check in requirement:
                principal = check.call(request)
                if hasattr(principal, "__await__"):
                    principal = await principal
                if principal is None:
                    break
                passed.append(Authenticated(principal, check.name))
            else:
                return passed[0] if passed else Authenticated(None, "")
        raise Unauthenticated(headers={"WWW-Authenticate": self._challenge})


def _parse(
    factory: SecurityHandlerFactory,
    operation: Operation,
    name: str,
    scopes: list[str],
    verifiers: Mapping[str, Verifier],
) -> Check:
    if name not in operation.security_schemes:
        raise DocumentInvalid(
            f"{operation.id} requires security scheme {name}, which the document does not define"
        )
    if name not in verifiers:
        raise DocumentInvalid(f"security scheme {name} of {operation.id} has no verifier")
    scheme = operation.security_schemes[name] | {"x-name": name, _VERIFIER: verifiers[name]}
    check = factory.parse_security_scheme(scheme, scopes)
    if not isinstance(check, Check):
        raise DocumentInvalid(f"security scheme {name} is of a kind that cannot be checked")
    return check


def _check(scheme: dict[str, Any], credential: Credential) -> Check:
    verifier = scheme[_VERIFIER]
    wants_request = "request" in inspect.signature(verifier).parameters
    return Check(scheme["x-name"], credential, verifier, wants_request)


def bearer_token(request: Request) -> tuple[str, ...] | None:
    raw = request.headers.raw(b"authorization")
    if raw is None or raw[:7].lower() != b"bearer ":
        return None
    return (raw[7:].strip().decode("latin-1"),)


def basic_credential(request: Request) -> tuple[str, ...] | None:
    """User name and password, or None where there is no readable Basic credential."""
    raw = request.headers.raw(b"authorization")
    if raw is None or raw[:6].lower() != b"basic ":
        return None
    try:
        name, colon, password = (
            base64.b64decode(raw[6:].strip(), validate=True).decode().partition(":")
        )
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if colon else None


def _key_in(place: str, name: str) -> Credential:
    header = name.lower().encode()

    def credential(request: Request) -> tuple[str, ...] | None:
        if place == "header":
            raw = request.headers.raw(header)
            return None if raw is None else (raw.decode("latin-1"),)
        if place == "cookie":
            found = request.cookies.get(name)
            return None if found is None else (found,)
        texts = read_query(request.scope["query_string"]).get(name)
        return (texts[0],) if texts and len(texts) == 1 else None

    return credential


def _challenge(operation: Operation) -> str:
    names = {name for requirement in operation.security for name in requirement}
    kinds = []
    for name in sorted(names):
        scheme = operation.security_schemes.get(name, {})
        if scheme.get("type") == "http":
            kinds.append(scheme["scheme"].capitalize())
        elif scheme.get("type") in ("oauth2", "openIdConnect"):
            kinds.append("Bearer")
        else:
            kinds.append("ApiKey")
    challenges = [f'{kind} realm="api"' for kind in dict.fromkeys(kinds)]
    return ", ".join(challenges) or "Bearer"
