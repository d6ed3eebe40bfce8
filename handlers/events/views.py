"""Entries of the audit log and events as the JSON that openapi.yaml describes."""

from typing import Any

from handlers.instants import timestamp
from storage.events.audit import AuditEntry
from storage.events.events import Event

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
    }


def event(told: Event) -> Json:
    """The envelope in which every event is sent."""
    return {
        "id": told.id,
        "type": told.type,
        "time": timestamp(told.time),
        "org_id": told.org_id,
        "data": told.data,
    }
