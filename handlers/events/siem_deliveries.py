"""SIEM deliveries: where the audit log and the events of an organization are sent."""

from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from control.events import resolve
from control.policy import quotas
from control.policy import siem as policy
from control.policy.alert_kinds import SIEM
from control.policy.violations import refuse
from control.siem import targets
from control.webhooks import sending
from handlers import instants, paging
from handlers.calls import OrgCall
from handlers.events import views
from specserver import Reply
from storage import identifiers
from storage.events import siem_deliveries
from storage.events.siem_deliveries import SiemDelivery

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = siem_deliveries.page(call.db, call.org.id, limit=limit, after=after)
    return paging.page(call, found, views.siem_delivery)


def create(call: OrgCall, body: Body) -> Reply:
    begin_at = _beginning(call, body.get("begin_at"))
    shown, secrets = _target(call, body["target"])
    refuse(quotas.check_one_more_siem_delivery(siem_deliveries.count(call.db, call.org.id)))
    made = _record(call, body, shown, secrets)
    siem_deliveries.add(call.db, made, begin_at, call.now)
    call.audit(target=made.id, detail={"format": made.format, "kind": made.kind, **_told(shown)})
    secret = secrets.get(targets.SIGNING_SECRET)
    return Reply.created({**views.siem_delivery(made), "signing_secret": secret})


def delete(call: OrgCall, siem_delivery: SiemDelivery) -> Reply:
    siem_deliveries.remove(call.db, siem_delivery)
    resolve(call.db, call.org, [SIEM], cause=siem_delivery.id)
    call.audit(target=siem_delivery.id, detail=_told(siem_delivery.target))
    return Reply.no_content()


def switch(call: OrgCall, siem_delivery: SiemDelivery, action: str) -> Body:
    held = siem_deliveries.switch(call.db, siem_delivery, action == "enable", call.now)
    if action == "disable":
        resolve(call.db, call.org, [SIEM], cause=held.id)
    call.audit(target=held.id, detail={"action": action, **_told(held.target)})
    return views.siem_delivery(held)


def _record(call: OrgCall, body: Body, shown: Body, secrets: dict[str, str]) -> SiemDelivery:
    delivery_id = identifiers.new("siem_")
    return SiemDelivery(
        id=delivery_id,
        org_id=call.org.id,
        format=body["format"],
        kind=body["target"]["kind"],
        target=shown,
        sealed=targets.seal(call.services.sealer, delivery_id, secrets),
        created_by=call.caller.id,
    )


def _target(call: OrgCall, target: Body) -> tuple[Body, dict[str, str]]:
    """What of it is shown, and its secrets."""
    refuse(policy.check_target(target))
    refuse(targets.check_places(target, sending.reach_of(call.services)))
    secrets: dict[str, str] = {name: target[name] for name in targets.SECRETS if name in target}
    if target["kind"] == "webhook":
        secrets[targets.SIGNING_SECRET] = sending.new_secret()
        return {"header_name": None, **_shown(target, "url", "header_name")}, secrets
    shown = _shown(target, "bucket", "prefix", "region", "endpoint")
    return {"prefix": "", "endpoint": None, **shown}, secrets


def _shown(target: Body, *names: str) -> Body:
    return {name: target[name] for name in names if name in target}


def _told(shown: Body) -> Body:
    """Where it goes; a path or a query may hold a token."""
    if "url" in shown:
        return {"host": urlsplit(shown["url"]).hostname or ""}
    return {"bucket": shown["bucket"], "endpoint": shown["endpoint"]}


def _beginning(call: OrgCall, text: str | None) -> datetime | None:
    if text is None:
        return None
    begin_at = instants.read(text, pointer="/begin_at")
    if begin_at > call.now:
        message = "must not be in the future; leave it out to begin now"
        raise instants.refused(message, keyword="range", pointer="/begin_at")
    return begin_at
