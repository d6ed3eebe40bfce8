"""The catalogue as JSON: engines, plans, regions and sizes."""

from datetime import datetime
from typing import Any

from control.policy.catalogue import Catalogue, Offer
from control.policy.plans import PLACEMENTS, Plan
from control.policy.prices import PriceList, nearest_cents
from control.policy.sizes import OtherSize, Size
from storage.catalogue.cells import Cell

Json = dict[str, Any]


def engine(offer: Offer) -> Json:
    versions = list(offer.all_versions)
    return {
        "id": offer.engine.id,
        "name": offer.engine.name,
        "availability": offer.status,
        "reason": offer.reason,
        "versions": versions,
        "default_version": versions[0] if versions else None,
        "extensions": {version: list(some) for version, some in offer.extensions.items()},
        "regions": sorted(offer.versions),
        "protocol": offer.engine.protocol,
        "ports": list(offer.engine.ports),
        "features": list(offer.engine.features),
    }


def plan(record: Plan, idle_pause_s: int, prices: PriceList) -> Json:
    features = {"custom_domains": record.custom_domains, "custom_roles": record.custom_roles}
    return {
        "id": record.id,
        "name": record.name,
        "price_usd_cents_month": nearest_cents(prices.plans[record.id]),
        "sizes": list(record.sizes),
        "placements": list(record.placements),
        "quotas": {
            "instances": record.instances_max,
            "storage_bytes": record.storage_bytes_max,
            "projects": record.projects_max,
            "seats": record.seats_max,
            "api_keys": record.api_keys_max,
            "teams": record.teams_max,
            "subsidiaries": record.subsidiaries_max,
            "manual_backups": record.manual_backups_max,
            "backup_bytes": record.backup_bytes_max,
        },
        "deleted_retention_days": record.retention_days,
        "backup_frequency_max": record.backup_frequency_max,
        "backup_retention_days": record.backup_retention_days,
        "pitr_days": record.pitr_days,
        "idle_pause_s": idle_pause_s if record.pauses_when_idle else None,
        "features": [name for name, unlocked in features.items() if unlocked],
    }


def region(name: str, cells: list[Cell], catalogue: Catalogue, now: datetime) -> Json:
    """A region by its cells; what they share (domain, ports) is read from the first."""
    return {
        "id": name,
        "available": not all(cell.is_silent(now) for cell in cells),
        "engines": catalogue.engines_in(name),
        "placements": [each for each in PLACEMENTS if any(c.placement == each for c in cells)],
        "instance_domain": cells[0].instance_domain,
        "ports": cells[0].ports,
    }


def size(record: Size, fits_in: list[str], prices: PriceList) -> Json:
    return {
        "id": record.name,
        "family": "instance",
        "vcpu": record.vcpu,
        "memory_bytes": record.memory_bytes,
        "storage_bytes_included": record.storage_bytes_included,
        "storage_bytes_max": record.storage_bytes_max,
        "storage_step_bytes": record.storage_step_bytes,
        "connections_max": record.connections_max,
        "price_usd_cents_month": nearest_cents(prices.rates.sizes[record.name]),
        "fits_in": fits_in,
    }


def other_size(record: OtherSize, prices: PriceList) -> Json:
    return {
        "id": record.name,
        "family": record.family,
        "vcpu": record.vcpu,
        "memory_bytes": record.memory_bytes,
        "storage_bytes_included": record.storage_bytes,
        "storage_bytes_max": record.storage_bytes,
        "storage_step_bytes": None,
        "connections_max": None,
        "price_usd_cents_month": nearest_cents(prices.rates.sizes[record.name]),
        "fits_in": [],
    }
