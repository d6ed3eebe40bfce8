"""Handlers of the tag SSO discovery: which provider an address signs in with."""

from typing import Any

from control.boundary import Call
from control.sso import enforcement
from storage.sso import domains
from storage.sso.connections import SsoConnection

Body = dict[str, Any]


def discover(call: Call, email: str) -> Body:
    """By the domain alone: no person is looked up."""
    domain = domains.of_address(call.db, email)
    connection = domains.connection_of(call.db, domain) if domain else None
    return {
        "domain": domains.domain_of(email),
        "is_required": domain is not None and domain.is_enforced,
        "connection": _view(call, connection) if connection else None,
    }


def _view(call: Call, connection: SsoConnection) -> Body:
    url = enforcement.sign_in_url(call.services.settings.base_url, connection.id)
    return {"id": connection.id, "kind": connection.kind, "sign_in_url": url}
