"""Roles, service accounts and support grants, as the JSON that openapi.yaml describes."""

from datetime import datetime
from typing import Any

from handlers.instants import timestamp, timestamp_or_none
from storage.access.users import email_shown
from storage.roles.project_members import InProject
from storage.roles.roles import CustomRole, RoleAssignment
from storage.roles.service_accounts import ServiceAccount
from storage.roles.support_grants import SupportGrant
from storage.roles.workload_identities import WorkloadIdentity

Json = dict[str, Any]


def role(record: CustomRole) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "name": record.name,
        "permissions": record.permissions,
        "created_by": record.created_by,
        "created_at": timestamp(record.created_at),
    }


def assignment(record: RoleAssignment) -> Json:
    return {
        "id": record.id,
        "role_id": record.role_id,
        "user_id": record.user_id,
        "team_id": record.team_id,
        "created_by": record.created_by,
        "created_at": timestamp(record.created_at),
    }


def project_member(record: InProject) -> Json:
    return {
        "project_id": record.project_id,
        "user_id": record.user_id,
        "email": email_shown(record.email),
        "name": record.name,
        "role": record.role,
        "created_at": timestamp(record.created_at),
    }


def service_account(record: ServiceAccount) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "name": record.name,
        "role": record.role,
        "created_by": record.created_by,
        "disabled_at": timestamp_or_none(record.disabled_at),
        "created_at": timestamp(record.created_at),
    }


def workload_identity(record: WorkloadIdentity, active: bool, read_at: datetime | None) -> Json:
    return {
        "id": record.id,
        "service_account_id": record.service_account_id,
        "name": record.name,
        "issuer": record.issuer,
        "audience": record.audience,
        "subject": record.subject,
        "active": active,
        "issuer_keys_read_at": timestamp_or_none(read_at),
        "created_by": record.created_by,
        "created_at": timestamp(record.created_at),
    }


def support_grant(record: SupportGrant, now: datetime) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "permissions": record.permissions,
        "instance_ids": record.instance_ids,
        "reason": record.reason,
        "status": record.status(now),
        "created_by": record.created_by,
        "created_at": timestamp(record.created_at),
        "expires_at": timestamp(record.expires_at),
        "revoked_at": timestamp_or_none(record.revoked_at),
    }
