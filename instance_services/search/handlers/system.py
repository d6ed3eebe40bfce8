"""Owns the operations of the tag System."""

from typing import Any, Final

from instance_services.search import contents as reading
from instance_services.search import preview
from instance_services.search.boundary import SearchService, check_master
from instance_services.search.errors import ApiError
from specserver import Exchange, Reply

# Of Meilisearch's API: what official clients compare.
VERSION = "1.54.0"
FEATURES = {
    "metrics": False,
    "logsRoute": False,
    "editDocumentsByFunction": False,
    "containsFilter": True,
    "network": False,
    "getTaskDocumentsRoute": False,
    "compositeEmbedders": False,
    "chatCompletions": False,
    "multimodal": False,
    "vectorStoreSetting": False,
}
"""What is experimental in Meilisearch, and whether it is here."""

_COPIES: Final = frozenset({"dumps", "snapshots"})


def root(exchange: Exchange) -> Reply | dict[str, str]:
    service: SearchService = exchange.app_state
    return preview.page() if service.is_development() else {"status": "Meilisearch is running"}


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


async def features() -> dict[str, bool]:
    return dict(FEATURES)


async def switch_features(body: dict[str, bool | None]) -> dict[str, bool]:
    for name, wanted in body.items():
        if wanted is not None and wanted != FEATURES[name]:
            told = "is always there" if FEATURES[name] else "does not exist here"
            raise ApiError("feature_not_enabled", f"`{name}` {told}, and cannot be switched")
    return dict(FEATURES)


def left_out(feature: str) -> Any:
    if feature in _COPIES:
        raise ApiError(
            "feature_not_enabled",
            f"`{feature}` is not enabled: no request could fetch the file; "
            "make a backup of the instance instead",
        )
    raise ApiError(
        "feature_not_enabled",
        f"`{feature}` is not enabled: this search engine does not have it",
    )


def left_out_too(feature: str) -> Any:
    left_out(feature)
