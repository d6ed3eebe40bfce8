"""Owns the operations of the tag Batches."""

from typing import Any

from instance_services.search import task_filters
from instance_services.search.boundary import SearchService
from instance_services.search.callers import KeyBearer
from instance_services.search.errors import ApiError
from specserver import Exchange


def list_(exchange: Exchange, **given: Any) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    wanted = task_filters.of(given, exchange.principal)
    return service.batches.page(wanted, **task_filters.page_of(given))


def get(exchange: Exchange, batch_uid: int) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    caller: KeyBearer = exchange.principal
    found = service.batches.get(batch_uid, list(caller.indexes) if caller.is_limited else None)
    if found is None:
        raise ApiError("batch_not_found", f"there is no batch `{batch_uid}`")
    return found
