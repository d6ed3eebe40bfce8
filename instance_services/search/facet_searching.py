"""Owns the search among the values of a facet."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from instance_services.search import configuration, paths, queries, results, texts, word_matches
from instance_services.search.boundary import SearchService
from instance_services.search.callers import KeyBearer
from instance_services.search.errors import ApiError
from instance_services.search.searching import Search
from instance_services.search.snapshots import IndexState


def answer(
    service: SearchService, caller: KeyBearer, index_uid: str, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Values of the documents that a search finds; numbers are no texts. Raises ApiError."""
    started = time.monotonic()
    name, query = given["facetName"], given.get("facetQuery")
    rule = caller.rule(index_uid) or {}
    with service.snapshots.index(index_uid) as state:
        found = values(state, Search(state, given, rule.get("filter")), name, query)
    return {
        "facetHits": [{"value": value, "count": count} for value, count in found],
        "facetQuery": query,
        "processingTimeMs": round(1_000 * (time.monotonic() - started)),
    }


def values(
    state: IndexState, search: Search, name: str, query: str | None
) -> list[tuple[str, int]]:
    """Each as it was written, and how many of the documents that are found have it."""
    _check(state, name)
    counted = search.selection.facet_texts(name, set(search.find().ids))
    begun = _begun(state, query, [text for text, _, _ in counted])
    kept = [(shown, count) for text, shown, count in counted if text in begun]
    return results.shown_values(state, name, kept)


def _check(state: IndexState, name: str) -> None:
    if not state.settings["facetSearch"]:
        raise ApiError(
            "facet_search_disabled",
            "the setting `facetSearch` of this index says that there is none",
        )
    allowed = configuration.facet_searchable(state.settings)
    if paths.rank(allowed, name) is None:
        raise ApiError(
            "invalid_facet_search_facet_name",
            f"the values of `{name[:200]}` cannot be searched; those of these attributes can: "
            f"{', '.join(allowed) or 'none'}. Add it to filterableAttributes",
        )


def _begun(state: IndexState, query: str | None, values: Sequence[str]) -> Collection[str]:
    """Those that begin with the query, but for typos."""
    wanted = texts.normalized(query or "").strip()
    most = queries.typo_limit(state.settings["typoTolerance"])(wanted)
    return word_matches.begun(wanted, values, most)
