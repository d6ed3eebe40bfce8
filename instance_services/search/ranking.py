"""Owns the order of what a query finds: the ranking rules, on the words of each document.

Each rule gives a document a cost, less is better, and the most that it could be. The costs of all
rules, in the order of the settings, are compared one after the other.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from instance_services.search import paths, texts
from instance_services.search.queries import Alternative, ParsedQuery
from instance_services.search.word_matches import WordMatches

FAR: Final = 8
_PLACES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
Words = Mapping[str, tuple[list[str], list[int]]]


class Hit(NamedTuple):
    """Where a term is found: the attribute, and the positions of its first and last word.

    `is_exact` where it is the term itself, and no longer word or synonym; `is_shared` where the
    same place is a hit of the terms beside it.
    """

    rank: int
    path: str
    start: int
    end: int
    typos: int
    is_exact: bool
    is_shared: bool = False


class Cost(NamedTuple):
    cost: int
    most: int


class Matcher:
    """Finds the terms of one query in the words of documents."""

    def __init__(
        self, query: ParsedQuery, searchable: Sequence[str], settings: dict[str, Any]
    ) -> None:
        self._query = query
        self.tokenizer = texts.tokenizer(settings)
        self._searchable = searchable
        self._exact_attributes = settings["typoTolerance"]["disableOnAttributes"] or ()
        self._several = [
            *(
                (number, Alternative(term.words), True)
                for number, term in enumerate(query.terms)
                if term.is_phrase
            ),
            *(
                (number, each, False)
                for number, term in enumerate(query.terms)
                for each in term.alternatives
            ),
        ]
        # The same words are in many documents: what the terms make of each is found once.
        self._matches = WordMatches(query.terms)
        self._ranks: dict[str, int | None] = {}
        self._exact: dict[str, bool] = {}

    def hits(self, words: Words) -> list[list[Hit]]:
        """For each term, all places where it is found."""
        found: list[list[Hit]] = [[] for _ in self._query.terms]
        for path, (texts_of, places) in words.items():
            rank = self._rank(path)
            if rank is None:
                continue
            self._single_words(found, rank, path, texts_of, places)
            exact = self._is_exact(path)
            for number, wanted, is_exact in self._several:
                if exact and wanted.typos:
                    continue
                if not wanted.is_prefix and wanted.words[0] not in texts_of:
                    continue
                found[number].extend(
                    Hit(rank, path, start, end, wanted.typos, is_exact, wanted.is_shared)
                    for start, end in phrases(wanted, texts_of, places)
                )
        return found

    def is_excluded(self, words: Words) -> bool:
        return any(
            self._rank(path) is not None and any(phrases(Alternative(phrase), texts_of, places))
            for path, (texts_of, places) in words.items()
            for phrase in self._query.excluded
        )

    def learn(self, some: Iterable[Words]) -> None:
        """The words of many documents, before each of them is looked at."""
        self._matches.learn(
            {
                word
                for words in some
                for path, (texts_of, _) in words.items()
                if self._rank(path) is not None
                for word in texts_of
            }
        )

    def marking(self, words: Sequence[texts.Word]) -> tuple[dict[str, int], list[tuple[int, int]]]:
        """By word, how many of its letters a term stands for; first and last word of phrases."""
        found: dict[str, int] = {}
        for word in {each.text for each in words}:
            lengths = [
                len(self._query.terms[number].words[0])
                if self._is_begun(number, word)
                else len(word)
                for number, _, _ in self._matches.of(word)
            ]
            if lengths:
                found[word] = max(lengths)
        spoken = [each.text for each in words]
        phrased = [at for _, wanted, _ in self._several for at in _places_of(wanted, spoken)]
        return found, phrased

    def _is_begun(self, number: int, word: str) -> bool:
        term = self._query.terms[number]
        return term.is_prefix and word.startswith(term.words[0])

    def _single_words(
        self,
        found: list[list[Hit]],
        rank: int,
        path: str,
        texts_of: list[str],
        places: list[int],
    ) -> None:
        exact = self._is_exact(path)
        known, matches = self._matches.known, self._matches.of
        for word, place in zip(texts_of, places, strict=True):
            # Most words are known and match nothing: a call for each would take most of the time.
            matched = known.get(word)
            for number, typos, is_exact in matches(word) if matched is None else matched:
                if not (exact and typos):
                    found[number].append(Hit(rank, path, place, place, typos, is_exact))

    def _is_exact(self, path: str) -> bool:
        """Whether words of the attribute are found without typos only."""
        if path not in self._exact:
            self._exact[path] = paths.rank(self._exact_attributes, path) is not None
        return self._exact[path]

    def _rank(self, path: str) -> int | None:
        if path not in self._ranks:
            self._ranks[path] = paths.rank(self._searchable, path)
        return self._ranks[path]


def phrases(
    wanted: Alternative, words: Sequence[str], places: Sequence[int]
) -> list[tuple[int, int]]:
    """Where words stand in order right after one another: the positions of first and last."""
    found = []
    for first, last in _places_of(wanted, words):
        start, end = places[first], places[last]
        if end - start == last - first:
            found.append((start, end))
    return found


def _places_of(wanted: Alternative, words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The numbers of the first and last word, of those that are in order."""
    *before, end = wanted.words
    count = len(before)
    # Most texts have none of them, and this is faster to say than to look at each word.
    if (before and before[0] not in words) or not (wanted.is_prefix or end in words):
        return
    for last in range(count, len(words)):
        is_end = words[last].startswith(end) if wanted.is_prefix else words[last] == end
        if is_end and list(words[last - count : last]) == before:
            yield last - count, last


