"""Credits, applications and referrals, as the JSON that openapi/billing.yaml describes."""

from datetime import datetime
from typing import Any

from handlers.instants import timestamp, timestamp_or_none
from storage.billing.credit_ledger import Credit
from storage.billing.programmes import ProgrammeApplication
from storage.billing.referrals import Referral

Json = dict[str, Any]


def credit(record: Credit, now: datetime) -> Json:
    return {
        "id": record.id,
        "kind": record.kind,
        "amount_cents": record.amount_cents,
        "used_cents": record.used_cents,
        "remaining_cents": record.remaining_cents,
        "currency": record.currency,
        "reason": record.reason,
        "status": record.status(now),
        "expires_at": timestamp_or_none(record.expires_at),
        "created_at": timestamp(record.created_at),
    }


def application(record: ProgrammeApplication) -> Json:
    return {
        "id": record.id,
        "programme": record.programme,
        "status": record.status,
        "website": record.website,
        "statement": record.statement,
        "applied_by": record.applicant_id,
        "credit_id": record.credit_id,
        "note": record.note,
        "created_at": timestamp(record.created_at),
        "decided_at": timestamp_or_none(record.decided_at),
    }


def referral(record: Referral) -> Json:
    return {
        "id": record.id,
        "status": record.status,
        "credited_cents": record.credited_cents,
        "created_at": timestamp(record.created_at),
        "ended_at": timestamp_or_none(record.ended_at),
    }
