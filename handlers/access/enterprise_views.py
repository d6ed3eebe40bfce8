"""Enterprises as JSON: a subsidiary sees its parent's name, a parent sums of its subsidiaries."""

from collections.abc import Mapping
from typing import Any

from control.policy.enterprises import Sums
from handlers import instants
from storage.access.enterprises import TERMS, EnterpriseOrg, Subsidiary

Json = dict[str, Any]


def outside(org_id: str) -> Json:
    """Of an organization that is in no enterprise."""
    empty = {"parent": None, "terms": None, "consolidated_invoice": False, "usage": None}
    return {"org_id": org_id, "role": "none", **empty}


def of_subsidiary(record: EnterpriseOrg, parent: str, *, paid_for: bool) -> Json:
    told = {"parent": {"name": parent}, "consolidated_invoice": paid_for}
    return {**outside(record.org_id), "role": "subsidiary", **told}


def of_parent(record: EnterpriseOrg, each: Mapping[str, Sums], subsidiaries_max: int) -> Json:
    own = each[record.org_id]
    whole = sum(each.values(), start=Sums())
    usage = {
        "subsidiaries": len(each) - 1,
        "subsidiaries_max": subsidiaries_max,
        "own": sums(own),
        "total": sums(whole),
    }
    return {
        **outside(record.org_id),
        "role": "parent",
        "terms": terms(record),
        "consolidated_invoice": record.consolidated_invoice,
        "usage": usage,
    }


def terms(record: EnterpriseOrg) -> Json:
    return {name: getattr(record, name) for name in TERMS}


def sums(found: Sums) -> Json:
    return {
        "instances": found.instances,
        "storage_bytes": found.storage_bytes,
        "cost_usd_cents_month": found.usd_cents_month,
    }


def subsidiary(record: Subsidiary, found: Sums) -> Json:
    return {
        "org_id": record.org_id,
        "name": record.name,
        "status": record.status,
        "usage": sums(found),
        "attached_at": instants.timestamp(record.attached_at),
    }
