"""SSO domains as the JSON that openapi.yaml describes."""

from typing import Any

from control.policy.sso_domains import txt_name
from handlers.instants import timestamp, timestamp_or_none
from storage.sso.domains import KEPT_WITHOUT_RECORD, SsoDomain


def sso_domain(record: SsoDomain) -> dict[str, Any]:
    missing = record.missing_since
    return {
        "id": record.id,
        "org_id": record.org_id,
        "domain": record.domain,
        "status": record.status,
        "status_reason": record.status_reason,
        "txt": {"name": txt_name(record.domain), "value": record.txt_value},
        "connection_id": record.connection_id,
        "is_enforced": record.is_enforced,
        "created_at": timestamp(record.created_at),
        "checked_at": timestamp_or_none(record.checked_at),
        "verified_at": timestamp_or_none(record.verified_at),
        "verified_until": timestamp_or_none(missing and missing + KEPT_WITHOUT_RECORD),
    }
