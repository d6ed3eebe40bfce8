"""Owns what is told of a document's score: what each ranking rule says of it, in its order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from instance_services.search import ranking, rows
from instance_services.search.found import FoundDocuments
from instance_services.search.sorting import SortKey, is_of_values

_NO_DIFFERENCE: Final = 1e-12
_MATCH_TYPES: Final = ("exactMatch", "matchesStart", "noExactMatch")


@dataclass(frozen=True)
class RuleResult:
    """Of one document: what a rule costs, or the value that it is sorted by."""

    rule: str
    costs: Sequence[ranking.Cost] = ()
    key: SortKey | None = None
    similarity: float | None = None


def results(found: FoundDocuments, document: int) -> Iterator[RuleResult]:
    """In the order of the rules; without words there are none but those about values.

    Nearness to a vector is in the place of the first rule that is about words.
    """
    similarity = (found.similarities or {}).get(document)
    costs = None if similarity is not None else found.costs.get(document)
    rest = iter(costs or ())
    for rule, keys in found.rules:
        if is_of_values(rule):
            yield from (RuleResult(rule, key=key) for key in keys)
        elif costs is not None:
            yield RuleResult(rule, next(rest))
        elif similarity is not None:
            yield RuleResult("vectorSort", similarity=similarity)
            similarity = None
    if similarity is not None:
        yield RuleResult("vectorSort", similarity=similarity)


def told(found: FoundDocuments, document: int) -> dict[str, Any]:
    """By rule, as `_rankingScoreDetails` has it."""
    details: dict[str, Any] = {}
    for order, result in enumerate(results(found, document)):
        if result.similarity is not None:
            details[result.rule] = {"order": order, "similarity": result.similarity}
        elif result.key is None:
            details[result.rule] = {"order": order} | _of_rule(result)
        else:
            name, value = _of_value(result.key, document)
            details[name] = {"order": order} | value
    return details


Comparable = float | tuple[bool, tuple[int, Any] | None]
"""A part of a score, or whether a value is sorted downwards, and the value."""


def comparable(found: FoundDocuments, document: int, weight: float) -> list[Comparable]:
    """What a document is compared by with those of other searches, whose scores have weights.

    Rules that follow one another are one score; a place is compared by its distance.
    """
    parts: list[Comparable] = []
    costs: list[ranking.Cost] = []
    for result in results(found, document):
        if result.key is None and result.similarity is None:
            costs.extend(result.costs)
            continue
        if costs:
            parts.append(ranking.score(costs) * weight)
            costs = []
        if result.key is None:
            parts.append((result.similarity or 0.0) * weight)
            continue
        far = result.key.distance_m(document)
        value = result.key.value(document) if far is None else (rows.NUMBER, far)
        parts.append((result.key.rule.is_descending, value))
    return [*parts, ranking.score(costs) * weight] if costs else parts


def compared(one: Sequence[Comparable], other: Sequence[Comparable]) -> int | None:
    """Less than 0 where `one` is better, 0 where they are equal; None where nothing tells it."""
    for left, right in zip(one, other, strict=False):
        if isinstance(left, float) and isinstance(right, float):
            if abs(left - right) > _NO_DIFFERENCE:
                return -1 if left > right else 1
        elif isinstance(left, tuple) and isinstance(right, tuple) and left[0] == right[0]:
            if left[1] != right[1]:
                return _of_values(left[1], right[1], is_descending=left[0])
        else:
            return None
    return 0 if len(one) == len(other) else None


def _of_values(
    one: tuple[int, Any] | None, other: tuple[int, Any] | None, *, is_descending: bool
) -> int:
    """Numbers are before texts, and these before nothing, in either direction."""
    if one is None or other is None:
        return 1 if one is None else -1
    if one[0] != other[0]:
        return -1 if one[0] < other[0] else 1
    return -1 if (one[1] > other[1]) == is_descending else 1


def _of_rule(result: RuleResult) -> dict[str, Any]:
    first = result.costs[0]
    if result.rule == "words":
        count = first.most - first.cost
        score = count / first.most if first.most else 1.0
        return {"matchingWords": count, "maxMatchingWords": first.most, "score": score}
    score = ranking.score(result.costs)
    if result.rule == "typo":
        return {"typoCount": first.cost, "maxTypoCount": first.most, "score": score}
    if result.rule == "attribute":
        return {
            "attributeRankingOrderScore": ranking.score(result.costs[:1]),
            "queryWordDistanceScore": ranking.score(result.costs[1:]),
            "score": score,
        }
    if result.rule == "exactness":
        return _exactness(result, score)
    return {"score": score}


def _exactness(result: RuleResult, score: float) -> dict[str, Any]:
    """Whether an attribute is the query is told first, and the words only where none is."""
    whole, words = result.costs
    match = _MATCH_TYPES[whole.cost]
    if whole.cost < whole.most:
        return {"matchType": match, "score": ranking.score([whole])}
    return {
        "matchType": match,
        "matchingWords": words.most - words.cost,
        "maxMatchingWords": words.most,
        "score": score,
    }


def _of_value(key: SortKey, document: int) -> tuple[str, dict[str, Any]]:
    rule = key.rule
    if rule.point is None:
        found = key.value(document)
        value = None if found is None else _plain(found)
        return f"{rule.path}:{rule.direction}", {"value": value}
    place = key.place(document)
    far = key.distance_m(document)
    return f"_geoPoint({rule.point[0]}, {rule.point[1]}):{rule.direction}", {
        "value": None if place is None else {"lat": place[0], "lng": place[1]},
        "distance": None if far is None else round(far),
    }


def _plain(value: tuple[int, Any]) -> Any:
    kind, found = value
    return int(found) if kind == rows.NUMBER and float(found).is_integer() else found
