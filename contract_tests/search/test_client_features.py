"""Owns the promise that Meilisearch's own Python client can use what is beside plain searches."""

from typing import Any

import meilisearch
import pytest
from meilisearch.errors import MeilisearchApiError
from meilisearch.index import Index
from meilisearch.models.index import PrefixSearch, ProximityPrecision

from instance_services.search import ranking, time_limits

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


def test_words_are_joined_split_and_stood_for(client: meilisearch.Client) -> None:
    index = client.index("joined")
    synonyms = {"new york city": ["nyc", "the big apple"], "nyc": ["new york city"]}
    client.wait_for_task(index.update_synonyms(synonyms).task_uid)
    documents = [
        {"id": 1, "text": "a sunflower seed"},
        {"id": 2, "text": "the sun and a flower"},
        {"id": 3, "text": "sun flower seeds"},
        {"id": 4, "text": "rent in nyc"},
        {"id": 5, "text": "rent in New York City"},
        {"id": 6, "text": "rent near the big apple"},
    ]
    client.wait_for_task(index.add_documents(documents).task_uid)
    assert ids(index, "sun flower ") == [3, 2, 1]  # to join is a typo
    assert ids(index, "sunflower ") == [1, 3]
    assert ids(index, "sun flow", matchingStrategy="all") == [3, 2, 1]
    assert ids(index, "sun. flower ", matchingStrategy="all") == [3, 2]
    assert ids(index, '"sun flower"') == [3]
    assert ids(index, "rent new york city ", matchingStrategy="all") == [5, 4, 6]
    assert ids(index, "nyc rent") == [4, 5]
    found = index.search("new york city", {"attributesToHighlight": ["text"]})["hits"]
    marked = {hit["id"]: hit["_formatted"]["text"] for hit in found}
    assert marked[6] == "rent near <em>the</em> <em>big</em> <em>apple</em>"
    found = index.search("sun flower seed", {"attributesToHighlight": ["text"]})["hits"]
    marked = {hit["id"]: hit["_formatted"]["text"] for hit in found}
    assert marked[1] == "a <em>sunflower</em> <em>seed</em>"


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


