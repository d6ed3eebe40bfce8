"""Users, sessions, organizations and what they have, as the JSON that openapi.yaml describes."""

from datetime import datetime
from typing import Any

from control.billing.charges import Spend
from control.policy import budgets
from control.policy.approvals import Policy
from control.policy.months import Month
from control.policy.prices import whole_cents
from handlers.instants import timestamp, timestamp_or_none
from storage.access.api_keys import ApiKey
from storage.access.invites import Invite
from storage.access.memberships import Membership
from storage.access.organizations import Organization
from storage.access.passkeys import Passkey
from storage.access.projects import Project
from storage.access.sessions import UserSession
from storage.access.team_members import InTeam
from storage.access.teams import Team
from storage.access.users import User, email_shown
from storage.instances.of_teams import Live

Json = dict[str, Any]


def user(record: User) -> Json:
    return {
        "id": record.id,
        "email": record.email,
        "name": record.name,
        "totp_enabled": record.totp_confirmed_at is not None,
        "passkeys": record.passkeys,
        "email_verified_at": timestamp_or_none(record.email_verified_at),
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
        "session_max_age_s": record.session_max_age_s,
        "api_key_max_age_s": record.api_key_max_age_s,
        "allowed_email_domains": record.allowed_email_domains,
        "alert_emails": record.alert_emails,
        "role": role,
        "created_at": timestamp(record.created_at),
        "closed_at": timestamp_or_none(record.closed_at),
    }


def passkey(record: Passkey) -> Json:
    return {
        "id": record.id,
        "name": record.name,
        "backed_up": record.is_backed_up,
        "created_at": timestamp(record.created_at),
        "last_used_at": timestamp_or_none(record.last_used_at),
    }


def member(record: Membership, of: User) -> Json:
    return {
        "user_id": of.id,
        "email": of.email,
        "name": of.name,
        "role": record.role,
        "mfa_enabled": of.has_second_factor,
        "created_at": timestamp(record.created_at),
    }


def invite(record: Invite) -> Json:
    """Without its token, which only the letter has."""
    return {
        "id": record.id,
        "org_id": record.org_id,
        "email": record.email,
        "role": record.role,
        "invited_by": record.invited_by,
        "created_at": timestamp(record.created_at),
        "expires_at": timestamp(record.expires_at),
    }


def team(record: Team, members: int) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "name": record.name,
        "slug": record.slug,
        "cost_centre": record.cost_centre,
        "monthly_budget_cents": record.monthly_budget_cents,
        "approval_policy": Policy.of(record.approval_policy).as_json(),
        "is_default": record.is_default,
        "members": members,
        "created_at": timestamp(record.created_at),
    }


def budget(
    team: Team, currency: str, month: Month, spent: Spend, live: Live, as_of: datetime
) -> Json:
    limit = team.monthly_budget_cents
    return {
        "team_id": team.id,
        "month": month.name,
        "as_of": timestamp(as_of),
        "currency": currency,
        "month_to_date_cents": whole_cents(spent.month_to_date),
        "forecast_cents": whole_cents(spent.forecast),
        "monthly_budget_cents": limit,
        "used_percent": budgets.used_percent(spent.month_to_date, limit),
        "forecast_percent": budgets.used_percent(spent.forecast, limit),
        "live_instances": live.instances,
        "live_storage_bytes": live.storage_bytes,
    }


def team_member(record: InTeam) -> Json:
    return {
        "user_id": record.user_id,
        "email": email_shown(record.email),
        "name": record.name,
        "role": record.role,
        "created_at": timestamp(record.created_at),
    }


def project(record: Project) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "team_id": record.team_id,
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
        "workload_identity_id": record.workload_identity_id,
        "suspended_at": timestamp_or_none(record.suspended_at),
        "suspended_reason": record.suspended_reason,
        "created_at": timestamp(record.created_at),
        "expires_at": timestamp_or_none(record.expires_at),
        "last_used_at": timestamp_or_none(record.last_used_at),
    }
