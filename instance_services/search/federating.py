"""Owns searches whose hits are merged into one list."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any, Final

from instance_services.search import answering, results, score_details
from instance_services.search.boundary import SearchService
from instance_services.search.callers import KeyBearer
from instance_services.search.errors import ApiError
from instance_services.search.found import FoundDocuments
from instance_services.search.searching import Search
from instance_services.search.snapshots import IndexState
from instance_services.search.time_limits import TimeLimit

_OF_THE_WHOLE: Final = ("limit", "offset", "page", "hitsPerPage")


@dataclass(frozen=True)
class FederatedQuery:
    """One of the searches, and what it found."""

    position: int
    given: Mapping[str, Any]
    state: IndexState
    search: Search
    found: FoundDocuments

    @property
    def ids(self) -> list[int]:
        return self.found.ids[: self.most]

    @property
    def most(self) -> int:
        """How many hits the index has at most."""
        return int(self.state.settings["pagination"]["maxTotalHits"])

    @property
    def weight(self) -> float:
        weight = (self.given.get("federationOptions") or {}).get("weight")
        return 1.0 if weight is None else float(weight)


@dataclass(frozen=True)
class FederatedHit:
    """A document that a query found; `place` is where in its list."""

    query: FederatedQuery
    document: int
    place: int
    score: float
    parts: Sequence[score_details.Comparable] = field(compare=False)

    @classmethod
    def of(cls, query: FederatedQuery, place: int) -> "FederatedHit":
        document = query.found.ids[place]
        score = query.found.scores.get(document, 1.0) * query.weight
        parts = score_details.comparable(query.found, document, query.weight)
        return cls(query, document, place, score, parts)


def answer(service: SearchService, caller: KeyBearer, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a 200. Raises ApiError."""
    started = time.monotonic()
    limit = TimeLimit.of_several()
    federation = body["federation"]
    for number, given in enumerate(body["queries"]):
        _check(number, given)
    with service.snapshots.indexes(each["indexUid"] for each in body["queries"]) as states:
        queries = [
            _query(caller, states[given["indexUid"]], number, given, limit)
            for number, given in enumerate(body["queries"])
        ]
        paged, start, count = results.page(federation, _total(queries))
        merged = _merged(queries, start + count)
        told = {
            "hits": _hits(merged[start : start + count]),
            "processingTimeMs": round(1_000 * (time.monotonic() - started)),
            **paged,
        }
        return told | _facets(federation, queries)


def _check(number: int, given: Mapping[str, Any]) -> None:
    answering.check_enabled(given)
    for name in _OF_THE_WHOLE:
        if given.get(name) is not None:
            raise ApiError(
                "invalid_multi_search_query_pagination",
                f"`queries[{number}].{name}` is said of the whole: `federation.{name}`",
            )
    if given.get("facets") is not None:
        raise ApiError(
            "invalid_multi_search_query_facets",
            f"`queries[{number}].facets` are said of the whole: `federation.facetsByIndex`",
        )
    options = given.get("federationOptions") or {}
    if (options.get("weight") or 0) < 0:
        raise ApiError(
            "invalid_multi_search_weight", f"the weight of `queries[{number}]` is less than 0"
        )


def _query(
    caller: KeyBearer, state: IndexState, number: int, given: Mapping[str, Any], limit: TimeLimit
) -> FederatedQuery:
    rule = caller.rule(state.uid) or {}
    search = Search(state, given, rule.get("filter"), limit)
    options = given.get("federationOptions") or {}
    position = options.get("queryPosition")
    return FederatedQuery(
        number if position is None else position, given, state, search, search.find()
    )


def _total(queries: Sequence[FederatedQuery]) -> int:
    """What was not looked at is an estimate."""
    known = {document for each in queries for document in each.ids}
    unseen = sum(min(each.found.total, each.most) - len(each.ids) for each in queries)
    return len(known) + unseen


def _merged(queries: Sequence[FederatedQuery], most: int) -> list[FederatedHit]:
    """The best ones first; a document that several queries find is there once."""
    # What is behind `most` others in its own list is behind them here as well.
    every = [
        FederatedHit.of(each, place)
        for each in queries
        for place in range(min(most, len(each.ids)))
    ]
    every.sort(key=cmp_to_key(_order))
    seen: set[int] = set()
    kept = []
    for each in every:
        # The numbers of documents are those of one database, and differ in all indexes.
        if each.document not in seen:
            seen.add(each.document)
            kept.append(each)
    return kept


def _order(one: FederatedHit, other: FederatedHit) -> int:
    if one.query is other.query:
        return one.place - other.place
    found = score_details.compared(one.parts, other.parts)
    if found:
        return found
    if found is None and one.score != other.score:
        return -1 if one.score > other.score else 1
    return one.query.position - other.query.position or one.place - other.place


def _hits(shown: Sequence[FederatedHit]) -> list[dict[str, Any]]:
    hits = []
    for each in shown:
        query = each.query
        document = query.state.documents([each.document])[each.document]
        hit = results.hit(query.state, query.found, each.document, document, query.given)
        hit["_federation"] = {
            "indexUid": query.state.uid,
            "queriesPosition": query.position,
            "weightedRankingScore": each.score,
        }
        hits.append(hit)
    return hits


def _facets(federation: Mapping[str, Any], queries: Sequence[FederatedQuery]) -> dict[str, Any]:
    """By index, or of all indexes together."""
    by_index = federation.get("facetsByIndex")
    if not by_index:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for uid, names in by_index.items():
        own = [each for each in queries if each.state.uid == uid]
        if not own:
            raise ApiError(
                "invalid_multi_search_facets_by_index", f"no query is about the index `{uid[:400]}`"
            )
        ids = {document for each in own for document in each.found.ids}
        try:
            counted = results.facets(own[0].state, own[0].search, ids, names or ())
        except ApiError as error:
            raise ApiError("invalid_multi_search_facets_by_index", error.detail) from None
        found[uid] = {
            "distribution": counted["facetDistribution"],
            "stats": counted["facetStats"],
        }
    merge = federation.get("mergeFacets")
    return {"facetsByIndex": found} if merge is None else _together(merge, found, queries)


def _together(
    merge: Mapping[str, Any], found: Mapping[str, Any], queries: Sequence[FederatedQuery]
) -> dict[str, Any]:
    most = merge.get("maxValuesPerFacet")
    distribution: dict[str, dict[str, int]] = {}
    stats: dict[str, dict[str, float]] = {}
    for each in found.values():
        for name, values in each["distribution"].items():
            counts = distribution.setdefault(name, {})
            for value, count in values.items():
                counts[value] = counts.get(value, 0) + count
        for name, span in each["stats"].items():
            known = stats.setdefault(name, dict(span))
            known["min"] = min(known["min"], span["min"])
            known["max"] = max(known["max"], span["max"])
    # The order is that of the first index which has the facet.
    first = {
        name: each.state
        for each in reversed(queries)
        for name in found.get(each.state.uid, {"distribution": ()})["distribution"]
    }
    return {
        "facetDistribution": {
            name: dict(results.ordered_values(first[name], name, list(counts.items()))[:most])
            for name, counts in distribution.items()
        },
        "facetStats": stats,
    }
