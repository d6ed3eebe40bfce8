"""Credits, referrals and invoices, as the JSON that openapi/billing.yaml describes."""

from datetime import datetime
from typing import Any

from handlers.instants import timestamp, timestamp_or_none
from storage.billing.credit_ledger import Credit
from storage.billing.invoices import Invoice
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


def invoice(record: Invoice, now: datetime) -> Json:
    return {
        "id": record.id,
        "kind": record.kind,
        "number": record.number,
        "month": record.month,
        "status": record.status_at(now),
        "currency": record.currency,
        "corrects": record.corrects and _corrects(record.corrects_id, record.corrects),
        "reason": record.reason,
        "lines": [{"corrects_line": None, "org_id": None, **line} for line in record.lines],
        "subtotal_cents": record.subtotal_cents,
        "credits_cents": record.credits_cents,
        "tax": {
            "category": record.tax_category,
            "percent": record.tax_rate / 100,
            "reason": record.tax_reason,
            "amount_cents": record.tax_cents,
        },
        "total_cents": record.total_cents,
        "credited_cents": record.credited_cents,
        "due_cents": record.due_cents,
        "issuer": _side(record.issuer),
        "customer": _side(record.customer),
        "issued_at": timestamp(record.issued_at),
        "due_at": None if record.is_credit_note else timestamp(record.due_at),
        "paid_at": timestamp_or_none(record.paid_at),
        "voided_at": timestamp_or_none(record.voided_at),
    }


def links(base_url: str, token: str, *, with_pdf: bool) -> Json:
    base = base_url.rstrip("/")
    return {
        "hosted_url": f"{base}/account/invoice?token={token}",
        "pdf_url": f"{base}/v1/invoices/{token}/pdf" if with_pdf else None,
    }


def _corrects(invoice_id: str | None, told: dict[str, str]) -> Json:
    return {"invoice_id": invoice_id, "number": told["number"], "issued_on": told["issued_on"]}


def _side(side: dict[str, str]) -> Json:
    shown = {name: side[name] for name in ("name", "street", "postcode", "city", "country")}
    return {**shown, "vat_number": side["vat_id"]}
