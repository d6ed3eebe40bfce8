"""What a request makes of an SSO connection: its settings and secrets, and whom it lets in."""

from typing import Any

from control.access import role_holders
from control.policy.permissions import ROLES
from control.policy.rights import Rights
from control.policy.sso_connections import DEFAULT_ROLE
from control.policy.violations import refuse, wrong
from control.sso.arrivals import CUSTOM
from control.sso.oidc import records
from control.sso.questions import Discovered
from control.sso.saml import connecting
from control.sso.saml.known import SamlSettings
from handlers.access import reach
from handlers.calls import OrgCall
from specserver import Forbidden
from storage.access import sessions
from storage.roles import roles
from storage.sso import connections, identities
from storage.sso.connections import SsoConnection

Body = dict[str, Any]
_SETTINGS = ("issuer", "client_id", "scopes")


def check_default_role(call: OrgCall, role: str) -> None:
    """Nobody lets others in with more than they have."""
    if not role.startswith(CUSTOM):
        reach.check_role(call, role)
        return
    found = roles.find(call.db, call.org.id, role)
    if found is None:
        refuse([wrong("default_role", "enum", "is not the id of a custom role of yours")])
        return
    reach.check_role(call, DEFAULT_ROLE)
    reach.check_given(call, Rights(frozenset(found.permissions)), "the role has")


def highest_role(call: OrgCall) -> str:
    """The strongest role that holds no more than the caller: of a key, than its scopes leave."""
    for role in (call.caller.role or "", *ROLES):
        given = role_holders.of_role(role, call.org.id, reach.sets_of(call))
        if role in ROLES and not given.beyond(call.caller.rights):
            return role
    raise Forbidden(
        "whom a connection lets in may do as much as you, and you hold less than any role of the"
        " organization: use a session, or a key whose scopes include those of a role",
        code="role_exceeds_yours",
    )


def new(call: OrgCall, body: Body, asked: Discovered | SamlSettings | None) -> SsoConnection:
    made = SsoConnection(
        id=connections.new_id(),
        org_id=call.org.id,
        kind="oidc" if "oidc" in body else "saml",
        name=body["name"],
        default_role=body.get("default_role", DEFAULT_ROLE),
        attribute_mapping=body.get("attribute_mapping", {}),
        trusts_mfa=body.get("trusts_mfa", False),
        highest_role=highest_role(call),
        created_by=call.caller.id,
    )
    _set_up(call, made, body)
    became_known(call, made, asked)
    return made


def _set_up(call: OrgCall, made: SsoConnection, body: Body) -> None:
    if made.kind == "saml":
        sealer = call.services.sealer
        made.status = "pending_verification"
        new = connecting.new_settings(made.id, body["saml"], sealer, call.now)
        made.settings, made.secrets_sealed = new
        return
    made.status, made.settings = "active", {"scopes": list(records.SCOPES)}
    _change_client(call, made, body["oidc"])


def change(
    call: OrgCall, connection: SsoConnection, body: Body, asked: Discovered | SamlSettings | None
) -> None:
    for name in ("name", "default_role", "attribute_mapping", "trusts_mfa"):
        if name in body:
            setattr(connection, name, body[name])
    if body.keys() - {"name", "status"}:
        # Whoever chose last what it says of people answers for whom it lets in.
        connection.highest_role = highest_role(call)
    if "oidc" in body:
        _change_client(call, connection, body["oidc"])
    if "saml" in body:
        chosen = connecting.chosen(body["saml"])
        connection.settings = {**connection.settings, **chosen}
    became_known(call, connection, asked)


def forget_people(call: OrgCall, connection: SsoConnection) -> None:
    """Another provider may call other people by the same names."""
    identities.forget(call.db, connection)
    sessions.revoke_of_connection(call.db, connection.id, call.now)


def told(connection: SsoConnection) -> Body:
    """For the audit log."""
    issuer = connection.settings.get("issuer") or (connection.provider or {}).get("entity_id")
    return {"kind": connection.kind, "issuer": issuer, "default_role": connection.default_role}


def _change_client(call: OrgCall, connection: SsoConnection, oidc: Body) -> None:
    known = connection.settings.get("issuer")
    if known is not None and oidc.get("issuer", known) != known:
        forget_people(call, connection)
    chosen = {name: oidc[name] for name in _SETTINGS if name in oidc}
    connection.settings = {**connection.settings, **chosen}
    if "client_secret" in oidc:
        sealer = call.services.sealer
        connection.secrets_sealed = records.seal(sealer, connection.id, oidc["client_secret"])


def became_known(
    call: OrgCall, connection: SsoConnection, asked: Discovered | SamlSettings | None
) -> None:
    """What the provider says of itself, if it was asked."""
    if isinstance(asked, Discovered):
        connection.became_known(asked.provider.as_json(), asked.keys, call.now)
    elif asked is not None:
        before = (connection.provider or {}).get("entity_id")
        if before is not None and before != asked.entity_id:
            forget_people(call, connection)
        connecting.record_metadata(connection, asked, call.now)
