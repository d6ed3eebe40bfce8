"""Handlers of the tag SSO connections: which identity providers an organization trusts, and how."""

from typing import Any, Final

from control.boundary import AuditedChanges
from control.policy import quotas
from control.policy import sso_connections as rules
from control.policy.violations import refuse
from control.sso import group_grants, provider_alerts
from handlers import paging
from handlers.calls import OrgCall
from handlers.sso import configuring
from handlers.sso.connection_views import sso_connection as view
from specserver import Reply
from storage.access import sessions
from storage.sso import connections, domains, identities
from storage.sso.connections import SsoConnection

Body = dict[str, Any]
_AUDITED: Final = ("name", "status", "default_role", "highest_role", "trusts_mfa")


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    found = connections.page(call.db, call.org.id, limit=limit, after=paging.after(call, cursor))
    return paging.page(call, found, lambda one: view(call, one))


def get(call: OrgCall, sso_connection: SsoConnection) -> Body:
    return view(call, sso_connection)


def create(call: OrgCall, body: Body) -> Reply:
    refuse(rules.check_new(body))
    configuring.check_default_role(call, body.get("default_role", rules.DEFAULT_ROLE))
    refuse(quotas.check_one_more_sso_connection(connections.count(call.db, call.org.id)))
    made = connections.add(call.db, configuring.new(call, body, call.asked))
    provider_alerts.look(call.db, call.org, made, call.now)
    call.audit(target=made.id, detail=configuring.told(made))
    location = f"/v1/orgs/{call.org.id}/sso/connections/{made.id}"
    return Reply.created(view(call, made), location)


def update(call: OrgCall, sso_connection: SsoConnection, body: Body) -> Body:
    refuse(rules.check_change(sso_connection.kind, body))
    changes = AuditedChanges.of(sso_connection, _AUDITED)
    if "default_role" in body:
        configuring.check_default_role(call, body["default_role"])
    configuring.change(call, sso_connection, body, call.asked)
    ended = _switch(call, sso_connection, body.get("status"))
    provider_alerts.look(call.db, call.org, sso_connection, call.now)
    detail = {**configuring.told(sso_connection), "changed": sorted(body), "sessions_ended": ended}
    call.audit(target=sso_connection.id, detail=detail, changes=changes)
    call.db.flush()
    return view(call, sso_connection)


def delete(call: OrgCall, sso_connection: SsoConnection) -> Reply:
    domains.leave_connection(call.db, call.org.id, sso_connection.id)
    ended = sessions.revoke_of_connection(call.db, sso_connection.id, call.now)
    group_grants.forget(call.db, call.org.id, sso_connection.id)
    identities.forget(call.db, sso_connection)
    call.audit(
        target=sso_connection.id,
        detail={**configuring.told(sso_connection), "sessions_ended": ended},
    )
    provider_alerts.forget(call.db, call.org, sso_connection)
    call.db.delete(sso_connection)
    return Reply.no_content()


def _switch(call: OrgCall, connection: SsoConnection, status: str | None) -> int:
    """How many sessions ended by it: whoever disables a connection trusts its provider no more."""
    if status == "active":
        connection.enable()
    if status != "disabled":
        return 0
    domains.refuse_enforced(call.db, call.org.id, connection.id)
    connection.disable()
    return sessions.revoke_of_connection(call.db, connection.id, call.now)
