"""SCIM tokens and groups as JSON."""

from typing import Any

from handlers import instants
from storage.sso.scim_groups import ScimGroup
from storage.sso.scim_tokens import ScimToken

Json = dict[str, Any]


def token(record: ScimToken) -> Json:
    return {
        "id": record.id,
        "org_id": record.org_id,
        "name": record.name,
        "prefix": record.prefix,
        "default_role": record.default_role,
        "created_by": record.created_by,
        "created_at": instants.timestamp(record.created_at),
        "expires_at": instants.timestamp_or_none(record.expires_at),
        "last_used_at": instants.timestamp_or_none(record.last_used_at),
    }


def group(record: ScimGroup, members: int) -> Json:
    team = {"team_id": record.team_id, "role": record.team_role} if record.team_id else None
    return {
        "id": record.id,
        "org_id": record.org_id,
        "display_name": record.display_name,
        "external_id": record.external_id,
        "pushed": record.is_pushed,
        "members": members,
        "org_role": record.org_role,
        "team": team,
        "created_at": instants.timestamp(record.created_at),
        "updated_at": instants.timestamp(record.updated_at),
    }
