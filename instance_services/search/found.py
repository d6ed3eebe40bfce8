"""Owns what a search hands on of what it found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from instance_services.search import ranking
from instance_services.search.sorting import SortKey

Rules = Sequence[tuple[str, Sequence[SortKey]]]
"""The ranking rules in their order; those about values with what they look up."""


@dataclass(frozen=True)
class FoundDocuments:
    """Numbers of documents, best first. `total` may be an estimate, of what was not looked at."""

    ids: list[int]
    total: int
    scores: Mapping[int, float] = field(default_factory=dict)
    matcher: ranking.Matcher | None = None
    point: tuple[float, float] | None = None
    rules: Rules = ()
    costs: Mapping[int, Sequence[Sequence[ranking.Cost]]] = field(default_factory=dict)
    """By document, for each rule that is none about values, what it costs."""
    similarities: Mapping[int, float] | None = None
    """Of those that were found by a vector; None where there was none."""
