"""Owns the merge of what was found by words with what was found by a vector."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cmp_to_key

from instance_services.search import score_details
from instance_services.search.found import FoundDocuments


def merged(by_words: FoundDocuments, by_vector: FoundDocuments, ratio: float) -> FoundDocuments:
    """Best first; what both found is there once, by what is better of it.

    Scores by a vector count `ratio`, and the others the rest of 1.
    """
    every = [
        (score_details.comparable(found, document, weight), found, document)
        for found, weight in ((by_vector, ratio), (by_words, 1 - ratio))
        for document in found.ids
    ]
    best: dict[int, FoundDocuments] = {}
    for number in ordered({number: each[0] for number, each in enumerate(every)}):
        _, found, document = every[number]
        best.setdefault(document, found)
    near = by_vector.similarities or {}
    return replace(
        by_words,
        ids=list(best),
        total=len(best) + by_words.total - len(by_words.ids),
        scores={document: found.scores[document] for document, found in best.items()},
        similarities={each: near[each] for each, found in best.items() if found is by_vector},
    )


def ordered(parts: Mapping[int, Sequence[score_details.Comparable]]) -> list[int]:
    """The keys of what is compared, the best first; what cannot be compared stays as it is."""

    def compared(one: int, other: int) -> int:
        return score_details.compared(parts[one], parts[other]) or 0

    return sorted(parts, key=cmp_to_key(compared))
