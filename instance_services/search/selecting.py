"""Owns which documents a filter finds, by the values that the database keeps of them."""

import math
import sqlite3
from collections.abc import Callable
from typing import Any, Final

import orjson

from instance_services.search import configuration, paths, texts
from instance_services.search.errors import ApiError
from instance_services.search.filters import And, Condition, Geo, Node, Not, Or, attributes
from instance_services.search.rows import EMPTY, GEO, NULL, NUMBER, PLACE, PRESENT, STRING

EARTH_RADIUS_M: Final = 6_372_797.560856
_SELECT: Final = "SELECT document FROM field_values WHERE index_number = ? AND path = ?"
_COMPARED: Final = {">": ">", ">=": ">=", "<": "<", "<=": "<="}


class Selection:
    """Of one index, over a connection whose transaction is one state of it."""

    def __init__(
        self,
        data: sqlite3.Connection,
        number: int,
        settings: dict[str, Any],
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        self._data = data
        self._number = number
        self._settings = settings
        self._go_on = go_on
        self._all: set[int] | None = None

    def ids(self, node: "Node | None", code: str) -> set[int]:
        """Of the documents that a filter finds, or of all.

        Raises ApiError with `code` where an attribute is not filterable.
        """
        if node is None:
            return set(self._everything())
        allowed = configuration.filterable(self._settings)
        for attribute in sorted(attributes(node)):
            if paths.rank(allowed, attribute) is None:
                raise ApiError(
                    code,
                    f"the attribute `{attribute[:200]}` is not filterable; filterable attributes: "
                    f"{', '.join(allowed) or 'none'}. Add it to filterableAttributes",
                )
        return self._found(node)

    def _everything(self) -> set[int]:
        if self._all is None:
            sql = "SELECT id FROM documents WHERE index_number = ?"
            self._all = {each for (each,) in self._data.execute(sql, (self._number,))}
        return self._all

    def _found(self, node: Node) -> set[int]:
        self._go_on()
        if isinstance(node, And):
            found = self._found(node.parts[0])
            for part in node.parts[1:]:
                if not found:
                    break
                found &= self._found(part)
            return found
        if isinstance(node, Or):
            return set().union(*(self._found(part) for part in node.parts))
        if isinstance(node, Not):
            return self._everything() - self._found(node.part)
        if isinstance(node, Geo):
            return self._within(node)
        return self._condition(node)

    def _condition(self, node: Condition) -> set[int]:
        if node.operator in {"EXISTS", "NULL", "EMPTY"}:
            kind = {"EXISTS": PRESENT, "NULL": NULL, "EMPTY": EMPTY}[node.operator]
            return self._rows(node, "AND kind = ?", kind)
        if node.operator in {"=", "IN"}:
            found: set[int] = set()
            for value in node.values:
                found |= self._equal(node, value)
            return found
        if node.operator in _COMPARED:
            return self._compared(node)
        text = texts.normalized(node.values[0])
        if node.operator == "STARTS":
            return self._rows(
                node, "AND kind = ? AND substr(text, 1, ?) = ?", STRING, len(text), text
            )
        return self._rows(node, "AND kind = ? AND instr(text, ?) > 0", STRING, text)

    def _equal(self, node: Condition, value: str) -> set[int]:
        found = self._rows(node, "AND kind = ? AND text = ?", STRING, texts.normalized(value))
        number = number_of(value)
        if number is not None:
            found |= self._rows(node, "AND kind = ? AND number = ?", NUMBER, number)
        return found

    def _compared(self, node: Condition) -> set[int]:
        """Numbers with a number, and texts with anything else."""
        operator, value = _COMPARED[node.operator], node.values[0]
        number = number_of(value)
        if number is not None:
            return self._rows(node, f"AND kind = ? AND number {operator} ?", NUMBER, number)
        text = texts.normalized(value)
        return self._rows(node, f"AND kind = ? AND text {operator} ?", STRING, text)

    def _rows(self, node: Condition, where: str, *values: Any) -> set[int]:
        self._go_on()
        sql = f"{_SELECT} {where}"
        found = self._data.execute(sql, (self._number, node.attribute, *values))
        return {each for (each,) in found}

    def _within(self, node: Geo) -> set[int]:
        return {
            document
            for document, place in self.places().items()
            if is_within(node, place[0], place[1])
        }

    def places(self) -> dict[int, tuple[float, float]]:
        """Of each document that has one: latitude and longitude."""
        sql = (
            "SELECT document, number, text FROM field_values"
            " WHERE index_number = ? AND path = ? AND kind = ?"
        )
        found = self._data.execute(sql, (self._number, GEO, PLACE))
        return {document: (latitude, float(longitude)) for document, latitude, longitude in found}

    def sort_values(self, path: str, *, is_descending: bool) -> dict[int, tuple[int, Any]]:
        """By document, (0, number) or (1, text): the least of its values, or the greatest."""
        pick = "max" if is_descending else "min"
        sql = (
            f"SELECT document, kind, {pick}(coalesce(number, text)) FROM field_values"  # noqa: S608
            " WHERE index_number = ? AND path = ? AND kind IN (0, 1) GROUP BY document, kind"
        )
        found: dict[int, tuple[int, Any]] = {}
        for document, kind, value in self._data.execute(sql, (self._number, path)):
            if document not in found or kind < found[document][0]:
                found[document] = (kind, value)
        return found

    def facet(self, path: str, among: set[int]) -> list[tuple[str, int]]:
        """Each value as text, as it was written, and how many of the documents have it."""
        return self._data.execute(
            "SELECT min(coalesce(original, text)), count(DISTINCT document) FROM field_values"
            " WHERE index_number = ? AND path = ? AND kind IN (0, 1)"
            " AND document IN (SELECT value FROM json_each(?)) GROUP BY text",
            (self._number, path, orjson.dumps(list(among)).decode()),
        ).fetchall()

    def facet_texts(self, path: str, among: set[int]) -> list[tuple[str, str, int]]:
        """Each without case and accents, as it was written, and how many documents have it."""
        return self._data.execute(
            "SELECT text, min(original), count(DISTINCT document) FROM field_values"
            " WHERE index_number = ? AND path = ? AND kind = 1"
            " AND document IN (SELECT value FROM json_each(?)) GROUP BY text",
            (self._number, path, orjson.dumps(list(among)).decode()),
        ).fetchall()

    def facet_range(self, path: str, among: set[int]) -> tuple[float, float] | None:
        low, high = self._data.execute(
            "SELECT min(number), max(number) FROM field_values WHERE index_number = ?"
            " AND path = ? AND kind = 0 AND document IN (SELECT value FROM json_each(?))",
            (self._number, path, orjson.dumps(list(among)).decode()),
        ).fetchone()
        return None if low is None else (low, high)

    def paths_of(self, pattern: str) -> list[str]:
        """The paths with values that a pattern names."""
        sql = "SELECT DISTINCT path FROM field_values WHERE index_number = ? ORDER BY path"
        found = self._data.execute(sql, (self._number,))
        return [path for (path,) in found if paths.matches(pattern, path)]


def number_of(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def meters(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Along the surface of the earth, between two points of latitude and longitude."""
    first, second = math.radians(one[0]), math.radians(other[0])
    across = math.radians(other[1] - one[1])
    half = (
        math.sin((second - first) / 2) ** 2
        + math.cos(first) * math.cos(second) * math.sin(across / 2) ** 2
    )
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(half)))


def is_within(node: Geo, latitude: float, longitude: float) -> bool:
    numbers = node.numbers
    if node.shape == "radius":
        return meters((numbers[0], numbers[1]), (latitude, longitude)) <= numbers[2]
    if node.shape == "box":
        top, right, bottom, left = numbers
        if not bottom <= latitude <= top:
            return False
        # One that crosses the date line has its left side east of its right one.
        if left <= right:
            return left <= longitude <= right
        return longitude >= left or longitude <= right
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    inside = False
    for one, other in zip(points, points[1:] + points[:1], strict=True):
        if (one[0] > latitude) != (other[0] > latitude):
            share = (latitude - one[0]) / (other[0] - one[0])
            if longitude < one[1] + share * (other[1] - one[1]):
                inside = not inside
    return inside
