"""Owns the promises about searches that a reader can check by eye."""

from typing import Any

import pytest

from contract_tests.search.process import Service

BOOKS = [
    {"id": 1, "title": "Emma", "author": {"name": "Jane Austen"}, "year": 1815, "price": 9.5},
    {"id": 2, "title": "The Great Gatsby", "author": {"name": "F. Scott Fitzgerald"},
     "year": 1925, "tags": ["classic", "jazz"]},
    {"id": 3, "title": "Great Expectations", "author": {"name": "Charles Dickens"}, "year": 1861,
     "tags": ["classic"], "overview": "A boy. A convict. Expectations grow, and grow, until they "
     "are great no more than the man who had them when he was young."},
    {"id": 4, "title": "Café Society", "author": {"name": "Ann Other"}, "year": None, "tags": []},
    {"id": 5, "title": "Harry Potter", "author": {"name": "J. K. Rowling"}, "year": 1997,
     "_geo": {"lat": 48.8566, "lng": 2.3522}},
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _books(service: Service) -> None:
    service.done(
        "PATCH",
        "/indexes/books/settings",
        {
            "filterableAttributes": ["year", "tags", "author", "_geo"],
            "sortableAttributes": ["year", "_geo"],
            "searchableAttributes": ["title", "author.name", "overview"],
            "synonyms": {"hp": ["harry potter"]},
            "stopWords": ["the"],
        },
    )
    service.done("POST", "/indexes/books/documents", BOOKS)


def ids(service: Service, q: str | None = None, **given: Any) -> list[int]:
    body = {"q": q} | given
    return [hit["id"] for hit in service.ask("POST", "/indexes/books/search", body)["hits"]]


def test_words_are_found_with_typos_prefixes_synonyms_and_phrases(service: Service) -> None:
    assert ids(service, "gatsby") == [2]
    assert ids(service, "gatsbi") == [2]
    assert ids(service, "gtasby") == [2]
    assert ids(service, "expectaitons") == [3]
    assert ids(service, "atsby") == []  # a typo in the first letter counts twice
    assert ids(service, "emm") == [1]
    assert ids(service, "emm ") == []  # a word that is complete
    assert ids(service, "cafe") == [4]
    assert ids(service, "hp") == [5]
    assert ids(service, '"great gatsby"') == [2]
    assert ids(service, '"gatsby great"') == []
    assert ids(service, "great -gatsby") == [3]
    assert ids(service, 'great -"great gatsby"') == [3]
    assert ids(service, "the") == [2, 3]  # a stop word may be the beginning of a word
    assert ids(service, "the emma") == [1]
    assert ids(service, "") == [1, 2, 3, 4, 5]


def test_words_may_be_missing_by_the_strategy(service: Service) -> None:
    assert ids(service, "great gatsby") == [2, 3]
    assert ids(service, "great gatsby", matchingStrategy="all") == [2]
    assert ids(service, "great gatsby", matchingStrategy="frequency") == [2]


def test_filters_sort_and_pages(service: Service) -> None:
    assert ids(service, filter="year > 1850", sort=["year:desc"]) == [5, 2, 3]
    assert ids(service, sort=["year:asc"]) == [1, 3, 2, 5, 4]
    assert ids(service, filter=["tags = classic", ["year = 1925", "year = 1861"]]) == [2, 3]
    assert ids(service, filter="author.name = 'jane austen'") == [1]
    assert ids(service, filter="year IS NULL AND tags IS EMPTY") == [4]
    assert ids(service, filter="_geoRadius(48.85, 2.35, 5000)") == [5]
    assert ids(service, sort=["_geoPoint(48.85,2.35):asc"], limit=1) == [5]
    page = service.ask("POST", "/indexes/books/search", {"hitsPerPage": 2, "page": 3})
    assert [hit["id"] for hit in page["hits"]] == [5]
    told = {name: page[name] for name in ("hitsPerPage", "page", "totalPages", "totalHits")}
    assert told == {"hitsPerPage": 2, "page": 3, "totalPages": 3, "totalHits": 5}
    assert "estimatedTotalHits" not in page


def test_facets_are_counted(service: Service) -> None:
    body = {"facets": ["tags", "year"], "limit": 0}
    answer = service.ask("POST", "/indexes/books/search", body)
    assert answer["facetDistribution"] == {
        "tags": {"classic": 2, "jazz": 1},
        "year": {"1815": 1, "1861": 1, "1925": 1, "1997": 1},
    }
    assert answer["facetStats"] == {"year": {"min": 1815, "max": 1997}}


def test_matches_are_marked_cropped_and_placed(service: Service) -> None:
    body = {
        "q": "convict gro",
        "attributesToHighlight": ["*"],
        "attributesToCrop": ["overview:4"],
        "attributesToRetrieve": ["id", "overview"],
        "showMatchesPosition": True,
        "showRankingScore": True,
        "highlightPreTag": "<b>",
        "highlightPostTag": "</b>",
    }
    (hit,) = service.ask("POST", "/indexes/books/search", body)["hits"]
    assert hit["_formatted"]["overview"] == ("…<b>convict</b>. Expectations <b>gro</b>w, and…")
    assert hit["_formatted"]["id"] == "3"
    assert hit["_matchesPosition"]["overview"][0] == {"start": 9, "length": 7}
    assert 0 < hit["_rankingScore"] < 1
    assert list(hit) == ["id", "overview", "_formatted", "_matchesPosition", "_rankingScore"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"filter": "price = 1"}, "invalid_search_filter"),
        ({"filter": "year >"}, "invalid_search_filter"),
        ({"filter": 5}, "invalid_search_filter"),
        ({"filter": [[["year = 1"]]]}, "invalid_search_filter"),
        ({"sort": ["price:asc"]}, "invalid_search_sort"),
        ({"sort": ["year"]}, "invalid_search_sort"),
        ({"facets": ["price"]}, "invalid_search_facets"),
        ({"limit": -1}, "invalid_search_limit"),
        ({"q": 5}, "invalid_search_q"),
        ({"matchingStrategy": "some"}, "invalid_search_matching_strategy"),
        ({"attributesToSearchOn": ["price"]}, "invalid_search_attributes_to_search_on"),
        ({"distinct": "price"}, "invalid_search_distinct"),
        ({"media": {}, "personalize": {"userContext": "x"}}, "feature_not_enabled"),
        ({"unknown": 1}, "bad_request"),
    ],
)
def test_each_error_has_its_code(service: Service, body: dict[str, Any], code: str) -> None:
    assert service.refused("POST", "/indexes/books/search", body) == (400, code)


def test_several_searches_are_answered_together(service: Service) -> None:
    queries = [{"indexUid": "books", "q": "emma"}, {"indexUid": "books", "q": "potter"}]
    answer = service.ask("POST", "/multi-search", {"queries": queries})
    assert [each["hits"][0]["id"] for each in answer["results"]] == [1, 5]
    missing = {"queries": [{"indexUid": "none"}]}
    assert service.refused("POST", "/multi-search", missing) == (404, "index_not_found")
