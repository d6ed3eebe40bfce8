"""Owns pages of documents, as they were added or by a filter."""

from collections.abc import Mapping
from typing import Any

from instance_services.search import filters, paths, vectors
from instance_services.search.boundary import SearchService
from instance_services.search.errors import ApiError
from instance_services.search.selecting import Selection


def page(service: SearchService, index_uid: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` has offset, limit, fields, filter and ids, as a request to fetch. Raises ApiError."""
    offset, limit = given.get("offset") or 0, given.get("limit", 20)
    try:
        node = filters.parse(given.get("filter"))
    except filters.FilterError as error:
        raise ApiError("invalid_document_filter", str(error)) from None
    with service.snapshots.index(index_uid) as state:
        selection = Selection(state.data, state.number, state.settings)
        ids = selection.ids(node, "invalid_document_filter")
        if given.get("ids") is not None:
            ids &= state.with_keys(list(map(str, given["ids"])))
        ordered = state.in_order(ids)
        shown = ordered[offset : offset + limit]
        documents = state.documents(shown)
        settings = state.settings
    return {
        "results": [told(documents[each], settings, given) for each in shown],
        "offset": offset,
        "limit": limit,
        "total": len(ordered),
    }


def told(
    document: dict[str, Any], settings: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """What `given` asks of a document: `fields`, and vectors with `retrieveVectors`."""
    is_wanted = bool(given.get("retrieveVectors"))
    shown = vectors.shown(document, settings, is_wanted=is_wanted)
    fields = given.get("fields") or ["*"]
    return paths.selected(shown, [*fields, vectors.FIELD] if is_wanted else fields)
