"""Owns the promises about vectors: what is near, beside words or alone, and what is told of it."""

import math
import operator
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import meilisearch
import orjson
import pytest
from meilisearch.errors import MeilisearchApiError
from meilisearch.index import Index

from instance_services.search import databases, vectors
from instance_services.search.allowance import Limits
from instance_services.search.errors import ApiError
from instance_services.search.indexing import Indexer
from instance_services.search.searching import Search
from instance_services.search.snapshots import Snapshots
from instance_services.search.tasks import TaskQueue

OWN = {"own": {"source": "userProvided", "dimensions": 2}}
FILMS = [
    {"id": 1, "title": "Carol", "year": 2015, "_vectors": {"own": [1, 0]}},
    {"id": 2, "title": "Mad Max", "year": 1979, "_vectors": {"own": [[0, 1], [-1, 0]]}},
    {"id": 3, "title": "Life of Pi", "year": 2012, "_vectors": {"own": {"embeddings": [1, 1]}}},
    {"id": 4, "title": "Carols", "year": 1999, "_vectors": {"own": None, "other": "kept"}},
]


@pytest.fixture(scope="module")
def films(client: meilisearch.Client) -> Index:
    index = client.index("near")
    settings = {
        "embedders": OWN,
        "filterableAttributes": ["year"],
        "sortableAttributes": ["year"],
        "searchableAttributes": ["title"],
    }
    client.wait_for_task(index.update_settings(settings).task_uid)
    assert client.wait_for_task(index.add_documents(FILMS).task_uid).status == "succeeded"
    return index


def found(index: Index, q: str, vector: list[float] | None, **given: Any) -> dict[str, Any]:
    ratio = given.pop("ratio", 0.5)
    hybrid = {"embedder": "own", "semanticRatio": ratio}
    return dict(index.search(q, {"vector": vector, "hybrid": hybrid} | given))


def ids(answer: dict[str, Any]) -> list[int]:
    return [hit["id"] for hit in answer["hits"]]


def refused(index: Index, q: str, given: dict[str, Any]) -> str | None:
    with pytest.raises(MeilisearchApiError) as error:
        index.search(q, given)
    return error.value.code


def test_the_nearest_are_first(films: Index) -> None:
    answer = found(films, "", [2, 0], showRankingScore=True, showRankingScoreDetails=True)
    assert ids(answer) == [1, 3, 2]
    assert answer["semanticHitCount"] == 3
    best, second, _ = answer["hits"]
    assert best["_rankingScore"] == 1.0
    assert best["_rankingScoreDetails"] == {"vectorSort": {"order": 0, "similarity": 1.0}}
    assert math.isclose(second["_rankingScore"], (1 + math.sqrt(0.5)) / 2, rel_tol=1e-5)
    # The better one of several vectors counts.
    assert ids(found(films, "", [-1, 0.1]))[0] == 2
    assert ids(found(films, "", [1, 0], filter="year < 2014")) == [3, 2]
    assert ids(found(films, "", [1, 0], rankingScoreThreshold=0.8)) == [1, 3]
    assert ids(found(films, "", [1, 0], limit=1, offset=1)) == [3]
    assert ids(found(films, "", [1, 0], sort=["year:asc"])) == [1, 3, 2]


def test_words_and_nearness_are_mixed_by_the_ratio(films: Index) -> None:
    assert ids(found(films, "carol", [0, 1], ratio=0)) == [1, 4]
    assert ids(found(films, "carol", [0, 1], ratio=1)) == [2, 3, 1]
    mixed = found(films, "carol", [0, 1])
    assert set(ids(mixed)) == {1, 2, 3, 4}
    assert set(ids(mixed)[:2]) == {1, 2}
    by_words = found(films, "carol", [0, 1], ratio=0.1)
    assert ids(by_words)[:2] == [1, 4]
    assert by_words["semanticHitCount"] == 2
    # No vector can be made of the words.
    assert ids(dict(films.search("carol", {"hybrid": {"embedder": "own"}}))) == [1, 4]


def test_documents_that_are_similar_are_found(films: Index) -> None:
    given: dict[str, Any] = {"id": 1, "embedder": "own"}
    answer = films.get_similar_documents(given | {"showRankingScore": True})
    assert ids(answer) == [3, 2]
    assert (answer["id"], answer["estimatedTotalHits"], answer["limit"]) == ("1", 2, 20)
    assert ids(films.get_similar_documents(given | {"filter": "year > 2000", "limit": 1})) == [3]
    for change, code in (
        ({"id": 9}, "not_found_similar_id"),
        ({"id": 4}, "not_found_similar_id"),
        ({"embedder": "none"}, "invalid_similar_embedder"),
        ({"filter": "id = 1"}, "invalid_similar_filter"),
        ({"limit": -1}, "invalid_similar_limit"),
    ):
        with pytest.raises(MeilisearchApiError) as error:
            films.get_similar_documents(given | change)
        assert error.value.code == code


