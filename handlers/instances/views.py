"""Instances, their changes and their hours as the JSON that openapi.yaml describes."""

from typing import Any

from handlers.instants import timestamp, timestamp_or_none
from storage.instances.changes import Change
from storage.instances.instances import Instance, told_of
from storage.instances.samples import Sample

Json = dict[str, Any]


def instance(record: Instance) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "project_id": record.project_id,
        "team_id": record.team_id,
        "name": record.name,
        "engine": record.engine,
        "engine_version": record.engine_version,
        "size": record.size,
        "region": record.region,
        "placement": record.placement,
        "storage_bytes": record.storage_bytes,
        "maintenance_window": record.maintenance_window,
        "status": record.status,
        "status_reason": told_of(record),
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
