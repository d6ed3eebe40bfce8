"""Handlers of the tag SSO sign-ins: the way to an identity provider, and back from it."""

import secrets
from typing import Any, Final

from control.boundary import Call
from control.boundary.addresses import rate_key
from control.sso.oidc import records
from control.sso.oidc import sign_ins as oidc
from control.sso.oidc.records import OidcClient
from control.sso.oidc.sign_ins import Begun
from control.sso.questions import Completed
from control.sso.saml import connecting
from handlers.sso.arriving import signed_in
from specserver import Conflict, Reply
from storage.access import organizations
from storage.sso import connections, sign_ins
from storage.sso.connections import SsoConnection

Body = dict[str, Any]
_RANDOM_BYTES: Final = 32


def create(call: Call, body: Body) -> Reply:
    connection = connections.enter(call.db, body["connection_id"], lock_org=False)
    _refuse_shut(call, connection)
    if connection.kind == "oidc":
        begun = _begin_oidc(call, connection, body.get("login_hint"))
    else:
        begun = _begin_saml(call, connection)
    sign_ins.begin(call.db, begun.record, call.now)
    answer = {"redirect_url": begun.redirect_url, "browser_token": begun.browser_token}
    return Reply(201, {"kind": connection.kind, **answer, "expires_in_s": sign_ins.TTL_S})


def complete(call: Call, body: Body) -> Reply:  # noqa: ARG001 -- x-asks has read it
    completed: Completed = call.asked
    connection = connections.enter(call.db, completed.connection_id)
    if connection.settings != completed.settings:
        raise Conflict(
            "the connection was changed while you signed in; begin anew", code="conflict"
        )
    return signed_in(call, connection, completed.identity)


def _refuse_shut(call: Call, connection: SsoConnection) -> None:
    """Before anybody is sent away, to be refused when they come back."""
    if not connection.is_usable:
        raise Conflict(
            "this SSO connection is disabled; an administrator of the organization can enable it",
            code="sso_connection_disabled",
        )
    if organizations.fetch(call.db, connection.org_id).status == "closed":
        raise Conflict("the organization is closed and read-only", code="org_closed")


def _begin_oidc(call: Call, connection: SsoConnection, login_hint: str | None) -> Begun:
    sealer = call.services.sealer
    return oidc.begin(
        _client(call, connection),
        sealer,
        redirect_to=oidc.redirect_uri(call.services.settings.base_url),
        place=rate_key(call.ip),
        login_hint=login_hint,
        now=call.now,
    )


def _client(call: Call, connection: SsoConnection) -> OidcClient:
    with records.told_if_unreadable(connection):
        return records.client_of(connection, call.services.sealer)


def _begin_saml(call: Call, connection: SsoConnection) -> Begun:
    state, browser = (secrets.token_urlsafe(_RANDOM_BYTES) for _ in range(2))
    sealer, base_url = call.services.sealer, call.services.settings.base_url
    begun = connecting.begin(connection, base_url, sealer, relay_state=state, now=call.now)
    record = oidc.new_record(
        state,
        browser,
        org_id=connection.org_id,
        connection_id=connection.id,
        sealed=connecting.seal_request(begun, sealer, oidc.sha256(state)),
        place=rate_key(call.ip),
        now=call.now,
    )
    return Begun(record, begun.redirect_url, browser)
