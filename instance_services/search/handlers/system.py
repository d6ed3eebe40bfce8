"""Owns the operations of the tag System."""

from typing import Any

from instance_services.search import contents as reading
from instance_services.search.boundary import SearchService, check_master
from instance_services.search.errors import ApiError
from specserver import Exchange

# Of Meilisearch's API: what official clients compare.
VERSION = "1.54.0"


async def health(exchange: Exchange) -> dict[str, str]:
    service: SearchService = exchange.app_state
    if not service.is_working():
        raise ApiError("unavailable", "the indexing process is being started again")
    return {"status": "available"}


async def version() -> dict[str, str]:
    return {"commitSha": "unknown", "commitDate": "unknown", "pkgVersion": VERSION}


async def statistics(exchange: Exchange) -> dict[str, int]:
    check_master(exchange)
    service: SearchService = exchange.app_state
    return {"requests": service.requests}


def contents(exchange: Exchange) -> dict[str, Any]:
    check_master(exchange)
    service: SearchService = exchange.app_state
    with service.snapshots.reading() as data:
        indexes = reading.of_indexes(data)
    return {"indexes": indexes, "keys": reading.of_keys(service.snapshots.tasks)}


def left_out(feature: str) -> Any:
    raise ApiError(
        "feature_not_enabled",
        f"`{feature}` is not enabled: this search engine does not have it",
    )


def left_out_too(feature: str) -> Any:
    left_out(feature)
