"""Owns the operations of the tag Documents."""

from typing import Any

import orjson

from instance_services.search import browsing, filters, payloads
from instance_services.search.boundary import SearchService
from instance_services.search.errors import ApiError
from specserver import Exchange, Reply


def list_(
    exchange: Exchange,
    index_uid: str,
    offset: int = 0,
    limit: int = 20,
    fields: list[str] | None = None,
    filter: str | None = None,  # noqa: A002 - the parameter's name
    retrieve_vectors: bool = False,
) -> dict[str, Any]:
    given = {"offset": offset, "limit": limit, "fields": fields, "filter": filter}
    given["retrieveVectors"] = retrieve_vectors
    return browsing.page(exchange.app_state, index_uid, given)


def fetch(exchange: Exchange, index_uid: str, body: dict[str, Any]) -> dict[str, Any]:
    return browsing.page(exchange.app_state, index_uid, body)


def get(
    exchange: Exchange,
    index_uid: str,
    document_id: str,
    fields: list[str] | None = None,
    retrieve_vectors: bool = False,
) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    with service.snapshots.index(index_uid) as state:
        row = state.data.execute(
            "SELECT body FROM documents WHERE index_number = ? AND key = ?",
            (state.number, document_id),
        ).fetchone()
    if row is None:
        raise ApiError("document_not_found", f"there is no document `{document_id[:511]}`")
    given = {"fields": fields, "retrieveVectors": retrieve_vectors}
    return browsing.told(orjson.loads(row[0]), state.settings, given)


def replace(
    exchange: Exchange,
    index_uid: str,
    primary_key: str | None = None,
    csv_delimiter: str | None = None,
) -> Reply:
    return _add(exchange, index_uid, primary_key, csv_delimiter, is_partial=False)


def update(
    exchange: Exchange,
    index_uid: str,
    primary_key: str | None = None,
    csv_delimiter: str | None = None,
) -> Reply:
    return _add(exchange, index_uid, primary_key, csv_delimiter, is_partial=True)


def delete(exchange: Exchange, index_uid: str, document_id: str) -> Reply:
    return _delete(exchange, index_uid, {"ids": [document_id]}, 1, None)


def delete_batch(exchange: Exchange, index_uid: str, body: list[str | int]) -> Reply:
    ids = list(map(str, body))
    return _delete(exchange, index_uid, {"ids": ids}, len(ids), None)


def delete_by_filter(exchange: Exchange, index_uid: str, body: dict[str, Any]) -> Reply:
    given = body["filter"]
    try:
        node = filters.parse(given)
    except filters.FilterError as error:
        raise ApiError("invalid_document_filter", str(error)) from None
    if node is None:
        raise ApiError("invalid_document_filter", "the filter is empty; say what to delete")
    original = orjson.dumps(given).decode()
    return _delete(exchange, index_uid, {"filter": given}, 0, original)


def delete_all(exchange: Exchange, index_uid: str) -> Reply:
    return _delete(exchange, index_uid, {}, 0, None)


def _delete(
    exchange: Exchange, index_uid: str, payload: dict[str, Any], ids: int, original: str | None
) -> Reply:
    service: SearchService = exchange.app_state
    details = {"providedIds": ids, "originalFilter": original, "deletedDocuments": None}
    return service.accept("documentDeletion", index_uid, details, orjson.dumps(payload))


def _add(
    exchange: Exchange,
    index_uid: str,
    primary_key: str | None,
    csv_delimiter: str | None,
    *,
    is_partial: bool,
) -> Reply:
    service: SearchService = exchange.app_state
    content_type = exchange.request.headers.get("content-type")
    found = payloads.documents(exchange.body_bytes, content_type, csv_delimiter)
    payload = {"isPartial": is_partial, "primaryKey": primary_key, "documents": found}
    details = {"receivedDocuments": len(found), "indexedDocuments": None}
    return service.accept("documentAdditionOrUpdate", index_uid, details, orjson.dumps(payload))
