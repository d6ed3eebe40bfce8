"""Alerts: what the people of an organization should look at."""

from typing import Any

from handlers import paging
from handlers.calls import OrgCall
from handlers.events import views
from storage.events import alerts
from storage.events.alerts import Alert

Body = dict[str, Any]


def list_(
    call: OrgCall,
    limit: int,
    include_acknowledged: bool,
    include_resolved: bool,
    min_severity: str,
    cursor: str | None = None,
    kind: str | None = None,
    instance_id: str | None = None,
) -> Body:
    found = alerts.page(
        call.db,
        call.org.id,
        scope=call.scope,
        severities=alerts.at_least(min_severity),
        with_acknowledged=include_acknowledged,
        with_resolved=include_resolved,
        limit=limit,
        after=paging.after(call, cursor),
        kind=kind,
        instance_id=instance_id,
    )
    return paging.page(call, found, views.alert)


def acknowledge(call: OrgCall, alert: Alert) -> Body:
    alert.acknowledge(call.caller.id, call.now)
    about = {"team_id": alert.team_id, "instance_id": alert.instance_id}
    call.audit(target=alert.id, detail={"kind": alert.kind, **about})
    return views.alert(alert)
