"""Owns the order by values of attributes: what a request says, and each document's place in it."""

import math
import re
from dataclasses import dataclass
from typing import Any, Final

from instance_services.search import rows
from instance_services.search.errors import ApiError
from instance_services.search.selecting import Selection, meters

_SORT: Final = re.compile(r"(?P<path>.+):(?P<direction>asc|desc)", re.DOTALL)
_POINT: Final = re.compile(r"_geoPoint\(\s*([-+.\deE]+)\s*,\s*([-+.\deE]+)\s*\)")
_LAST: Final = math.inf


@dataclass(frozen=True)
class SortRule:
    path: str
    is_descending: bool
    point: tuple[float, float] | None = None

    @property
    def direction(self) -> str:
        return "desc" if self.is_descending else "asc"


class SortKey:
    """What a rule about values looks up by the number of a document."""

    def __init__(self, selection: Selection, rule: SortRule) -> None:
        self.rule = rule
        self._values: dict[int, tuple[int, Any]] = {}
        self._places: dict[int, tuple[float, float]] = {}
        if rule.point is None:
            self._values = selection.sort_values(rule.path, is_descending=rule.is_descending)
            self._ranks = self._ranked()
        else:
            self._places = selection.places()

    def __call__(self, document: int) -> float:
        """The place of a document's value among all; those without one are last."""
        if self.rule.point is None:
            value = self._values.get(document)
            return _LAST if value is None else self._ranks[value]
        far = self.distance_m(document)
        return _LAST if far is None else -far if self.rule.is_descending else far

    def value(self, document: int) -> tuple[int, Any] | None:
        """(0, a number) or (1, a text)."""
        return self._values.get(document)

    def place(self, document: int) -> tuple[float, float] | None:
        return self._places.get(document)

    def distance_m(self, document: int) -> float | None:
        place = self._places.get(document)
        if place is None or self.rule.point is None:
            return None
        return meters(self.rule.point, place)

    def _ranked(self) -> dict[tuple[int, Any], int]:
        numbers = sorted({each for each in self._values.values() if each[0] == rows.NUMBER})
        texts = sorted({each for each in self._values.values() if each[0] != rows.NUMBER})
        if self.rule.is_descending:
            numbers.reverse()
            texts.reverse()
        return {value: rank for rank, value in enumerate([*numbers, *texts])}


def is_of_values(rule: str) -> bool:
    """Whether a ranking rule compares values of attributes."""
    return rule == "sort" or ":" in rule


def sort_rule(text: str) -> SortRule:
    """`price:asc`, or `_geoPoint(48.8, 2.3):asc`. Raises ApiError."""
    match = _SORT.fullmatch(text)
    if match is None:
        raise ApiError(
            "invalid_search_sort",
            f"`{text[:200]}` is no way to sort: write an attribute and `:asc` or `:desc`",
        )
    path, is_descending = match["path"], match["direction"] == "desc"
    if not path.startswith("_geoPoint("):
        return SortRule(path, is_descending)
    point = _POINT.fullmatch(path)
    try:
        place = (float(point[1]), float(point[2])) if point else None
    except ValueError:
        place = None
    if place is None:
        raise ApiError(
            "invalid_search_sort", "_geoPoint takes latitude and longitude: _geoPoint(48.8, 2.3)"
        )
    return SortRule(rows.GEO, is_descending, place)
