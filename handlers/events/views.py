"""Entries of the audit log, alerts and webhooks as the JSON that openapi.yaml describes."""

from datetime import datetime
from typing import Any

from control.events.kinds import EventKind
from handlers.instants import timestamp, timestamp_or_none
from storage.events.alerts import Alert
from storage.events.audit import AuditEntry
from storage.events.audit_publications import PublishedHead
from storage.events.delivery_lanes import DeliveryLane
from storage.events.siem_deliveries import SiemDelivery
from storage.events.webhook_deliveries import WebhookDelivery
from storage.events.webhook_endpoints import WebhookEndpoint

Json = dict[str, Any]


def audit_entry(entry: AuditEntry) -> Json:
    return {
        "id": entry.id,
        "time": timestamp(entry.created_at),
        "action": entry.action,
        "actor_kind": entry.actor_kind,
        "actor_id": entry.actor_id,
        "target": entry.target,
        "request_id": entry.request_id,
        "ip": entry.ip,
        "detail": entry.detail,
        "seq": entry.seq,
        "hash": entry.hash,
    }


def published_head(head: PublishedHead) -> Json:
    return {
        "id": head.id,
        "chain": head.chain,
        "seq": head.seq,
        "hash": head.hash,
        "time": timestamp(head.published_at),
        "signature": head.signature,
        "public_key": head.public_key,
    }


def alert(record: Alert) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "kind": record.kind,
        "severity": record.severity,
        "title": record.title,
        "reason": record.reason,
        "team_id": record.team_id,
        "instance_id": record.instance_id,
        "occurrences": record.occurrences,
        "created_at": timestamp(record.created_at),
        "last_at": timestamp(record.last_at),
        "resolved_at": timestamp_or_none(record.resolved_at),
        "acknowledged": record.acknowledged_at is not None,
        "acknowledged_at": timestamp_or_none(record.acknowledged_at),
        "acknowledged_by": record.acknowledged_by,
    }


def siem_delivery(record: SiemDelivery) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "format": record.format,
        "target": {"kind": record.kind, **record.target},
        "enabled": record.enabled,
        "status": record.status,
        "failing_since": timestamp_or_none(record.failing_since),
        "last_error": record.last_error,
        "last_delivered_at": timestamp_or_none(record.last_delivered_at),
        "created_by": record.created_by,
        "created_at": timestamp(record.created_at),
    }


def webhook(record: WebhookEndpoint, lane: DeliveryLane, now: datetime) -> Json:
    """Never its secrets."""
    overlaps = record.previous_until is not None and record.previous_until > now
    return {
        "id": record.id,
        "org_id": record.org_id,
        "url": record.url,
        "description": record.description,
        "events": record.events,
        "filters": record.filters,
        "enabled": record.enabled,
        "disabled_at": timestamp_or_none(record.disabled_at),
        "disabled_reason": record.disabled_reason,
        "failing_since": timestamp_or_none(lane.failing_since),
        "secret_overlap_until": timestamp_or_none(record.previous_until if overlaps else None),
        "created_by": record.created_by,
        "created_at": timestamp(record.created_at),
    }


def webhook_delivery(record: WebhookDelivery) -> Json:
    return {
        "id": record.id,
        "webhook_id": record.webhook_id,
        "event_id": record.event_id,
        "event_type": record.event_type,
        "status": record.status,
        "attempt_count": record.attempt_count,
        "attempts": record.attempts,
        "next_attempt_at": timestamp_or_none(record.next_attempt_at),
        "created_at": timestamp(record.created_at),
    }


def event_kind(kind: EventKind) -> Json:
    return {
        "type": kind.name,
        "summary": kind.summary,
        "description": kind.description,
        "about_instance": kind.about_instance,
        "sent_to": list(kind.sent_to),
        "data_schema": kind.data_schema,
        "example": kind.example,
    }
