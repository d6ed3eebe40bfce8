"""Owns a search: what is found, in which order, and what is told of it."""

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import orjson

from instance_services.search import (
    candidates,
    expansions,
    filters,
    merging,
    paths,
    queries,
    ranking,
    rows,
    score_details,
    semantics,
    setting_checks,
)
from instance_services.search.errors import ApiError
from instance_services.search.found import FoundDocuments, Rules
from instance_services.search.selecting import Selection
from instance_services.search.snapshots import IndexState
from instance_services.search.sorting import SortKey, SortRule, is_of_values, sort_rule
from instance_services.search.time_limits import TimeLimit

CUTOFF_MS: Final = 1_500
"""After this time what was not looked at is left out, where the settings say nothing else."""
LEARNED_BYTES: Final = 2**18
"""Of words of documents that are compared with those of the query together, before the next look
at the time."""
ALWAYS_RANKED: Final = 20
"""As many of the best candidates are ranked, however long it takes."""


class Search:
    """One search of one index. `given` is the body of a search; `rules` the tenant's own filter."""

    def __init__(
        self,
        state: IndexState,
        given: Mapping[str, Any],
        tenant_filter: Any = None,
        limit: TimeLimit | None = None,
    ) -> None:
        self._state = state
        self._given = given
        self._settings = state.settings
        limit = limit or TimeLimit.of_one()
        self._ends = limit.ends
        cutoff_ms = state.settings["searchCutoffMs"]
        cutoff_s = (CUTOFF_MS if cutoff_ms is None else cutoff_ms) / 1_000
        self._cut_off = min(time.monotonic() + cutoff_s, limit.cut_off)
        self.selection = Selection(state.data, state.number, state.settings, self._go_on)
        self._tenant_filter = tenant_filter

    def find(self) -> FoundDocuments:
        """All that is found, at most a thousand for a query. Raises ApiError."""
        node = self._filter()
        query = self._query()
        sorting = self._sorting()
        self._searchable()
        self._check_locales()
        among = None if node is None else self.selection.ids(node, "invalid_search_filter")
        keys = self._value_keys(sorting)
        near = semantics.asked(self._given, self._state)
        if near is None and query.terms:
            found = self._of_query(query, among, keys)
        elif near is None:
            found = self._of_all(query, among, keys)
        else:
            found = self._of_vector(near, query, among, keys)
            if query.terms and near.ratio < 1:
                by_words = replace(self._of_query(query, among, keys), rules=keys)
                found = merging.merged(by_words, found, near.ratio)
        found = self._distinct(found)
        point = next((rule.point for rule in sorting if rule.point is not None), None)
        return replace(found, point=point, rules=keys)

    def _query(self) -> queries.ParsedQuery:
        query = queries.parse(self._given.get("q"), self._settings)
        if self._state.searcher is None:
            return query
        words = candidates.IndexedWords(self._state.searcher)
        return expansions.expanded(query, self._settings, words)

    def _filter(self) -> "filters.Node | None":
        given = map(_parsed, (self._given.get("filter"), self._tenant_filter))
        parts = tuple(node for node in given if node is not None)
        return filters.And(parts) if parts else None

    def is_visible(self, document: int) -> bool:
        """Whether the tenant may see it, whatever the search asks for."""
        node = _parsed(self._tenant_filter)
        return node is None or document in self.selection.ids(node, "invalid_search_filter")

    def _check_locales(self) -> None:
        unknown = setting_checks.unknown_locales(self._given.get("locales") or ())
        if unknown:
            raise ApiError(
                "invalid_search_locales",
                f"`{unknown[0][:100]}` is no language that is known, as `en` and `eng` are",
            )

    def _sorting(self) -> list[SortRule]:
        found = [sort_rule(each) for each in self._given.get("sort") or ()]
        allowed = self._settings["sortableAttributes"]
        for rule in found:
            if paths.rank(allowed, rule.path) is None:
                raise ApiError(
                    "invalid_search_sort",
                    f"the attribute `{rule.path[:200]}` is not sortable; sortable attributes: "
                    f"{', '.join(allowed) or 'none'}. Add it to sortableAttributes",
                )
        if found and "sort" not in self._settings["rankingRules"]:
            raise ApiError("invalid_search_sort", "the ranking rule `sort` is needed to sort")
        return found

    def _value_keys(self, sorting: Sequence[SortRule]) -> Rules:
        found: list[tuple[str, Sequence[SortKey]]] = []
        for rule in self._settings["rankingRules"]:
            if rule == "sort":
                found.append((rule, [SortKey(self.selection, each) for each in sorting]))
            elif ":" in rule:
                found.append((rule, [SortKey(self.selection, sort_rule(rule))]))
            else:
                found.append((rule, []))
        return found

    def _of_all(
        self, query: queries.ParsedQuery, among: set[int] | None, keys: Rules
    ) -> FoundDocuments:
        """Without words all documents are equal, but for their values."""
        ids = self._state.in_order(self.selection.ids(None, "") if among is None else among)
        if query.excluded:
            ids = self._without_excluded(query, ids)
        wanted = [key for _, some in keys for key in some]
        if wanted:
            ids.sort(key=lambda document: [key(document) for key in wanted])
        return FoundDocuments(ids, len(ids), dict.fromkeys(ids, 1.0))

    def _without_excluded(self, query: queries.ParsedQuery, ids: list[int]) -> list[int]:
        matcher = self._matcher(query)
        excluded = {
            document
            for document, _, words in self._words(ids)
            if matcher.is_excluded(rows.unpacked_words(words))
        }
        return [document for document in ids if document not in excluded]

    def _of_query(
        self, query: queries.ParsedQuery, among: set[int] | None, keys: Rules
    ) -> FoundDocuments:
        matcher = self._matcher(query)
        if self._state.searcher is None:
            return FoundDocuments([], 0, {}, matcher)
        strategy = self._given.get("matchingStrategy") or "last"
        order = self._order(query, strategy)
        context = self._context(query)
        terms = [_alternatives(query.terms[number]) for number in order]
        needed = len(terms) if strategy == "all" else 1
        ids, count = candidates.find(
            self._state.searcher, terms[:needed], terms[needed:], among=among
        )
        ranked: list[tuple[list[float], int, int]] = []
        costs: dict[int, list[list[ranking.Cost]]] = {}
        looked_at = 0
        for document, place, words in self._best_first(ids, matcher):
            if looked_at >= ALWAYS_RANKED and time.monotonic() > self._cut_off:
                break
            looked_at += 1
            hits = matcher.hits(words)
            kept = ranking.matched(hits, order)
            if kept < needed or matcher.is_excluded(words):
                continue
            counted = [hits[number] for number in sorted(order[:kept])]
            costs[document] = [
                ranking.cost_of(rule, counted, words, context)
                for rule, _ in keys
                if not is_of_values(rule)
            ]
            ranked.append((_order_of(document, keys, costs[document]), place, document))
        ranked.sort()
        scores = {each: ranking.score(chain.from_iterable(costs[each])) for each in costs}
        least = self._given.get("rankingScoreThreshold") or 0.0
        kept_ids = [document for _, _, document in ranked if scores[document] >= least]
        total = len(kept_ids) + max(0, count - looked_at)
        return FoundDocuments(kept_ids, total, scores, matcher, costs=costs)

    def _context(self, query: queries.ParsedQuery) -> ranking.RankingContext:
        is_by_attribute = self._settings["proximityPrecision"] == "byAttribute"
        return ranking.RankingContext(query, len(self._searchable()), is_by_attribute)

    def near(self, wanted: semantics.NearSearch) -> FoundDocuments:
        """What is nearest to a vector, whatever the words are. Raises ApiError."""
        node = self._filter()
        among = None if node is None else self.selection.ids(node, "invalid_search_filter")
        return self._of_vector(wanted, queries.ParsedQuery(), among, self._value_keys([]))

    def _of_vector(
        self,
        wanted: semantics.NearSearch,
        query: queries.ParsedQuery,
        among: set[int] | None,
        keys: Rules,
    ) -> FoundDocuments:
        """The nearest ones; what is about values has its place among the rules."""
        least = self._given.get("rankingScoreThreshold") or 0.0
        near = {
            document: similarity
            for document, similarity in wanted.similarities(self._state).items()
            if similarity >= least and (among is None or document in among)
        }
        pairs = ((similarity, -document) for document, similarity in near.items())
        kept = {-each: near[-each] for _, each in heapq.nlargest(candidates.CANDIDATES_MAX, pairs)}
        best = list(kept)
        found = FoundDocuments(
            best, len(near), kept, self._matcher(query), rules=keys, similarities=kept
        )
        parts = {document: score_details.comparable(found, document, 1.0) for document in best}
        return replace(found, ids=merging.ordered(parts))

    def _order(self, query: queries.ParsedQuery, strategy: str) -> list[int]:
        """The terms, those that may be left out first at the end."""
        numbers = list(range(len(query.terms)))
        if strategy == "frequency" and self._state.searcher is not None:
            searcher, terms = self._state.searcher, query.terms
            numbers.sort(key=lambda n: candidates.frequency(searcher, terms[n].words[0]))
        return numbers

    def _matcher(self, query: queries.ParsedQuery) -> ranking.Matcher:
        return ranking.Matcher(query, self._searchable(), self._settings)

    def _searchable(self) -> list[str]:
        """In the order of their rank."""
        searchable: list[str] = self._settings["searchableAttributes"]
        wanted: list[str] | None = self._given.get("attributesToSearchOn")
        if wanted is None or "*" in wanted:
            return searchable
        for each in wanted:
            if paths.rank(searchable, each) is None:
                raise ApiError(
                    "invalid_search_attributes_to_search_on",
                    f"the attribute `{each[:200]}` is not searchable; searchable attributes: "
                    f"{', '.join(searchable)}",
                )
        return sorted(wanted, key=lambda each: paths.rank(searchable, each) or 0)

    def _words(self, ids: list[int]) -> list[tuple[int, int, bytes]]:
        """Number, place and packed words of those that are still documents of this index."""
        return self._state.data.execute(
            # The sign keeps SQLite from looking at every document of the index instead.
            "SELECT id, place, words FROM documents WHERE +index_number = ?"
            " AND id IN (SELECT value FROM json_each(?))",
            (self._state.number, orjson.dumps(ids).decode()),
        ).fetchall()

    def _best_first(
        self, ids: list[int], matcher: ranking.Matcher
    ) -> Iterator[tuple[int, int, ranking.Words]]:
        """Number, place and words, which the matcher has learned of by then."""
        found = {document: (place, packed) for document, place, packed in self._words(ids)}
        some: dict[int, ranking.Words] = {}
        size_bytes = 0
        known = [each for each in ids if each in found]
        for each in known:
            packed = found[each][1]
            some[each] = rows.unpacked_words(packed)
            size_bytes += len(packed)
            if size_bytes >= LEARNED_BYTES or each == known[-1]:
                matcher.learn(some.values())
                yield from ((one, found[one][0], own) for one, own in some.items())
                some, size_bytes = {}, 0

    def _distinct(self, found: FoundDocuments) -> FoundDocuments:
        """Of documents with a value in common, only the best."""
        attribute = self._given.get("distinct") or self._settings["distinctAttribute"]
        if attribute is None:
            return found
        if attribute != self._settings["distinctAttribute"]:
            self._check_distinct(attribute)
        values: dict[int, list[tuple[int, Any]]] = {}
        for document, kind, value in self._state.data.execute(
            "SELECT document, kind, coalesce(number, text) FROM field_values"
            " WHERE index_number = ? AND path = ? AND kind IN (0, 1)",
            (self._state.number, attribute),
        ):
            values.setdefault(document, []).append((kind, value))
        seen: set[tuple[int, Any]] = set()
        kept = []
        for document in found.ids:
            own = values.get(document, ())
            if seen.isdisjoint(own):
                kept.append(document)
                seen.update(own)
        total = found.total - (len(found.ids) - len(kept))
        return replace(found, ids=kept, total=total)

    def _check_distinct(self, attribute: str) -> None:
        allowed = [
            pattern
            for each in self._settings["filterableAttributes"]
            for pattern in ([each] if isinstance(each, str) else each["attributePatterns"])
        ]
        if paths.rank(allowed, attribute) is None:
            raise ApiError(
                "invalid_search_distinct",
                f"the attribute `{attribute[:200]}` is not filterable; filterable attributes: "
                f"{', '.join(allowed) or 'none'}",
            )

    def _go_on(self) -> None:
        if time.monotonic() > self._ends:
            raise ApiError(
                "unavailable",
                "the search took too long and was ended; ask for less at once",
            )


def _alternatives(term: queries.Term) -> list[list[candidates.WantedWord]]:
    own = [candidates.WantedWord(word, term.typos, term.is_prefix) for word in term.words]
    if term.is_phrase:
        own = [candidates.WantedWord(word) for word in term.words]
    return [own, *map(_wanted, term.alternatives)]


def _wanted(alternative: queries.Alternative) -> list[candidates.WantedWord]:
    *before, last = alternative.words
    found = [candidates.WantedWord(word) for word in before]
    return [*found, candidates.WantedWord(last, is_prefix=alternative.is_prefix)]


def _order_of(document: int, rules: Rules, costs: Sequence[Sequence[ranking.Cost]]) -> list[float]:
    """What documents are compared by: costs and places of values, in the order of the rules."""
    found: list[float] = []
    rest = iter(costs)
    for rule, keys in rules:
        if is_of_values(rule):
            found.extend(key(document) for key in keys)
        else:
            found.extend(each.cost for each in next(rest))
    return found


def _parsed(given: Any) -> "filters.Node | None":
    """Raises ApiError."""
    try:
        return filters.parse(given)
    except filters.FilterError as error:
        raise ApiError("invalid_search_filter", str(error)) from None
