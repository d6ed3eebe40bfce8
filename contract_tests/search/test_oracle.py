"""Owns the comparison of the engine with a slow and obvious model of it."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract_tests.search.model import Asked, Filter, Model
from instance_services.search import databases, facet_searching, federating, results
from instance_services.search.boundary import SearchService
from instance_services.search.callers import MASTER
from instance_services.search.indexing import Indexer
from instance_services.search.searching import Search
from instance_services.search.snapshots import Snapshots
from instance_services.search.tasks import TaskQueue

WORDS = ("great", "grate", "greta", "gatsby", "gatsbi", "a", "man", "men", "expectation",
         "expectations", "expectatoin", "café", "cafe", "emma", "emmas", "42", "cat", "food",
         "catfood", "catfoods")  # fmt: skip
SYNONYMS = {"cat food": ["emma"], "emma": ["great man"], "a man": ["42 cat", "gatsby"]}
ATTRIBUTES = ("n", "s", "m")
RULES = ("words", "typo", "proximity", "attributeRank", "sort", "wordPosition", "exactness")

texts = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from([" ", " ", ". ", ", "])), max_size=8
).map(lambda parts: "".join(map("".join, parts)))
scalars = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, -1.5, "a", "A", "é", "e", "b c", "1", "", True, False, None]),
)
values = st.one_of(scalars, st.lists(scalars.filter(lambda each: each is not None), max_size=3))
documents = st.lists(
    st.fixed_dictionaries(
        {}, optional={"title": texts, "body": texts} | dict.fromkeys(ATTRIBUTES, values)
    ),
    max_size=12,
)
attributes = st.sampled_from(ATTRIBUTES)
words = st.sampled_from(["a", "A", "é", "b c", "1", "true", "x", "'", "\\"])
numbers = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -1.5]))


def condition(kind: str, *some: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    return st.builds(
        lambda attribute, found: Filter(kind, (), attribute, tuple(found)),
        attributes,
        st.tuples(*some),
    )


conditions = st.one_of(
    *(condition(kind, st.one_of(words, numbers)) for kind in ("=", "!=")),
    *(condition(kind, numbers) for kind in (">", ">=", "<", "<=")),
    *(condition(kind) for kind in ("EXISTS", "IS NULL", "IS EMPTY")),
    *(condition(kind, words) for kind in ("CONTAINS", "STARTS WITH")),
    condition("TO", numbers, numbers),
    st.builds(
        lambda attribute, found: Filter("IN", (), attribute, tuple(found)),
        attributes,
        st.lists(st.one_of(words, numbers), max_size=3),
    ),
)
filters = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds(
            lambda parts: Filter("AND", tuple(parts)), st.lists(inner, min_size=2, max_size=3)
        ),
        st.builds(
            lambda parts: Filter("OR", tuple(parts)), st.lists(inner, min_size=2, max_size=3)
        ),
        st.builds(lambda part: Filter("NOT", (part,)), inner),
    ),
    max_leaves=6,
)
asked = st.builds(
    Asked,
    q=st.lists(st.sampled_from([*WORDS, "gre", "expec", "expectatons"]), max_size=4).map(" ".join),
    filter=st.none() | filters,
    sort=st.lists(st.tuples(attributes, st.booleans()), max_size=2).map(tuple),
    distinct=st.none() | attributes,
    strategy=st.sampled_from(["last", "all"]),
)
rules = st.permutations([*RULES, "n:desc"]).map(list)
switches = st.tuples(st.booleans(), st.booleans(), st.sampled_from([SYNONYMS, {}]))


class Engine:
    """The engine without HTTP and without a process of its own for indexing."""

    def __init__(self, folder: Path) -> None:
        databases.make(folder)
        self._indexer = Indexer(folder)
        self._queue = TaskQueue(databases.open_tasks(folder))
        self._snapshots = Snapshots(folder)
        self._number = 0

    def fill(
        self,
        found: list[dict[str, Any]],
        rules: list[str],
        by_attribute: bool,
        prefixes: bool,
        synonyms: dict[str, list[str]],
    ) -> str:
        """A new index with these documents."""
        self._number += 1
        uid = f"index{self._number}"
        changes = {
            "searchableAttributes": ["title", "body"],
            "filterableAttributes": list(ATTRIBUTES),
            "sortableAttributes": list(ATTRIBUTES),
            "rankingRules": rules,
            "synonyms": synonyms,
            "proximityPrecision": "byAttribute" if by_attribute else "byWord",
            "prefixSearch": "indexingTime" if prefixes else "disabled",
        }
        self._queue.accept("settingsUpdate", uid, changes, orjson.dumps(changes))
        payload = {"isPartial": False, "primaryKey": "id", "documents": found}
        details = {"receivedDocuments": len(found)}
        self._queue.accept("documentAdditionOrUpdate", uid, details, orjson.dumps(payload))
        while self._indexer.step():
            pass
        return uid

    def drop(self, uid: str) -> None:
        self._queue.accept("indexDeletion", uid, {})
        self._indexer.step()

    def merged(self, uid: str, queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        body = {
            "federation": {"limit": 1_000},
            "queries": [{"indexUid": uid} | each for each in queries],
        }
        # No more of it is used.
        service = cast("SearchService", SimpleNamespace(snapshots=self._snapshots))
        hits: list[dict[str, Any]] = federating.answer(
            service,
            MASTER,
            body,
        )["hits"]
        return hits

    def found(self, uid: str, asked: Asked, **more: Any) -> dict[str, Any]:
        given: dict[str, Any] = {
            "q": asked.q,
            "filter": None if asked.filter is None else asked.filter.written(),
            "sort": [f"{name}:{'desc' if down else 'asc'}" for name, down in asked.sort],
            "distinct": asked.distinct,
            "matchingStrategy": asked.strategy,
            "facets": list(ATTRIBUTES),
            "limit": 1_000,
        } | more
        with self._snapshots.index(uid) as state:
            one = Search(state, given)
            return results.answer(state, one, one.find(), given, 0)

    def facet_values(self, uid: str, asked: Asked, attribute: str, query: str) -> dict[str, int]:
        given = {"q": asked.q, "filter": None if asked.filter is None else asked.filter.written()}
        with self._snapshots.index(uid) as state:
            return dict(facet_searching.values(state, Search(state, given), attribute, query))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        yield Engine(Path(folder))


def compare(
    engine: Engine,
    some: list[dict[str, Any]],
    rules: list[str],
    switches: tuple[bool, bool, dict[str, list[str]]],
    asks: list[Asked],
) -> None:
    given = [{"id": number, **each} for number, each in enumerate(some)]
    uid = engine.fill(given, rules, *switches)
    model = Model(["title", "body"], rules, given, *switches)
    for each in asks:
        expected = model.found(each)
        answer = engine.found(uid, each)
        assert [hit["id"] for hit in answer["hits"]] == [one["id"] for one in expected], each
        assert answer["estimatedTotalHits"] == len(expected)
        for attribute in ATTRIBUTES:
            assert answer["facetDistribution"].get(attribute, {}) == model.facets(
                expected, attribute
            )
        plain = replace(each, distinct=None, sort=(), strategy="last")
        for attribute, query in (("s", ""), ("m", each.q[:1])):
            assert engine.facet_values(uid, plain, attribute, query) == model.facet_search(
                model.found(plain), attribute, query
            ), (plain, attribute, query)
    engine.drop(uid)


QUIET = list(HealthCheck)


@settings(max_examples=25, deadline=None, database=None, suppress_health_check=QUIET)
@given(documents, rules, switches, st.lists(asked, min_size=4, max_size=8))
def test_the_engine_finds_what_the_model_finds(
    engine: Engine,
    some: list[dict[str, Any]],
    rules: list[str],
    switches: tuple[bool, bool, dict[str, list[str]]],
    asks: list[Asked],
) -> None:
    compare(engine, some, rules, switches, asks)


@settings(max_examples=15, deadline=None, database=None, suppress_health_check=QUIET)
@given(documents, st.lists(asked, min_size=2, max_size=4), filters)
def test_searches_that_are_merged_find_what_one_finds(
    engine: Engine, some: list[dict[str, Any]], asks: list[Asked], part: Filter
) -> None:
    """What a filter finds and what it does not are all, and no score differs."""
    documents = [{"id": number, **each} for number, each in enumerate(some)]
    uid = engine.fill(documents, list(RULES), by_attribute=False, prefixes=True, synonyms=SYNONYMS)
    for each in asks:
        plain = Asked(q=each.q)
        whole = engine.found(uid, plain, showRankingScore=True)["hits"]
        queries = [{"q": each.q, "filter": one.written()} for one in (part, Filter("NOT", (part,)))]
        merged = engine.merged(uid, queries)
        assert {hit["id"] for hit in merged} == {hit["id"] for hit in whole}
        assert len(merged) == len(whole)
        scores = [hit["_federation"]["weightedRankingScore"] for hit in merged]
        assert scores == [hit["_rankingScore"] for hit in whole]
    engine.drop(uid)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@settings(max_examples=10_000, deadline=None, database=None, suppress_health_check=QUIET)
@given(documents, rules, switches, st.lists(asked, min_size=1, max_size=8))
def test_the_engine_finds_what_the_model_finds_in_10_000_cases(
    engine: Engine,
    some: list[dict[str, Any]],
    rules: list[str],
    switches: tuple[bool, bool, dict[str, list[str]]],
    asks: list[Asked],
) -> None:
    compare(engine, some, rules, switches, asks)
