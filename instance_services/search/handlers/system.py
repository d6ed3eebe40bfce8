"""Owns the operations of the tag System."""

from typing import Any

from instance_services.search.boundary import SearchService
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


def left_out(feature: str) -> Any:
    raise ApiError(
        "feature_not_enabled",
        f"`{feature}` is not enabled: this search engine does not have it",
    )


def left_out_too(feature: str) -> Any:
    left_out(feature)
