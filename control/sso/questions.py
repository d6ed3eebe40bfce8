"""What operations of single sign-on ask providers, before their transaction begins.

No writer waits for a provider. What came of it goes to the handler, an answer or a problem, so that
a repeated request gets its stored response whatever the provider says by then.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

import structlog

from control.access.signed_tokens import KeyUnknown
from control.policy.violations import refuse, wrong
from control.sealing import SealError
from control.services import Services
from control.sso import rereading
from control.sso.arrivals import VerifiedIdentity
from control.sso.oidc import discovery, records, sign_ins
from control.sso.oidc.discovery import Provider
from control.sso.oidc.id_tokens import ExpectedClaims
from control.sso.oidc.records import OidcClient
from control.sso.oidc.sign_ins import CodeExchange, Pending, SignInRefused
from control.sso.providers import ProvidersBusy, ProviderUnavailable
from control.sso.saml.known import SamlSettings
from specserver import Conflict, Unauthenticated, Unavailable
from storage import tenancy
from storage.sso import connections
from storage.sso import sign_ins as stored
from storage.sso.sign_ins import SsoSignIn

KEYS_EVERY: Final = timedelta(minutes=1)
"""Keys of one provider are read anew no more often, however many unknown ones are named."""
_RETRY_AFTER_S: Final = "5"
_log = structlog.get_logger("sso")


@dataclass(frozen=True)
class Question:
    """A request that asks: its arguments as they were validated, and the organization's id."""

    arguments: Mapping[str, Any]
    org_id: str | None
    now: datetime


@dataclass(frozen=True)
class Completed:
    """A sign-in that the provider confirmed. `settings` are those that it was made with."""

    connection_id: str
    settings: Mapping[str, Any]
    identity: VerifiedIdentity


@dataclass(frozen=True)
class Discovered:
    provider: Provider
    keys: list[dict[str, Any]]


def discover(services: Services, question: Question) -> Discovered | SamlSettings | None:
    """Of a connection that is made or changed. None where no provider needs to be asked."""
    body, org_id = question.arguments["body"], question.org_id
    assert org_id is not None, "connections are an organization's"
    if "oidc" in body:
        issuer = body["oidc"].get("issuer") or _known_issuer(services, org_id, question)
        return None if issuer is None else _discovered(services, issuer, org_id)
    saml = body.get("saml", {})
    if saml.get("metadata_url"):
        content = _fetched(services, saml["metadata_url"], org_id)
        return _metadata(services, content, "metadata_url")
    if "metadata_xml" in saml:
        return _metadata(services, saml["metadata_xml"].encode(), "metadata_xml")
    return None


def _discovered(services: Services, issuer: str, org_id: str) -> Discovered:
    with _told("oidc/issuer"):
        found, keys = discovery.discover(services.providers, issuer, whose=org_id)
        return Discovered(found, keys)


def _fetched(services: Services, url: str, org_id: str) -> bytes:
    with _told("saml/metadata_url"):
        return rereading.fetch_metadata(services.providers, url, whose=org_id)


def _metadata(services: Services, content: bytes, member: str) -> SamlSettings:
    # Who uses no SAML does not load what reads XML.
    from control.sso.saml import metadata  # noqa: PLC0415

    try:
        return metadata.parse(content, allows_http=services.settings.sso_insecure_localhost)
    except metadata.MetadataRefused as refused:
        refuse([wrong(f"saml/{member}", "metadata", f"the metadata {refused}")])
        raise


@contextmanager
def _told(member: str) -> Iterator[None]:
    """What is wrong of a provider, as something wrong with the member that names it."""
    try:
        yield
    except ProvidersBusy:
        raise _busy() from None
    except ProviderUnavailable as error:
        refuse([wrong(member, "provider", f"cannot be used: {error.detail}")])


def complete(services: Services, question: Question) -> Completed:
    """The sign-in that this browser began, which is used by it; who comes by it."""
    body = question.arguments["body"]
    client, pending = _taken(services, body)
    try:
        sign_ins.check_issuer(client.provider, body.get("iss"))
        asking = CodeExchange(services.providers, client)
        redirect_to = sign_ins.redirect_uri(services.settings.base_url)
        answered = asking.tokens(body["code"], pending.verifier, redirect_to)
        expected = ExpectedClaims(client.client_id, pending.nonce, question.now)
        found = _identity(services, client, answered, expected)
    except SignInRefused as refused:
        _refuse(client.connection_id, refused.reason)
    except ProvidersBusy:
        raise _busy() from None
    except ProviderUnavailable as error:
        _log.warning("sso.provider_unavailable", connection=client.connection_id, why=error.detail)
        raise Unavailable(
            f"the identity provider does not answer as it should: {error.detail}",
            code="provider_unavailable",
            headers={"Retry-After": _RETRY_AFTER_S},
        ) from error
    return Completed(client.connection_id, client.settings, found)