def test_a_tenant_asks_for_what_is_similar_to_its_own_documents_only(
    client: meilisearch.Client, films: Index
) -> None:
    key = client.create_key({"actions": ["search"], "indexes": ["near"], "expiresAt": None})
    rules = {"near": {"filter": "year > 2000"}}
    token = client.generate_tenant_token(key.uid, rules, api_key=key.key)
    tenant = meilisearch.Client(client.config.url, token).index("near")
    given: dict[str, Any] = {"id": 1, "embedder": "own"}
    assert ids(tenant.get_similar_documents(given)) == [3]
    assert ids(tenant.get_similar_documents(given | {"filter": "year < 2015"})) == [3]
    # It is not even told that there is such a document.
    for hidden in (2, 9):
        with pytest.raises(MeilisearchApiError) as error:
            tenant.get_similar_documents(given | {"id": hidden})
        assert error.value.code == "not_found_similar_id"


def test_vectors_are_told_where_they_are_asked_for(films: Index) -> None:
    own = {"own": {"embeddings": [[1, 0]], "regenerate": False}}
    (hit,) = films.search("carol", {"retrieveVectors": True, "filter": "year = 2015"})["hits"]
    assert hit["_vectors"] == own
    (hit,) = films.search("carol", {"filter": "year = 2015"})["hits"]
    assert "_vectors" not in hit
    page = films.http.get("indexes/near/documents?retrieveVectors=true&fields=id")["results"]
    assert [set(each) for each in page] == [{"id", "_vectors"}] * 4
    assert page[3]["_vectors"] == {
        "own": {"embeddings": [], "regenerate": False},
        "other": "kept",
    }
    assert films.http.get("indexes/near/documents/1?retrieveVectors=true")["_vectors"] == own
    assert "_vectors" not in films.http.get("indexes/near/documents/1")
    stats = films.http.get("indexes/near/stats")
    assert (stats["numberOfEmbeddings"], stats["numberOfEmbeddedDocuments"]) == (4, 3)
    assert "_vectors" not in stats["fieldDistribution"]
    # Numbers in vectors are no words.
    assert films.search("kept")["hits"] == []


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"vector": [1, 0]}, "missing_search_hybrid"),
        ({"hybrid": {"embedder": "none"}, "vector": [1, 0]}, "invalid_search_embedder"),
        ({"hybrid": {}, "vector": [1, 0]}, "invalid_search_embedder"),
        ({"hybrid": {"embedder": "own"}, "vector": [1]}, "invalid_vector_dimensions"),
        ({"hybrid": {"embedder": "own"}, "vector": ["a", 0]}, "invalid_search_vector"),
        ({"hybrid": {"embedder": "own", "semanticRatio": 2}}, "invalid_search_semantic_ratio"),
        ({"hybrid": {"embedder": "own", "semanticRatio": 1}}, "vector_embedding_error"),
        ({"hybrid": [1]}, "invalid_search_hybrid"),
    ],
)
def test_searches_by_vectors_are_checked(films: Index, given: dict[str, Any], code: str) -> None:
    assert refused(films, "carol", given) == code


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"_vectors": {"own": [1, 2, 3]}}, "invalid_vector_dimensions"),
        ({"_vectors": {"own": "text"}}, "invalid_vectors_type"),
        ({"_vectors": {"own": [[1, True]]}}, "invalid_vectors_type"),
        ({"_vectors": [1, 2]}, "invalid_vectors_type"),
        ({}, "vector_embedding_error"),
    ],
)
def test_documents_with_wrong_vectors_fail(
    client: meilisearch.Client, films: Index, document: dict[str, Any], code: str
) -> None:
    task = client.wait_for_task(films.add_documents([{"id": 99} | document]).task_uid)
    assert task.error is not None
    assert task.error["code"] == code


