"""Handlers of the tag Enterprise SSO: whether SSO and SCIM are set up, and SAML's metadata."""

from typing import Any, Final

from control.policy import quotas
from control.policy import sso_connections as rules
from control.policy.violations import refuse, wrong
from control.sso import provider_alerts
from control.sso.saml import connecting
from control.sso.saml.known import SamlSettings
from handlers.calls import OrgCall
from handlers.sso import configuring
from handlers.sso.saml_views import saml_connection
from storage.sso import connections, saml_connections, scim_tokens
from storage.sso.connections import SsoConnection

Body = dict[str, Any]

_NAME: Final = "SAML"


def get(call: OrgCall) -> Body:
    return _shown(call)


def replace(call: OrgCall, body: Body) -> Body:
    told = _parsed(call, body["metadata_xml"]) if "metadata_xml" in body else None
    found = connections.of_kind(call.db, call.org.id, "saml")
    connection = found[0] if found else _made(call)
    connection.settings = {**connection.settings, **connecting.chosen(body)}
    connection.highest_role = configuring.highest_role(call)
    configuring.became_known(call, connection, told)
    provider_alerts.look(call.db, call.org, connection, call.now)
    detail = {"issuer": told.entity_id} if told else {}
    call.audit(target=connection.id, detail={**detail, **connecting.chosen(body)})
    call.db.flush()
    return _shown(call)


def _parsed(call: OrgCall, xml: str) -> SamlSettings:
    # Who uses no SAML does not load what reads XML.
    from control.sso.saml import metadata  # noqa: PLC0415

    is_here = call.services.providers.reach.here
    try:
        return metadata.parse(xml.encode(), allows_http=is_here)
    except metadata.MetadataRefused as refused:
        refuse([wrong("metadata_xml", "metadata", f"the metadata {refused}")])
        raise


def _made(call: OrgCall) -> SsoConnection:
    configuring.check_default_role(call, rules.DEFAULT_ROLE)
    refuse(quotas.check_one_more_sso_connection(connections.count(call.db, call.org.id)))
    return connections.add(call.db, configuring.new(call, {"name": _NAME, "saml": {}}, None))


def _shown(call: OrgCall) -> Body:
    found = saml_connections.statuses(call.db, call.org.id)
    saml = connections.of_kind(call.db, call.org.id, "saml")
    tokens = scim_tokens.count(call.db, call.org.id, call.now)
    base_url = call.services.settings.base_url
    return {
        "org_id": call.org.id,
        "sso": {"status": _status(found), "connections": len(found)},
        "scim": {"status": "active" if tokens else "not_configured", "tokens": tokens},
        "saml": saml_connection(saml[0], base_url, call.now) if saml else None,
    }


def _status(found: list[str]) -> str:
    """The one that says most."""
    for status in ("active", "pending_verification", "disabled"):
        if status in found:
            return status
    return "not_configured"
