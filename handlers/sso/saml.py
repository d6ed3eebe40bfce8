"""Handlers of the tag SAML: signing in by a response, and what identity providers read of us."""

from typing import TYPE_CHECKING, Any, Final

import structlog

from control.boundary import Call, identity
from control.sealing import SealError
from control.sso.arrivals import VerifiedIdentity
from control.sso.saml import connecting
from control.sso.saml.reasons import SamlRefused
from handlers.sso.arriving import signed_in
from specserver import NotFound, Reply
from storage.sso import connections, saml_assertions, saml_connections, sign_ins
from storage.sso.connections import SsoConnection
from storage.sso.sign_ins import SsoSignIn

if TYPE_CHECKING:  # whoever uses no SAML does not load what reads XML
    from control.sso.saml.assertions import AssertedIdentity

Body = dict[str, Any]

METADATA_TYPE: Final = "application/samlmetadata+xml"
_log = structlog.get_logger("saml")


def sign_in(call: Call, body: Body) -> Reply:
    connection = _enter(call, body["connection_id"])
    try:
        return signed_in(call, connection, _verified(call, connection, body))
    except SamlRefused as refused:
        # For an operator; nothing of the response, which names people.
        told = {"connection_id": connection.id, "reason": refused.reason, "ip": call.ip}
        _log.warning("saml.refused", **told)
        raise


def metadata(call: Call, saml_connection_id: str) -> Reply:
    connection = saml_connections.shown(call.db, saml_connection_id)
    content = connecting.metadata_xml(connection, call.services.settings.base_url)
    return Reply(200, content, media_type=METADATA_TYPE)


def _enter(call: Call, connection_id: str) -> SsoConnection:
    connection = connections.enter(call.db, connection_id)
    if connection.kind != "saml":
        raise NotFound("SSO connection not found")
    return connection


def _verified(call: Call, connection: SsoConnection, body: Body) -> VerifiedIdentity:
    found = connecting.finish(
        connection,
        call.services.settings.base_url,
        call.services.sealer,
        saml_response=body["saml_response"],
        request_id=_request_id(call, connection, body),
        now=call.now,
    )
    if not saml_assertions.use(call.db, connection, found.assertion_id, found.ends_at):
        raise SamlRefused("replayed")
    return _identity(found)


def _identity(found: "AssertedIdentity") -> VerifiedIdentity:
    return VerifiedIdentity(
        subject=found.subject,
        email=found.email,
        # It speaks for its own people; arrivals ask whether the domain is the organization's.
        email_is_verified=True,
        name=found.name,
        groups=found.groups,
        has_mfa=found.has_mfa,
        authenticated_at=found.authenticated_at,
    )


def _request_id(call: Call, connection: SsoConnection, body: Body) -> str | None:
    """Of the request that this browser's sign-in began with; None where the provider began it."""
    state, browser = body.get("relay_state", ""), body.get("browser_token", "")
    begun = None
    if state and browser:
        hashes = identity.token_sha256(state), identity.token_sha256(browser)
        begun = sign_ins.take(call.db, *hashes, call.now)
    if begun is not None and begun.connection_id != connection.id:
        # What this browser began is another connection's, and stays its.
        raise SamlRefused("sign_in_unknown")
    if begun is not None:
        return _opened(call, connection, begun)
    if connection.settings["allows_idp_initiated"]:
        return None
    raise SamlRefused("sign_in_unknown" if state else "unsolicited")


def _opened(call: Call, connection: SsoConnection, begun: SsoSignIn) -> str:
    try:
        return connecting.request_id_of(begun.sealed, call.services.sealer, begun.state_hash)
    except SealError:
        # Sealed with a key that is not here any more. The next sign-in is sealed with another.
        _log.exception("saml.sign_in_unreadable", connection_id=connection.id)
        raise SamlRefused("sign_in_unknown") from None