def matched(hits: Sequence[Sequence[Hit]], order: Sequence[int]) -> int:
    """How many of the terms are found, of those that may be left out last."""
    count = 0
    for number in order:
        if not hits[number]:
            break
        count += 1
    return count


@dataclass(frozen=True)
class RankingContext:
    """What is the same for all documents of a search; `attributes` is how many ranks there are."""

    query: ParsedQuery
    attributes: int
    is_by_attribute: bool


def cost_of(  # noqa: PLR0911 - one for each rule
    rule: str, hits: Sequence[Sequence[Hit]], words: Words, context: RankingContext
) -> list[Cost]:
    """Of a document by one rule; `hits` has the terms that count for it.

    Rules about values are no concern of this module.
    """
    query, attributes = context.query, context.attributes
    if rule == "words":
        return [Cost(len(query.terms) - len(hits), len(query.terms))]
    if rule == "typo":
        return [Cost(_typos(hits), 2 * max(1, len(hits)))]
    if rule == "proximity":
        apart = _apart_by_attribute if context.is_by_attribute else _distance
        far = sum(apart(one, other) - 1 for one, other in pairwise(hits))
        return [Cost(far, FAR * max(0, len(hits) - 1))]
    if rule == "attributeRank":
        return [Cost(_ranks(hits), max(0, attributes - 1) * len(hits))]
    if rule == "wordPosition":
        return [Cost(_positions(hits), len(_PLACES) * len(hits))]
    if rule == "attribute":
        ranks = cost_of("attributeRank", hits, words, context)
        return [*ranks, *cost_of("wordPosition", hits, words, context)]
    return _exactness(hits, query, words)


def _typos(hits: Sequence[Sequence[Hit]]) -> int:
    return sum(min(hit.typos for hit in each) for each in hits)


def _apart_by_attribute(one: Sequence[Hit], other: Sequence[Hit]) -> int:
    """1 in the same attribute, whatever is between."""
    return FAR if {hit.path for hit in one}.isdisjoint(hit.path for hit in other) else 1


def _distance(one: Sequence[Hit], other: Sequence[Hit]) -> int:
    """1 where `other` is right after `one` at best; the other way round is one further."""
    shared = {(hit.path, hit.start) for hit in other if hit.is_shared}
    if any(hit.is_shared and (hit.path, hit.start) in shared for hit in one):
        return 1
    best = FAR
    starts: dict[str, list[int]] = {}
    ends: dict[str, list[int]] = {}
    for hit in other:
        starts.setdefault(hit.path, []).append(hit.start)
        ends.setdefault(hit.path, []).append(hit.end)
    for each in (*starts.values(), *ends.values()):
        each.sort()
    for hit in one:
        if hit.path not in starts:
            continue
        following, preceding = starts[hit.path], ends[hit.path]
        if (at := bisect_right(following, hit.end)) < len(following):
            best = min(best, following[at] - hit.end)
        if (at := bisect_left(preceding, hit.start)) > 0:
            best = min(best, hit.start - preceding[at - 1] + 1)
        if best == 1:
            break
    return best


def _ranks(hits: Sequence[Sequence[Hit]]) -> int:
    return sum(min(hit.rank for hit in each) for each in hits)


def _positions(hits: Sequence[Sequence[Hit]]) -> int:
    return sum(_bucket(min(hit.start for hit in each)) for each in hits)


def _bucket(place: int) -> int:
    """Far from the beginning, a few words more or less make no difference."""
    return sum(place >= limit for limit in _PLACES)


def _exactness(hits: Sequence[Sequence[Hit]], query: ParsedQuery, words: Words) -> list[Cost]:
    """An attribute that is the query, then one that begins with it, then how many words are."""
    wanted = query.words
    best = 2
    for path in {hit.path for each in hits for hit in each}:
        texts_of = words[path][0]
        if texts_of == wanted:
            best = 0
            break
        if texts_of[: len(wanted)] == wanted:
            best = 1
    inexact = sum(not any(hit.is_exact for hit in each) for each in hits)
    return [Cost(best, 2), Cost(inexact, len(hits))]


def score(costs: Iterable[Cost]) -> float:
    """From 0 to 1: how good the costs are, the first before all others."""
    rank, most = 1, 1
    for each in costs:
        rank = (rank - 1) * (each.most + 1) + (each.most - min(each.cost, each.most)) + 1
        most *= each.most + 1
    return rank / most
