"""Owns the promise that Meilisearch's own Python client can use what is beside plain searches."""

from typing import Any

import meilisearch
import pytest
from meilisearch.errors import MeilisearchApiError
from meilisearch.index import Index
from meilisearch.models.index import PrefixSearch, ProximityPrecision

FILMS = [
    {"id": 1, "title": "Carol", "genres": ["Romance", "Drama"], "year": 2015},
    {"id": 2, "title": "Mad Max", "genres": ["Action", "Adventure"], "year": 1979},
    {"id": 3, "title": "Life of Pi", "genres": ["adventure", "Drama"], "year": 2012},
    {"id": 4, "title": "The C++ Years, by J. R. R. Doe", "genres": ["Dramédie"], "year": 2020},
]


def filled(client: meilisearch.Client, uid: str, settings: dict[str, Any]) -> Index:
    index = client.index(uid)
    client.wait_for_task(index.update_settings(settings).task_uid)
    added = index.add_documents(FILMS)
    assert client.wait_for_task(added.task_uid).status == "succeeded"
    return index


def ids(index: Index, q: str, **given: Any) -> list[int]:
    return [hit["id"] for hit in index.search(q, given)["hits"]]


def code(refused: pytest.ExceptionInfo[MeilisearchApiError]) -> str | None:
    return refused.value.code


def test_values_of_facets_are_searched(client: meilisearch.Client) -> None:
    features = {"attributePatterns": ["title"], "features": {"facetSearch": False}}
    films = filled(client, "facets", {"filterableAttributes": ["genres", "year", features]})

    def values(query: str | None, **given: Any) -> list[tuple[str, int]]:
        answer = films.facet_search("genres", query, given)
        assert answer["facetQuery"] == query
        return [(hit["value"], hit["count"]) for hit in answer["facetHits"]]

    assert values("dram") == [("Drama", 2), ("Dramédie", 1)]
    assert values("ADVENTRUE") == [("Adventure", 2)]  # two of nine letters are a typo
    assert values("dram", filter="year > 2013", q="carol") == [("Drama", 1)]
    assert len(values(None)) == 5
    assert films.facet_search("year", "20")["facetHits"] == []  # numbers are no texts
    for name in ("title", "id"):
        with pytest.raises(MeilisearchApiError) as refused:
            films.facet_search(name, "c")
        assert code(refused) == "invalid_facet_search_facet_name"
    client.wait_for_task(films.update_facet_search_settings(False).task_uid)
    assert films.get_facet_search_settings() is False
    with pytest.raises(MeilisearchApiError) as disabled:
        films.facet_search("genres", "dram")
    assert code(disabled) == "facet_search_disabled"


def test_a_tenant_sees_values_of_its_own_documents_only(client: meilisearch.Client) -> None:
    filled(client, "tenants", {"filterableAttributes": ["genres", "year"]})
    key = client.create_key({"actions": ["search"], "indexes": ["tenants"], "expiresAt": None})
    token = client.generate_tenant_token(
        key.uid, {"tenants": {"filter": "year = 1979"}}, api_key=key.key
    )
    tenant = meilisearch.Client(client.config.url, token).index("tenants")
    found = tenant.facet_search("genres", "")["facetHits"]
    assert found == [{"value": "Action", "count": 1}, {"value": "Adventure", "count": 1}]


def test_beginnings_and_nearness_are_switched(client: meilisearch.Client) -> None:
    films = filled(client, "switches", {"searchableAttributes": ["title"]})
    assert ids(films, "car") == [1]
    client.wait_for_task(films.update_prefix_search(PrefixSearch.DISABLED).task_uid)
    assert films.get_prefix_search() == PrefixSearch.DISABLED
    assert ids(films, "car") == []
    assert ids(films, "carol") == [1]
    client.wait_for_task(films.reset_prefix_search().task_uid)
    assert ids(films, "car") == [1]
    client.wait_for_task(films.update_ranking_rules(["words", "proximity"]).task_uid)
    near = [{"id": 10, "title": "pi of a life, or of two"}, {"id": 11, "title": "pi two"}]
    client.wait_for_task(films.add_documents(near).task_uid)
    assert ids(films, "pi two") == [11, 10, 3]
    task = films.update_proximity_precision(ProximityPrecision.BY_ATTRIBUTE)
    client.wait_for_task(task.task_uid)
    assert films.get_proximity_precision() == ProximityPrecision.BY_ATTRIBUTE
    assert ids(films, "pi two") == [10, 11, 3]


