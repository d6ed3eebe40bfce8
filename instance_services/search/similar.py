"""Owns the search for documents that are near to one."""

import time
from collections.abc import Mapping
from typing import Any

from instance_services.search import results, semantics
from instance_services.search.boundary import SearchService
from instance_services.search.callers import KeyBearer
from instance_services.search.errors import ApiError
from instance_services.search.searching import Search
from instance_services.search.snapshots import IndexState


def answer(
    service: SearchService, caller: KeyBearer, index_uid: str, given: Mapping[str, Any]
) -> dict[str, Any]:
    """The nearest first, without the document itself. Raises ApiError."""
    started = time.monotonic()
    rule = caller.rule(index_uid) or {}
    limit = given.get("limit")
    limit, offset = 20 if limit is None else limit, given.get("offset") or 0
    with service.snapshots.index(index_uid) as state:
        semantics.embedder(given["embedder"], state, "invalid_similar_embedder")
        search = Search(state, given, rule.get("filter"))
        try:
            own, vector = _vector(state, search, str(given["id"]), given["embedder"])
            found = search.near(semantics.NearSearch(given["embedder"], vector, 1.0))
        except ApiError as error:
            raise ApiError(error.code.replace("_search_", "_similar_"), error.detail) from None
        ids = [each for each in found.ids if each != own]
        shown = ids[offset : offset + limit]
        documents = state.documents(shown)
        hits = [results.hit(state, found, each, documents[each], given) for each in shown]
    return {
        "hits": hits,
        "id": str(given["id"]),
        "processingTimeMs": round(1_000 * (time.monotonic() - started)),
        "limit": limit,
        "offset": offset,
        "estimatedTotalHits": len(ids),
    }


def _vector(state: IndexState, search: Search, key: str, embedder: str) -> tuple[int, bytes]:
    """The number of a document, and the first of its vectors. What is hidden is not there."""
    row = state.data.execute(
        "SELECT documents.id, vector FROM documents JOIN vectors ON document = documents.id"
        " WHERE documents.index_number = ? AND key = ? AND embedder = ?"
        " ORDER BY vectors.id LIMIT 1",
        (state.number, key, embedder),
    ).fetchone()
    if row is None or not search.is_visible(row[0]):
        raise ApiError(
            "not_found_similar_id",
            f"there is no document `{key[:511]}` with a vector of `{embedder}`",
        )
    return int(row[0]), bytes(row[1])
