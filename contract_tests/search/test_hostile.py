"""Owns the promise that hostile payloads are refused or bounded, and that the rest goes on."""

import json
import threading
from collections.abc import Iterator

import pytest

from contract_tests.search.process import Service, running


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("hostile"), "--body-bytes", "2000000") as started:
        settings = {"filterableAttributes": ["n", "_geo"], "sortableAttributes": ["n"]}
        started.done("PATCH", "/indexes/x/settings", settings)
        started.done("POST", "/indexes/x/documents", [{"id": n, "n": n} for n in range(50)])
        yield started


def alive(service: Service) -> None:
    assert service.ask("GET", "/health") == {"status": "available"}
    assert service.ask("POST", "/indexes/x/search", {"filter": "n = 7"})["hits"]


def test_a_body_over_the_limit_is_refused_before_it_is_read(small: Service) -> None:
    body = b'[{"id": 1, "a": "' + b"a" * 2_000_000 + b'"}]'
    headers = {"Content-Type": "application/json"}
    refused = small.refused("POST", "/indexes/y/documents", content=body, headers=headers)
    assert refused == (413, "payload_too_large")
    # Whoever has no key is told nothing else.
    stranger = small.refused(
        "POST", "/indexes/y/documents", content=body, headers=headers, key="nobody"
    )
    assert stranger == (403, "invalid_api_key")
    alive(small)


def test_a_document_of_10_000_fields_is_a_document(small: Service) -> None:
    document = {"id": 1} | {f"field_{n}": f"word{n}" for n in range(10_000)}
    small.done("POST", "/indexes/wide/documents", [document])
    (hit,) = small.ask("POST", "/indexes/wide/search", {"q": "word9999"})["hits"]
    assert hit == document
    alive(small)


def test_long_and_repeated_texts_are_searched_in_time(small: Service) -> None:
    documents = [{"id": 1, "text": "same " * 30_000}, {"id": 2, "text": "x" * 200_000}]
    small.done("POST", "/indexes/long/documents", documents)
    for q in ("same same same same", "x" * 10_000, "sane samee", '"same same"', "-" * 5_000):
        body = {
            "q": q,
            "attributesToHighlight": ["*"],
            "attributesToCrop": ["text"],
            "showMatchesPosition": True,
        }
        small.ask("POST", "/indexes/long/search", body)
    alive(small)


@pytest.mark.parametrize(
    "given",
    [
        "(" * 50_000,
        "NOT " * 20_000 + "n",
        "n = 1 OR " * 9_000,
        "n IN [" + "1," * 40_000,
        "n = '" + "\\" * 50_001,
        "'" * 99_999,
        "n" * 200_000,
        "_geoRadius(nan, 1, 1)",
        "_geoPolygon(" + "[1,1]," * 10,
        "n = 1; DROP TABLE documents",
        "\x00",
    ],
    ids=range(11),
)
def test_hostile_filters_are_refused(small: Service, given: str) -> None:
    refused = small.refused("POST", "/indexes/x/search", {"filter": given})
    assert refused == (400, "invalid_search_filter")
    alive(small)


def test_a_filter_of_thousands_of_conditions_is_answered(small: Service) -> None:
    many = " OR ".join(f"n = {n}" for n in range(8_000))
    body = {"filter": many, "limit": 0}
    assert small.ask("POST", "/indexes/x/search", body)["estimatedTotalHits"] == 50
    deep = "(" * 90 + "n = 1" + ")" * 90
    assert small.ask("POST", "/indexes/x/search", {"filter": deep})["estimatedTotalHits"] == 1
    nested = "NOT " * 10_000 + "n = 1"
    assert small.ask("POST", "/indexes/x/search", {"filter": nested})["estimatedTotalHits"] == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/indexes/x/search", b'{"q": NaN}'),
        ("/indexes/x/search", b'{"rankingScoreThreshold": 1e999}'),
        ("/indexes/x/search", b'{"filter": ' + b"[" * 3_000 + b"]" * 3_000 + b"}"),
        ("/indexes/x/search", b'{"q": "\xff"}'),
        ("/indexes/x/settings", b'{"synonyms": ' + b'{"a":' * 900 + b"1" + b"}" * 901),
    ],
)
def test_what_is_no_json_is_refused(small: Service, path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    method = "PATCH" if path.endswith("settings") else "POST"
    status, _ = small.refused(method, path, content=body, headers=headers)
    assert status == 400
    alive(small)


def test_names_are_no_sql_and_no_paths(small: Service) -> None:
    for name in ("a'b", "..%2F..%2Fetc", "a%00b", "%2e%2e", "a" * 401):
        status, _ = small.refused("GET", f"/indexes/{name}")
        assert status == 404
    odd = "n' OR '1'='1"
    small.done("PATCH", "/indexes/odd/settings", {"filterableAttributes": [odd]})
    small.done("POST", "/indexes/odd/documents", [{"id": 1, odd: 5}, {"id": 2}])
    quoted = json.dumps(odd)
    found = small.ask("POST", "/indexes/odd/search", {"filter": f"{quoted} = 5"})
    assert [hit["id"] for hit in found["hits"]] == [1]


def test_searches_and_writes_at_once_see_whole_states(small: Service) -> None:
    """A batch replaces all documents at once; nobody finds some of the old and some of the new."""
    path = "/indexes/whole/documents"
    small.done("POST", path, [{"id": n, "text": "shared", "round": 0} for n in range(20)])
    over = threading.Event()
    seen: list[tuple[int, int]] = []

    def look() -> None:
        with small.client() as client:
            while not over.is_set():
                body = {"q": "shared", "limit": 50}
                hits = client.post("/indexes/whole/search", json=body).json()["hits"]
                seen.append((len(hits), len({hit["round"] for hit in hits})))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for each in threads:
        each.start()
    for round_ in range(1, 8):
        body = [{"id": n, "text": "shared", "round": round_} for n in range(20)]
        small.done("POST", path, body)
    over.set()
    for each in threads:
        each.join()
    assert len(seen) > 5
    assert set(seen) == {(20, 1)}