def test_what_a_word_is_can_be_said(client: meilisearch.Client) -> None:
    films = filled(client, "tokens", {"searchableAttributes": ["title"]})
    assert ids(films, "c ") == [4]
    client.wait_for_task(films.update_non_separator_tokens(["+"]).task_uid)
    assert films.get_non_separator_tokens() == ["+"]
    assert ids(films, "c++") == [4]
    assert ids(films, "c ") == []
    client.wait_for_task(films.update_dictionary(["J. R. R."]).task_uid)
    assert films.get_dictionary() == ["J. R. R."]
    found = films.search("j. r. r. doe", {"attributesToHighlight": ["title"]})["hits"]
    assert found[0]["_formatted"]["title"] == ("The C++ Years, by <em>J. R. R.</em> <em>Doe</em>")
    assert ids(films, "r ") == []
    client.wait_for_task(films.update_separator_tokens(["ea", "X"]).task_uid)
    assert films.get_separator_tokens() == ["ea", "X"]
    assert ids(films, "rs ") == [4]  # of Years
    for reset in (
        films.reset_separator_tokens,
        films.reset_non_separator_tokens,
        films.reset_dictionary,
    ):
        client.wait_for_task(reset().task_uid)
    assert ids(films, "rs ") == []
    assert ids(films, "r ") == [4]


def test_languages_are_kept_and_checked(client: meilisearch.Client) -> None:
    films = filled(client, "languages", {})
    task = films.update_localized_attributes([{"attributePatterns": ["*"], "locales": ["fra"]}])
    client.wait_for_task(task.task_uid)
    found = films.get_localized_attributes() or []
    assert [(each.attribute_patterns, each.locales) for each in found] == [(["*"], ["fra"])]
    assert ids(films, "carol", locales=["fr", "eng"]) == [1]
    with pytest.raises(MeilisearchApiError) as refused:
        films.search("carol", {"locales": ["klingon"]})
    assert code(refused) == "invalid_search_locales"


def test_a_search_past_its_cutoff_tells_what_is_ranked(client: meilisearch.Client) -> None:
    index = client.index("slow")
    documents = [{"id": n, "text": f"same word{n}"} for n in range(60)]
    client.wait_for_task(index.add_documents(documents).task_uid)
    assert index.get_search_cutoff_ms() is None
    client.wait_for_task(index.update_search_cutoff_ms(60_000).task_uid)
    assert index.get_search_cutoff_ms() == 60_000
    assert len(index.search("same", {"limit": 100})["hits"]) == 60
    # Its own method takes 0 for nothing.
    client.wait_for_task(index.update_settings({"searchCutoffMs": 0}).task_uid)
    assert index.get_search_cutoff_ms() == 0
    answer = index.search("same", {"limit": 100})
    assert len(answer["hits"]) == 20
    assert answer["estimatedTotalHits"] == 60


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("facetSearch", "yes"),
        ("prefixSearch", "always"),
        ("searchCutoffMs", -1),
        ("proximityPrecision", 1),
        ("dictionary", "word"),
        ("separatorTokens", [1]),
        ("localizedAttributes", [{"attributePatterns": ["*"]}]),
        ("localizedAttributes", [{"attributePatterns": None, "locales": ["fra"]}]),
        ("localizedAttributes", [{"attributePatterns": ["*"], "locales": ["klingon"]}]),
        ("filterableAttributes", [{"attributePatterns": ["a"], "features": {"facetSearch": 1}}]),
    ],
)
def test_settings_are_checked(client: meilisearch.Client, setting: str, value: object) -> None:
    with pytest.raises(MeilisearchApiError) as refused:
        client.index("any").update_settings({setting: value})
    snake = "".join(f"_{each.lower()}" if each.isupper() else each for each in setting)
    assert code(refused) == f"invalid_settings_{snake}"


def test_batches_tell_of_their_tasks(client: meilisearch.Client) -> None:
    added = client.index("batched").add_documents([{"id": 1}, {"id": 2}])
    task = client.wait_for_task(added.task_uid)
    found = client.http.get(f"tasks/{task.uid}")["batchUid"]
    batch = client.get_batch(found)
    assert batch.uid == found
    assert batch.details == {"receivedDocuments": 2, "indexedDocuments": 2}
    assert batch.stats is not None
    assert batch.stats["totalNbTasks"] == 1
    assert batch.stats["indexUids"] == {"batched": 1}
    assert batch.started_at is not None
    page = client.get_batches({"indexUids": ["batched"], "statuses": ["succeeded"]})
    assert [each.uid for each in page.results] == [found]
    assert client.get_batches({"batchUids": [str(found)]}).total == 1
    assert client.get_tasks({"batchUids": [str(found)]}).results[0].uid == task.uid
    with pytest.raises(MeilisearchApiError) as refused:
        client.get_batch(10**6)
    assert code(refused) == "batch_not_found"


def test_experimental_features_are_told(client: meilisearch.Client) -> None:
    assert client.get_experimental_features()["containsFilter"] is True
    assert client.update_experimental_features({"containsFilter": True})["metrics"] is False
    for change in ({"metrics": True}, {"containsFilter": False}):
        with pytest.raises(MeilisearchApiError) as refused:
            client.update_experimental_features(change)
        assert code(refused) == "feature_not_enabled"