def _known_issuer(services: Services, org_id: str, question: Question) -> str | None:
    connection_id = question.arguments.get("connection_id")
    if connection_id is None:
        return None
    with services.database.read() as db:
        tenancy.restrict(db, org_id)
        known = connections.find(db, org_id, connection_id)
        issuer: str | None = known.settings.get("issuer") if known is not None else None
        return issuer


def _taken(services: Services, body: Mapping[str, Any]) -> tuple[OidcClient, Pending]:
    state_hash = sign_ins.sha256(body["state"])
    browser_hash = sign_ins.sha256(body["browser_token"])
    with services.database.write() as db:
        sign_in = stored.take(db, state_hash, browser_hash, services.database.now(db))
        if sign_in is None:
            raise _begun_elsewhere()
        connection = connections.fetch(db, sign_in.org_id, sign_in.connection_id)
        if connection.kind != "oidc" or not connection.is_usable:
            raise Conflict(
                "this SSO connection is disabled, or is none of OpenID Connect",
                code="sso_connection_disabled",
            )
        with records.told_if_unreadable(connection):
            client = records.client_of(connection, services.sealer)
        return client, _opened(services, sign_in)


def _opened(services: Services, sign_in: SsoSignIn) -> Pending:
    try:
        return sign_ins.opened(sign_in, services.sealer)
    except SealError:
        # Sealed with a key that is not here any more. The next sign-in is sealed with another.
        _log.exception("sso.sign_in_unreadable", connection=sign_in.connection_id)
        raise _begun_elsewhere() from None


def _identity(
    services: Services, client: OidcClient, answered: Mapping[str, Any], expected: ExpectedClaims
) -> VerifiedIdentity:
    """By the keys that are known; by new ones, where an unknown one signed."""
    asking = CodeExchange(services.providers, client)
    try:
        return asking.identity(answered, expected)
    except KeyUnknown as unknown:
        keys = _keys_anew(services, client)
        if keys is None:
            raise SignInRefused(f"the ID token was refused: {unknown.reason}") from None
    try:
        return CodeExchange(services.providers, client.with_keys(keys)).identity(answered, expected)
    except KeyUnknown as unknown:
        raise SignInRefused(f"the ID token was refused: {unknown.reason}") from None


def _keys_anew(services: Services, client: OidcClient) -> list[dict[str, Any]] | None:
    """What the provider publishes now; None where it was asked for it just before."""
    with services.database.write() as db:
        tenancy.restrict(db, client.org_id)
        connection = connections.fetch(db, client.org_id, client.connection_id, lock=True)
        now = services.database.now(db)
        if connection.keys_tried_at is not None and connection.keys_tried_at > now - KEYS_EVERY:
            # Another request may have read them meanwhile.
            return connection.keys if connection.keys != client.keys else None
        connection.keys_tried_at = now
    keys = sign_ins.refreshed_keys(services.providers, client)
    with services.database.write() as db:
        tenancy.restrict(db, client.org_id)
        connection = connections.fetch(db, client.org_id, client.connection_id, lock=True)
        if connection.settings == client.settings:
            connection.keys = keys
    return keys


def _refuse(connection_id: str, reason: str) -> NoReturn:
    _log.warning("sso.refused", connection=connection_id, why=reason)
    raise Unauthenticated(f"the sign-in was refused: {reason}", code="sso_refused") from None


def _begun_elsewhere() -> Unauthenticated:
    return Unauthenticated(
        "this sign-in was not begun in this browser, was completed already, or was begun more than"
        " 10 minutes ago: begin anew",
        code="sso_refused",
    )


def _busy() -> Unavailable:
    return Unavailable(
        "too many sign-ins wait for identity providers at this moment; try again",
        code="provider_busy",
        headers={"Retry-After": _RETRY_AFTER_S},
    )
