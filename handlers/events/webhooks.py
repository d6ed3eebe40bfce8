"""Webhook endpoints: where events are sent to, and what came of it."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from control.boundary import AuditedChanges
from control.delivery.backoff import HORIZON
from control.delivery.receiver_urls import UrlRefused, receiver_url
from control.events import resolve
from control.events.kinds import kinds_of, sent
from control.policy import event_patterns, quotas
from control.policy import webhooks as policy
from control.policy.alert_kinds import WEBHOOK
from control.policy.violations import Violation, refuse, wrong
from control.webhooks import sending
from handlers import instants, paging
from handlers.calls import OrgCall
from handlers.events import views
from specserver import Conflict, Reply
from storage.errors import RecordNotFound
from storage.events import (
    delivery_lanes,
    events,
    webhook_deliveries,
    webhook_endpoints,
    webhook_filters,
)
from storage.events.webhook_deliveries import DeliveryFilter, WebhookDelivery
from storage.events.webhook_endpoints import WebhookEndpoint

AUDITED: Final = frozenset({"events", "filters", "enabled"})
"""What the audit log tells the former value of: a URL may hold a token."""

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = webhook_endpoints.page(call.db, call.org.id, limit=limit, after=after)
    lanes = delivery_lanes.of(call.db, [one.id for one in found.items])
    # One that was deleted since the page was read is left out.
    there = replace(found, items=[one for one in found.items if one.id in lanes])
    return paging.page(call, there, lambda one: views.webhook(one, lanes[one.id], call.now))


def get(call: OrgCall, webhook: WebhookEndpoint) -> Body:
    return _shown(call, webhook)


def create(call: OrgCall, body: Body) -> Reply:
    refuse(quotas.check_one_more_webhook(webhook_endpoints.count(call.db, call.org.id)))
    _check(call, body)
    made_id, secret = webhook_endpoints.new_id(), sending.new_secret()
    chosen = {"description": "", "filters": {}, "enabled": True, **body}
    sealed = call.services.sealer.seal(secret.encode(), sending.secret_context(made_id))
    of = {**chosen, "secret_sealed": sealed, "created_by": call.caller.id}
    made = webhook_endpoints.create(call.db, made_id, call.org.id, call.now, **of)
    call.audit(target=made.id, detail=_told(body))
    shown = {**_shown(call, made), "secret": secret}
    return Reply.created(shown, f"/v1/orgs/{call.org.id}/webhooks/{made.id}")


def update(call: OrgCall, webhook: WebhookEndpoint, body: Body) -> Body:
    _check(call, body)
    lane = webhook_endpoints.hold(call.db, webhook)
    changes = AuditedChanges.of(webhook, body.keys() & AUDITED)
    for name in body.keys() - {"enabled"}:
        setattr(webhook, name, body[name])
    told = _told(body)
    if body.get("enabled") is True:
        webhook.enable(call.db, call.now)
        resolve(call.db, call.org, [WEBHOOK], cause=webhook.id)
    elif body.get("enabled") is False and webhook.enabled:
        webhook.disable(lane, call.now, None)
        told["deliveries_dropped"] = webhook_deliveries.drop_pending(call.db, webhook)
    call.audit(target=webhook.id, detail=told, changes=changes)
    return _shown(call, webhook)


def delete(call: OrgCall, webhook: WebhookEndpoint) -> Reply:
    webhook_endpoints.delete(call.db, webhook)
    resolve(call.db, call.org, [WEBHOOK], cause=webhook.id)
    call.audit(target=webhook.id, detail={"host": _host(webhook.url)})
    return Reply.no_content()


def rotate_secret(call: OrgCall, webhook: WebhookEndpoint, body: Body) -> Body:
    overlap_s, secret = body.get("overlap_seconds", 86_400), sending.new_secret()
    context = sending.secret_context(webhook.id)
    # Of two at once the second replaces the secret of the first, which signs on as the former one.
    webhook_endpoints.hold(call.db, webhook)
    sealed = call.services.sealer.seal(secret.encode(), context)
    webhook.rotate(sealed, call.now + timedelta(seconds=overlap_s))
    call.audit(target=webhook.id, detail={"overlap_seconds": overlap_s})
    return {**_shown(call, webhook), "secret": secret}


def test(call: OrgCall, webhook: WebhookEndpoint) -> Reply:
    lane = _lane(call, webhook)
    made = webhook_deliveries.ping(call.db, webhook, call.now)
    lane.try_again_at(call.now)
    events.wake(call.db, call.org.id)
    call.audit(target=webhook.id, detail={"delivery_id": made.id})
    return Reply.accepted(views.webhook_delivery(made))


def redeliver(call: OrgCall, webhook: WebhookEndpoint, body: Body) -> Reply:
    lane = _lane(call, webhook)
    count = _redelivered(call, webhook, body)
    if count:
        lane.try_again_at(call.now)
        events.wake(call.db, call.org.id)
    names = ("delivery_id", "from", "to", "include_succeeded")
    chosen = {name: body[name] for name in names if name in body}
    call.audit(target=webhook.id, detail={**chosen, "deliveries": count})
    return Reply.accepted({"deliveries": count})


def deliveries(
    call: OrgCall,
    webhook: WebhookEndpoint,
    limit: int,
    cursor: str | None = None,
    status: str | None = None,
    event_type: str | None = None,
) -> Body:
    chosen, after = DeliveryFilter(status, event_type), paging.after(call, cursor)
    found = webhook_deliveries.page(call.db, webhook, chosen, limit=limit, after=after)
    return paging.page(call, found, views.webhook_delivery)


def get_delivery(
    _call: OrgCall, webhook: WebhookEndpoint, webhook_delivery: WebhookDelivery
) -> Body:
    assert webhook_delivery.webhook_id == webhook.id
    return views.webhook_delivery(webhook_delivery)


def _shown(call: OrgCall, webhook: WebhookEndpoint) -> Body:
    return views.webhook(webhook, delivery_lanes.fetch(call.db, webhook.id), call.now)


def _told(body: Body) -> Body:
    """For the audit log: what was chosen, but no free text; a URL may hold a token."""
    told: Body = {name: body[name] for name in ("events", "enabled") if name in body}
    told |= {"host": _host(body["url"])} if "url" in body else {}
    return told | ({"filters": sorted(body["filters"])} if "filters" in body else {})


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _check(call: OrgCall, body: Body) -> None:
    found = _url_faults(call, body)
    if "events" in body:
        kinds = sent(kinds_of(call.exchange.public_document), "webhooks")
        found += [
            wrong(f"events/{fault.index}", "enum", fault.message)
            for fault in event_patterns.faults(body["events"], kinds)
        ]
    if "filters" in body:
        known = webhook_filters.known(call.db, call.org.id, body["filters"])
        found += policy.check_filters(body["filters"], known)
    refuse(found, "the endpoint is invalid in {} places")


def _url_faults(call: OrgCall, body: Body) -> list[Violation]:
    try:
        if "url" in body:
            receiver_url(body["url"], sending.reach_of(call.services))
    except UrlRefused as refused:
        return [wrong("url", "format", f"the URL {refused}")]
    return []


def _lane(call: OrgCall, webhook: WebhookEndpoint) -> delivery_lanes.DeliveryLane:
    """Locked. Raises Conflict where nothing is sent to it."""
    lane = webhook_endpoints.hold(call.db, webhook)
    if lane.due is None:
        raise Conflict("the webhook endpoint is disabled; enable it first")
    return lane


def _redelivered(call: OrgCall, webhook: WebhookEndpoint, body: Body) -> int:
    if "delivery_id" in body:
        return _redelivered_one(call, webhook, body["delivery_id"])
    since, until = _span(body)
    statuses = ["failed", "dropped"]
    statuses += ["succeeded"] if body.get("include_succeeded") else []
    span = (since, until, statuses)
    refuse(quotas.check_redelivered(webhook_deliveries.count_span(call.db, webhook, *span)))
    return webhook_deliveries.redeliver_span(call.db, webhook, *span, call.now, HORIZON)


def _redelivered_one(call: OrgCall, webhook: WebhookEndpoint, delivery_id: str) -> int:
    try:
        one = webhook_deliveries.fetch(call.db, webhook, delivery_id, lock=True)
    except RecordNotFound:
        refuse([wrong("delivery_id", "enum", "the endpoint has no delivery of this id")])
        raise
    one.redeliver(call.now, HORIZON)
    return 1


def _span(body: Body) -> tuple[datetime, datetime]:
    missing = [name for name in ("from", "to") if name not in body]
    message = "is required where no delivery_id is given"
    refuse([wrong(name, "required", f"{name} {message}") for name in missing])
    since, until = (instants.read(body[name], pointer=f"/{name}") for name in ("from", "to"))
    if until <= since:
        refuse([wrong("to", "minimum", "to must be later than from")])
    return since, until
