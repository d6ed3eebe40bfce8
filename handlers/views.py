"""Records as the JSON that openapi.yaml describes, one function per schema."""

from datetime import UTC, datetime
from typing import Any, Protocol

from control.boundary import Call
from storage.api_keys import ApiKey
from storage.audit import AuditEntry
from storage.changes import Change
from storage.events import Event
from storage.instances import Instance
from storage.organizations import Organization
from storage.pages import Page
from storage.projects import Project
from storage.samples import Sample
from storage.sessions import UserSession
from storage.users import User

Json = dict[str, Any]


class View(Protocol):
    def __call__(self, record: Any, /) -> Json: ...


def page(call: Call, found: Page[Any], view: View) -> Json:
    """One page of a list, with the cursor of the next."""
    after = found.next_after
    return {
        "items": [view(record) for record in found.items],
        "next_cursor": None if after is None else call.cursor_out({"after": after}),
    }


def after(call: Call, cursor: str | None) -> str | None:
    """The id a list goes on after; None at its beginning."""
    position = call.cursor_in(cursor)
    return None if position is None else str(position["after"])


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds."""
    in_utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return in_utc.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def timestamp_or_none(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)


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


def user(record: User) -> Json:
    return {
        "id": record.id,
        "email": record.email,
        "name": record.name,
        "totp_enabled": record.totp_confirmed_at is not None,
        "created_at": timestamp(record.created_at),
    }


def session(
    record: UserSession, *, current: bool, mfa_until: datetime | None, now: datetime
) -> Json:
    stepped_up = mfa_until is not None and mfa_until > now
    return {
        "id": record.id,
        "prefix": record.prefix,
        "current": current,
        "assurance": "mfa" if stepped_up else "none",
        "mfa_expires_at": timestamp_or_none(mfa_until if stepped_up else None),
        "user_agent": record.user_agent,
        "ip": record.ip,
        "created_at": timestamp(record.created_at),
        "last_used_at": timestamp_or_none(record.last_used_at),
        "expires_at": timestamp(record.expires_at),
    }


def organization(record: Organization, role: str) -> Json:
    return {
        "id": record.id,
        "name": record.name,
        "slug": record.slug,
        "default_region": record.default_region,
        "plan": record.plan,
        "status": record.status,
        "require_mfa": record.require_mfa,
        "role": role,
        "created_at": timestamp(record.created_at),
        "closed_at": timestamp_or_none(record.closed_at),
    }


def project(record: Project) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "name": record.name,
        "slug": record.slug,
        "created_at": timestamp(record.created_at),
    }


def api_key(record: ApiKey) -> Json:
    """What may be known of a key at any time; its secret is not among it."""
    return {
        "id": record.id,
        "org_id": record.org_id,
        "name": record.name,
        "prefix": record.prefix,
        "role": record.role,
        "scopes": record.scopes,
        "created_by": record.created_by,
        "created_by_key_id": record.created_by_key_id,
        "service_account": record.service_account_id is not None,
        "suspended_at": timestamp_or_none(record.suspended_at),
        "suspended_reason": record.suspended_reason,
        "created_at": timestamp(record.created_at),
        "expires_at": timestamp_or_none(record.expires_at),
        "last_used_at": timestamp_or_none(record.last_used_at),
    }


def instance(record: Instance) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "project_id": record.project_id,
        "name": record.name,
        "engine": record.engine,
        "engine_version": record.engine_version,
        "size": record.size,
        "region": record.region,
        "placement": record.placement,
        "storage_bytes": record.storage_bytes,
        "maintenance_window": record.maintenance_window,
        "status": record.status,
        "status_reason": record.status_reason,
        "desired_status": record.desired_status,
        "paused_by": record.paused_by,
        "branch_of": record.branch_of,
        "host": record.host,
        "port": record.port,
        "requested_by": record.requested_by,
        "created_at": timestamp(record.created_at),
        "updated_at": timestamp(record.updated_at),
        "ready_at": timestamp_or_none(record.ready_at),
        "purge_after": timestamp_or_none(record.purge_after),
    }


def instance_event(record: Instance) -> Json:
    """The data every event of an instance carries."""
    return {
        "instance_id": record.id,
        "engine": record.engine,
        "version": record.engine_version,
        "size": record.size,
        "region": record.region,
        "placement": record.placement,
        "host": record.host,
        "port": record.port,
    }


def change(record: Change) -> Json:
    return {
        "id": record.id,
        "instance_id": record.instance_id,
        "kind": record.kind,
        "old": record.old,
        "new": record.new,
        "status": record.status,
        "requested_by": record.requested_by,
        "created_at": timestamp(record.created_at),
        "applied_at": timestamp_or_none(record.applied_at),
    }


def metrics_hour(record: Sample) -> Json:
    return {
        "hour": timestamp(record.hour),
        "storage_bytes": record.storage_bytes,
        "memory_bytes": record.memory_bytes,
        "connections_max": record.connections_max,
        "cpu_s": record.cpu_s,
        "running_s": record.running_s,
    }
