"""Owns the operations of the tag Indexes."""

from typing import Any

import orjson

from instance_services.search import statistics
from instance_services.search.boundary import SearchService, check_index
from instance_services.search.callers import KeyBearer
from instance_services.search.errors import ApiError
from specserver import Exchange, Reply


def list_(exchange: Exchange, offset: int = 0, limit: int = 20) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    caller: KeyBearer = exchange.principal
    with service.snapshots.reading() as data:
        rows = data.execute(
            "SELECT uid, primary_key, created_at, updated_at FROM indexes ORDER BY uid"
        ).fetchall()
    found = [_view(*row) for row in rows if caller.may_use(row[0])]
    return {
        "results": found[offset : offset + limit],
        "offset": offset,
        "limit": limit,
        "total": len(found),
    }


def get(exchange: Exchange, index_uid: str) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    with service.snapshots.index(index_uid) as state:
        row = state.data.execute(
            "SELECT uid, primary_key, created_at, updated_at FROM indexes WHERE number = ?",
            (state.number,),
        ).fetchone()
    return _view(*row)


def create(exchange: Exchange, body: dict[str, Any]) -> Reply:
    service: SearchService = exchange.app_state
    check_index(exchange, body["uid"])
    payload = {"primaryKey": body.get("primaryKey")}
    return service.accept("indexCreation", body["uid"], payload, orjson.dumps(payload))


def update(exchange: Exchange, index_uid: str, body: dict[str, Any]) -> Reply:
    service: SearchService = exchange.app_state
    if body.get("uid") is not None:
        check_index(exchange, body["uid"])
    payload = {"primaryKey": body.get("primaryKey"), "uid": body.get("uid")}
    return service.accept("indexUpdate", index_uid, payload, orjson.dumps(payload))


def delete(exchange: Exchange, index_uid: str) -> Reply:
    service: SearchService = exchange.app_state
    return service.accept("indexDeletion", index_uid, {})


def swap(exchange: Exchange, body: list[dict[str, Any]]) -> Reply:
    service: SearchService = exchange.app_state
    named = [uid for each in body for uid in each["indexes"]]
    if len(set(named)) != len(named):
        raise ApiError(
            "invalid_swap_duplicate_index_found", "an index can be swapped once in a request only"
        )
    for uid in named:
        check_index(exchange, uid)
    details = {"swaps": body}
    return service.accept("indexSwap", None, details, orjson.dumps(details))


def stats(exchange: Exchange, index_uid: str) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    with service.snapshots.index(index_uid) as state:
        return statistics.of_index(service, state.data, state.number, index_uid)


def all_stats(exchange: Exchange) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    caller: KeyBearer = exchange.principal
    with service.snapshots.reading() as data:
        return statistics.of_all(service, data, caller)


def _view(uid: str, primary_key: str | None, created_at: str, updated_at: str) -> dict[str, Any]:
    return {
        "uid": uid,
        "createdAt": created_at,
        "updatedAt": updated_at,
        "primaryKey": primary_key,
    }
