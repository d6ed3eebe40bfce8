"""Owns the way from a search request to its answer."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from instance_services.search import results
from instance_services.search.boundary import SearchService
from instance_services.search.callers import KeyBearer
from instance_services.search.errors import ApiError
from instance_services.search.searching import Search
from instance_services.search.time_limits import TimeLimit

NOT_ENABLED: Final = ("media", "personalize")
"""What searches of Meilisearch may ask for, and this engine does not have."""


def check_enabled(given: Mapping[str, Any]) -> None:
    for name in NOT_ENABLED:
        if given.get(name):
            raise ApiError("feature_not_enabled", f"`{name}` is not enabled here")


def search(
    service: SearchService,
    caller: KeyBearer,
    index_uid: str,
    given: Mapping[str, Any],
    limit: TimeLimit | None = None,
) -> dict[str, Any]:
    """Raises ApiError. What a tenant may not see is not found."""
    check_enabled(given)
    started = time.monotonic()
    rule = caller.rule(index_uid) or {}
    with service.snapshots.index(index_uid) as state:
        one = Search(state, given, rule.get("filter"), limit)
        found = one.find()
        spent_ms = round(1_000 * (time.monotonic() - started))
        return results.answer(state, one, found, given, spent_ms)


def each(
    service: SearchService, caller: KeyBearer, queries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Several searches, each by itself. Raises ApiError."""
    for number, query in enumerate(queries):
        if query.get("federationOptions") is not None:
            raise ApiError(
                "invalid_multi_search_federation_options",
                f"`queries[{number}].federationOptions` needs `federation`: {{}} beside `queries`",
            )
    limit = TimeLimit.of_several()
    answers = ((query["indexUid"], query) for query in queries)
    return {
        "results": [
            {"indexUid": uid} | search(service, caller, uid, query, limit) for uid, query in answers
        ]
    }


def of_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """A search by GET as one by POST has it; a filter may be the JSON of an array."""
    renamed = {_camel(name): value for name, value in given.items() if value is not None}
    text = renamed.get("filter")
    if isinstance(text, str) and text.lstrip().startswith("["):
        try:
            renamed["filter"] = orjson.loads(text)
        except orjson.JSONDecodeError:
            raise ApiError("invalid_search_filter", "the filter is no JSON array") from None
    return renamed


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