def test_long_documents_are_looked_at_a_few_at_a_time(
    client: meilisearch.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a search would have no look at the time before it has compared all of their words."""
    index = client.index("long")
    documents = [
        {"id": n, "text": " ".join(["same", *(f"word{n}x{m}" for m in range(5_000))])}
        for n in range(24)
    ]
    client.wait_for_task(index.add_documents(documents).task_uid)
    learned: list[int] = []
    learn = ranking.Matcher.learn

    def noting(matcher: ranking.Matcher, some: Any) -> None:
        learned.append(len(some))
        learn(matcher, some)

    monkeypatch.setattr(ranking.Matcher, "learn", noting)
    assert len(index.search("same", {"limit": 100})["hits"]) == 24
    assert sum(learned) == 24
    assert max(learned) <= 5


@pytest.fixture
def many(client: meilisearch.Client) -> str:
    """An index with a word that all of its sixty documents have."""
    index = client.index("several")
    documents = [{"id": n, "text": f"same word{n}", "of": n % 3} for n in range(60)]
    filtered = index.update_filterable_attributes(["of"])
    client.wait_for_task(index.add_documents(documents).task_uid)
    client.wait_for_task(filtered.task_uid)
    return "several"


def test_searches_of_one_request_have_one_time_together(
    client: meilisearch.Client, many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = {"indexUid": many, "q": "same"}
    queries = [query | {"limit": 100}] * 2
    found = client.multi_search(queries)["results"]
    assert [len(each["hits"]) for each in found] == [60, 60]
    monkeypatch.setattr(time_limits, "SEVERAL_S", 0)
    found = client.multi_search(queries)["results"]
    assert [len(each["hits"]) for each in found] == [20, 20]
    assert [each["estimatedTotalHits"] for each in found] == [60, 60]
    merged: Any = client.multi_search([query], {"limit": 100})
    assert (len(merged["hits"]), merged["estimatedTotalHits"]) == (20, 60)
    # A request with one search has the time that the settings give it.
    assert len(client.index(many).search("same", {"limit": 100})["hits"]) == 60


def test_a_request_ends_when_its_time_is_over(
    client: meilisearch.Client, many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = {"indexUid": many, "filter": "of = 1"}
    assert len(client.multi_search([query])["results"][0]["hits"]) == 20
    monkeypatch.setattr(time_limits, "REQUEST_S", 0)
    for ask in (
        lambda: client.multi_search([query]),
        lambda: client.multi_search([query], {}),
        lambda: client.index(many).search("same", {"filter": "of = 1"}),
    ):
        with pytest.raises(MeilisearchApiError) as refused:
            ask()
        assert (refused.value.status_code, code(refused)) == (503, "unavailable")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("facetSearch", "yes"),
        ("prefixSearch", "always"),
        ("searchCutoffMs", -1),
        ("proximityPrecision", 1),
        ("dictionary", "word"),
        ("dictionary", ["word"] * 2_001),
        ("dictionary", ["a" * 101]),
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


def test_each_rule_tells_its_part_of_a_score(client: meilisearch.Client) -> None:
    films = filled(client, "details", {"sortableAttributes": ["year"]})
    options = {"showRankingScoreDetails": True, "showRankingScore": True, "sort": ["year:desc"]}
    (hit,) = films.search("life of", options)["hits"]
    details = hit["_rankingScoreDetails"]
    assert list(details) == [
        *("words", "typo", "proximity", "attributeRank", "year:desc", "wordPosition", "exactness"),
    ]
    assert [each["order"] for each in details.values()] == list(range(7))
    assert details["words"] == {
        "order": 0,
        "matchingWords": 2,
        "maxMatchingWords": 2,
        "score": 1.0,
    }
    assert details["typo"]["typoCount"] == 0
    assert details["year:desc"] == {"order": 4, "value": 2012}
    assert details["exactness"]["matchType"] == "matchesStart"
    (hit, *_) = films.search("life adventrue", options)["hits"]
    details = hit["_rankingScoreDetails"]
    assert details["typo"]["typoCount"] == 1
    assert details["exactness"]["matchType"] == "noExactMatch"
    assert (details["exactness"]["matchingWords"], details["typo"]["maxTypoCount"]) == (1, 4)
    client.wait_for_task(films.update_ranking_rules(["attribute", "sort"]).task_uid)
    (hit,) = films.search("life of", options)["hits"]
    attribute = hit["_rankingScoreDetails"]["attribute"]
    assert list(attribute) == [
        *("order", "attributeRankingOrderScore", "queryWordDistanceScore", "score"),
    ]
    (hit, *_) = films.search("", options)["hits"]
    assert hit["_rankingScoreDetails"] == {"year:desc": {"order": 0, "value": 2020}}


def test_hits_of_several_searches_are_one_list(client: meilisearch.Client) -> None:
    settings = {
        "searchableAttributes": ["title"],
        "filterableAttributes": ["genres", "year"],
        "sortableAttributes": ["year"],
    }
    filled(client, "left", settings)
    other = client.index("right")
    client.wait_for_task(other.update_settings(settings).task_uid)
    books = [
        {"id": 1, "title": "Pi", "genres": ["Drama"], "year": 2000},
        {"id": 2, "title": "A life without any number, not even Pi", "genres": [], "year": 2013},
    ]
    client.wait_for_task(other.add_documents(books).task_uid)

    def found(queries: list[dict[str, Any]], **federation: Any) -> dict[str, Any]:
        return dict(client.multi_search(queries, federation))

    def names(answer: dict[str, Any]) -> list[tuple[str, int]]:
        return [(hit["_federation"]["indexUid"], hit["id"]) for hit in answer["hits"]]

    pi: list[dict[str, Any]] = [{"indexUid": "left", "q": "pi"}, {"indexUid": "right", "q": "pi"}]
    answer = found(pi)
    assert names(answer) == [("right", 1), ("left", 3), ("right", 2)]
    scores = [hit["_federation"]["weightedRankingScore"] for hit in answer["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert [hit["_federation"]["queriesPosition"] for hit in answer["hits"]] == [1, 0, 1]
    assert (answer["limit"], answer["offset"], answer["estimatedTotalHits"]) == (20, 0, 3)
    heavy = [pi[0] | {"federationOptions": {"weight": 5, "queryPosition": 7}}, pi[1]]
    first = found(heavy, limit=1, offset=0)["hits"][0]
    assert (first["id"], first["_federation"]["queriesPosition"]) == (3, 7)
    page = found(pi, page=2, hitsPerPage=2)
    assert names(page) == [("right", 2)]
    assert (page["totalPages"], page["totalHits"]) == (2, 3)
    # A document that two queries find is one hit, with the better score.
    twice = [pi[1], pi[1] | {"q": "life", "federationOptions": {"weight": 2}}]
    assert names(found(twice)) == [("right", 2), ("right", 1)]
    by_year = [each | {"q": "", "sort": ["year:desc"]} for each in pi]
    assert [hit["year"] for hit in found(by_year)["hits"]] == [2020, 2015, 2013, 2012, 2000, 1979]
    facets = {"left": ["genres", "year"], "right": ["genres"]}
    counted = found(pi, facetsByIndex=facets)["facetsByIndex"]
    assert counted["left"]["stats"] == {"year": {"min": 2012, "max": 2012}}
    assert counted["right"]["distribution"] == {"genres": {"Drama": 1}}
    merged = found(pi, facetsByIndex=facets, mergeFacets={"maxValuesPerFacet": 1})
    assert merged["facetDistribution"]["genres"] == {"Drama": 2}
    assert "facetsByIndex" not in merged


@pytest.mark.parametrize(
    ("query", "federation", "expected"),
    [
        ({"limit": 1}, {}, "invalid_multi_search_query_pagination"),
        ({"facets": ["a"]}, {}, "invalid_multi_search_query_facets"),
        ({"federationOptions": {"weight": -1}}, {}, "invalid_multi_search_weight"),
        ({"federationOptions": {"weight": 1}}, None, "invalid_multi_search_federation_options"),
        ({}, {"facetsByIndex": {"other": ["a"]}}, "invalid_multi_search_facets_by_index"),
        ({}, {"facetsByIndex": {"merged": ["a"]}}, "invalid_multi_search_facets_by_index"),
        ({"personalize": {"userContext": "x"}}, {}, "feature_not_enabled"),
    ],
)
def test_federated_searches_are_checked(
    client: meilisearch.Client,
    query: dict[str, Any],
    federation: dict[str, Any] | None,
    expected: str,
) -> None:
    client.wait_for_task(client.create_index("merged").task_uid)
    with pytest.raises(MeilisearchApiError) as refused:
        client.multi_search([{"indexUid": "merged"} | query], federation)
    assert code(refused) == expected