def test_embedders_are_settings(client: meilisearch.Client) -> None:
    index = client.index("embedders")
    with pytest.raises(MeilisearchApiError) as remote:
        index.update_embedders({"a": {"source": "openAi", "apiKey": "x"}})
    assert remote.value.code == "feature_not_enabled"
    for wrong in ({"source": "userProvided"}, {"source": "userProvided", "dimensions": 0}, {}):
        with pytest.raises(MeilisearchApiError) as refusal:
            index.update_settings({"embedders": {"a": wrong}})
        assert refusal.value.code == "invalid_settings_embedders"
    document = {"id": 1, "_vectors": {"own": [3, 4], "wide": [1, 2, 3]}}
    client.wait_for_task(index.add_documents([document]).task_uid)
    client.wait_for_task(index.update_embedders(dict(OWN)).task_uid)
    known = index.get_embedders()
    assert known is not None
    assert known.embedders["own"].model_dump()["dimensions"] == 2
    assert ids(found(index, "", [1, 1])) == [1]
    wide = {"wide": {"source": "userProvided", "dimensions": 3}, "own": None}
    client.wait_for_task(index.update_embedders(wide).task_uid)
    assert list(index.get_settings()["embedders"]) == ["wide"]
    assert refused(index, "", {"vector": [1, 1], "hybrid": {"embedder": "own"}}) == (
        "invalid_search_embedder"
    )
    # A partial change keeps the vectors that it does not name.
    change = {"id": 1, "_vectors": {"wide": [3, 2, 1]}}
    client.wait_for_task(index.update_documents([change]).task_uid)
    told = index.http.get("indexes/embedders/documents/1?retrieveVectors=true")["_vectors"]
    assert (told["own"], told["wide"]["embeddings"]) == ([3, 4], [[3, 2, 1]])
    client.wait_for_task(index.reset_embedders().task_uid)
    assert index.get_settings()["embedders"] == {}


class Engine:
    """Without HTTP: documents with vectors come and go, and are searched by a state each time."""

    def __init__(self, folder: Path, limits: Limits = Limits()) -> None:  # noqa: B008 - it is frozen
        databases.make(folder)
        self._indexer = Indexer(folder)
        self._queue = TaskQueue(databases.open_tasks(folder))
        self.snapshots = Snapshots(folder, limits)
        settings = {"embedders": {"own": {"source": "userProvided", "dimensions": 3}}}
        self.do("settingsUpdate", settings)

    def do(self, kind: str, payload: dict[str, Any]) -> None:
        self._queue.accept(kind, "x", {}, orjson.dumps(payload))
        while self._indexer.step():
            pass

    def nearest(self, vector: Sequence[float]) -> list[int]:
        given = {"vector": vector, "hybrid": {"embedder": "own"}}
        with self.snapshots.index("x") as state:
            found = Search(state, given).find().ids
            documents = state.documents(found)
        return [documents[each]["id"] for each in found]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def test_what_is_near_is_exact_while_documents_change(engine: Engine) -> None:
    """The vectors in memory are changed with each state; a sum over all documents is compared."""
    chance = random.Random(3)
    kept: dict[int, list[list[float]]] = {}
    for _ in range(40):
        changed = {chance.randrange(30) for _ in range(chance.randrange(4))}
        if chance.random() < 0.4:
            engine.do("documentDeletion", {"ids": [str(each) for each in changed]})
            kept = {each: kept[each] for each in kept if each not in changed}
        else:
            new = {
                each: [_vector(chance) for _ in range(chance.randrange(1, 4))] for each in changed
            }
            documents = [{"id": each, "_vectors": {"own": new[each]}} for each in new]
            payload = {"isPartial": False, "primaryKey": "id", "documents": documents}
            engine.do("documentAdditionOrUpdate", payload)
            kept |= new
        wanted = _vector(chance)
        near = {each: max(_cosine(one, wanted) for one in some) for each, some in kept.items()}
        assert engine.nearest(wanted) == sorted(near, key=lambda each: -near[each])


def test_vectors_that_need_more_memory_than_there_is_are_refused(tmp_path: Path) -> None:
    """Reading them would end the engine, with each search anew."""
    engine = Engine(tmp_path, Limits(vector_bytes=12 * 30))
    documents = [{"id": each, "_vectors": {"own": [1, 0, each]}} for each in range(31)]

    def add(some: list[dict[str, Any]]) -> None:
        payload = {"isPartial": False, "primaryKey": "id", "documents": some}
        engine.do("documentAdditionOrUpdate", payload)

    add(documents[:30])
    assert engine.nearest([1, 0, 0])[0] == 0
    add(documents[30:])
    with pytest.raises(ApiError, match="the 31 vectors of the embedder `own` need") as refused:
        engine.nearest([1, 0, 0])
    assert (refused.value.code, refused.value.status) == ("bad_request", 400)
    engine.do("documentDeletion", {"ids": ["0"]})
    assert engine.nearest([1, 0, 0])[0] == 1


def _vector(chance: random.Random) -> list[float]:
    return [chance.uniform(-1, 1) for _ in range(3)]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product: float = sum(map(operator.mul, one, other))
    return product / (math.hypot(*one) * math.hypot(*other))


def test_a_vector_of_any_numbers_is_one_unit_long_or_nothing() -> None:
    assert vectors.packed([0.0, 0.0]) == bytes(8)
    assert vectors.packed([1.7e308, 1.7e308]) == bytes(8)
    assert vectors.packed([5, 0]) == vectors.packed([1e-30, 0])
