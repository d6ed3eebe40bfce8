"""Owns the promise that no value of a member is more than a search can answer or refuse."""

from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract_tests.search.process import Service

NAMES: Final = {
    "search": ("q", "vector", "hybrid", "filter", "sort", "facets", "limit", "offset", "page",
               "hitsPerPage", "retrieveVectors", "showRankingScoreDetails", "locales", "distinct",
               "rankingScoreThreshold", "attributesToHighlight", "attributesToCrop"),
    "facet-search": ("facetName", "facetQuery", "q", "filter", "locales", "matchingStrategy"),
    "similar": ("id", "embedder", "filter", "limit", "offset", "rankingScoreThreshold"),
    "federated": ("limit", "offset", "page", "hitsPerPage", "facetsByIndex", "mergeFacets"),
    "settings": ("dictionary", "separatorTokens", "proximityPrecision", "localizedAttributes",
                 "searchCutoffMs", "facetSearch", "prefixSearch", "embedders", "synonyms"),
}  # fmt: skip
values = st.one_of(
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20) | st.sampled_from(["genre", "own", "genre = a", "n:asc", "last"]),
    st.lists(st.none() | st.integers(-2, 2) | st.sampled_from(["*", "n", "n:desc"]), max_size=3),
    st.sampled_from([{}, {"embedder": "own"}, {"x": ["genre"]}, {"x": None}, [[1, 0]], [[]], [{}]]),
)
NEEDED: Final[dict[str, dict[str, Any]]] = {
    "facet-search": {"facetName": "genre"},
    "similar": {"id": 1, "embedder": "own"},
}


@st.composite
def asked(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A path, and a body for it with up to three members of any value."""
    kind = draw(st.sampled_from([*NAMES]))
    names = draw(st.lists(st.sampled_from(NAMES[kind]), max_size=3))
    body = NEEDED.get(kind, {}) | {name: draw(values) for name in names}
    if kind != "federated":
        return f"/indexes/{'other' if kind == 'settings' else 'x'}/{kind}", body
    query = {"indexUid": "x"} | {draw(st.sampled_from(NAMES["search"])): draw(values)}
    return "/multi-search", {"queries": [query, {"indexUid": "x"}], "federation": body}


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx.Client]:
    changes = {
        "embedders": {"own": {"source": "userProvided", "dimensions": 2}},
        "filterableAttributes": ["genre", "n"],
        "sortableAttributes": ["n"],
    }
    service.done("PATCH", "/indexes/x/settings", changes)
    documents = [
        {"id": n, "n": n, "text": "some word", "genre": ["a", "b"], "_vectors": {"own": [n, 1]}}
        for n in range(5)
    ]
    service.done("POST", "/indexes/x/documents", documents)
    with service.client() as opened:
        yield opened


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(asked())
def test_any_value_is_answered_or_refused(
    client: httpx.Client, asked: tuple[str, dict[str, Any]]
) -> None:
    path, body = asked
    method = "PATCH" if path.endswith("settings") else "POST"
    answer = client.request(method, path, json=body)
    assert answer.status_code in {200, 202, 400}, answer.text
    if answer.status_code == 400:
        assert answer.json()["code"] != "internal"
