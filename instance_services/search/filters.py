"""Owns the language of filters: what a text says, as a tree."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

DEPTH_MAX: Final = 100
LENGTH_MAX: Final = 100_000

Node: TypeAlias = "And | Or | Not | Condition | Geo"


class FilterError(Exception):
    """What is wrong with a filter, for whoever wrote it."""


@dataclass(frozen=True)
class And:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Or:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Not:
    part: Node


@dataclass(frozen=True)
class Condition:
    """`operator` is one of = > >= < <= IN EXISTS NULL EMPTY CONTAINS STARTS."""

    attribute: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Geo:
    """`shape`: radius (latitude, longitude, meters), box (top, right, bottom, left) or polygon."""

    shape: str
    numbers: tuple[float, ...]


_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<symbol>!=|>=|<=|[()\[\],=<>])|(?P<word>[\w\-./]+))",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_COMPARISONS: Final = {"=", "!=", ">", ">=", "<", "<="}
_KEYWORDS: Final = {"AND", "OR", "NOT", "IN", "TO", "EXISTS", "IS", "CONTAINS", "STARTS"}
_GEO: Final = {"_geoRadius": "radius", "_geoBoundingBox": "box", "_geoPolygon": "polygon"}
_POINTS_MIN: Final = 3


def parse(given: Any) -> "Node | None":
    """A filter as requests have it: a text, or a list of texts and lists of alternatives.

    None where it says nothing. Raises FilterError.
    """
    if given is None or given == "":
        return None
    if isinstance(given, str):
        return _Parser(given).whole()
    if not isinstance(given, list):
        raise FilterError("a filter is a string, or an array of strings and arrays of strings")
    parts = [part for each in given if (part := _alternatives(each)) is not None]
    return And(tuple(parts)) if parts else None


def _alternatives(given: Any) -> "Node | None":
    if isinstance(given, list):
        if not all(isinstance(each, str) for each in given):
            raise FilterError("an array inside a filter's array has strings only")
        parts = [part for each in given if (part := parse(each)) is not None]
        return Or(tuple(parts)) if parts else None
    if not isinstance(given, str):
        raise FilterError("a filter's array has strings and arrays of strings only")
    return parse(given)


def attributes(node: Node) -> set[str]:
    """Every attribute that a filter asks about."""
    if isinstance(node, And | Or):
        return set().union(*map(attributes, node.parts))
    if isinstance(node, Not):
        return attributes(node.part)
    return {"_geo"} if isinstance(node, Geo) else {node.attribute}


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise FilterError(f"the filter is longer than {LENGTH_MAX:,} characters")
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._either()
        if self._at < len(self._tokens):
            raise self._unexpected("the end, AND or OR")
        return node

    def _either(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FilterError(f"the filter is nested more than {DEPTH_MAX} levels deep")
        node = self._joined("OR", lambda: self._joined("AND", self._negated, And), Or)
        self._depth -= 1
        return node

    def _joined(self, word: str, part: Callable[[], Node], kind: type[And] | type[Or]) -> Node:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else kind(tuple(parts))

    def _negated(self) -> Node:
        negated = False
        while self._take("NOT"):
            negated = not negated
        node = self._primary()
        return Not(node) if negated else node

    def _primary(self) -> Node:
        if self._take("("):
            node = self._either()
            self._expect(")")
            return node
        kind, name = self._next("an attribute")
        if kind == "word" and name in _GEO and self._take("("):
            return self._geo(name)
        if kind == "symbol" or (kind == "word" and name in _KEYWORDS):
            self._at -= 1
            raise self._unexpected("an attribute")
        return self._condition(name)

    def _condition(self, attribute: str) -> Node:
        for sign in _COMPARISONS:
            if self._take(sign):
                value = self._value()
                if sign == "!=":
                    return Not(Condition(attribute, "=", (value,)))
                return Condition(attribute, sign, (value,))
        if self._take("IS"):
            negated = self._take("NOT")
            return _not(negated, Condition(attribute, self._one_of("NULL", "EMPTY")))
        negated = self._take("NOT")
        found = self._named(attribute)
        if found is not None:
            return _not(negated, found)
        if negated:
            raise self._unexpected("EXISTS, IN, CONTAINS or STARTS WITH")
        return self._range(attribute)

    def _named(self, attribute: str) -> Condition | None:
        """A condition by an operator that is a word, and may have NOT before it."""
        if self._take("EXISTS"):
            return Condition(attribute, "EXISTS")
        if self._take("IN"):
            return Condition(attribute, "IN", self._list())
        if self._take("CONTAINS"):
            return Condition(attribute, "CONTAINS", (self._value(),))
        if self._take("STARTS"):
            self._expect("WITH")
            return Condition(attribute, "STARTS", (self._value(),))
        return None

    def _range(self, attribute: str) -> Node:
        operators = "an operator: =, !=, >, >=, <, <=, TO, IN, EXISTS, IS, CONTAINS, STARTS WITH"
        if self._peek() is None or self._peek() == ("symbol", ")"):
            raise self._unexpected(operators)
        low = self._value()
        if not self._take("TO"):
            self._at -= 1
            raise self._unexpected(operators)
        high = Condition(attribute, "<=", (self._value(),))
        return And((Condition(attribute, ">=", (low,)), high))

    def _list(self) -> tuple[str, ...]:
        self._expect("[")
        found: list[str] = []
        while not self._take("]"):
            found.append(self._value())
            if not self._take(","):
                self._expect("]")
                break
        return tuple(found)

    def _value(self) -> str:
        kind, text = self._next("a value")
        if kind == "symbol" or (kind == "word" and text in _KEYWORDS):
            self._at -= 1
            raise self._unexpected("a value; quote what is also a keyword")
        return text

    def _geo(self, name: str) -> Geo:
        numbers: list[float] = []
        while not self._take(")"):
            if self._take("[") or self._take("]") or self._take(","):
                continue
            numbers.append(_number(self._value(), name))
        shape = _GEO[name]
        if shape == "radius" and len(numbers) == 4:  # noqa: PLR2004 - the last is a resolution
            numbers.pop()
        wanted = {"radius": 3, "box": 4}.get(shape)
        few = shape == "polygon" and (len(numbers) % 2 or len(numbers) < 2 * _POINTS_MIN)
        if few or (wanted is not None and len(numbers) != wanted):
            raise FilterError(
                f"{name} has {len(numbers)} numbers: _geoRadius takes latitude, longitude and "
                "meters; _geoBoundingBox two points in brackets, top right and bottom left; "
                "_geoPolygon three points or more"
            )
        return Geo(shape, tuple(numbers))

    def _peek(self) -> tuple[str, str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, text: str) -> bool:
        found = self._peek()
        if found is None or found[0] == "quoted" or found[1] != text:
            return False
        self._at += 1
        return True

    def _next(self, wanted: str) -> tuple[str, str]:
        found = self._peek()
        if found is None:
            raise self._unexpected(wanted)
        self._at += 1
        return found

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(f"`{text}`")

    def _one_of(self, *texts: str) -> str:
        for text in texts:
            if self._take(text):
                return text
        raise self._unexpected(" or ".join(texts))

    def _unexpected(self, wanted: str) -> FilterError:
        found = self._peek()
        told = "the filter ends" if found is None else f"found `{found[1][:100]}`"
        return FilterError(f"{told} where {wanted} was expected")


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            place = at + len(text[at:]) - len(text[at:].lstrip())
            raise FilterError(f"the filter cannot be read from character {place + 1} on")
        kind = str(match.lastgroup)
        value = match.group(kind)
        if kind == "quoted":
            value = _ESCAPED.sub(r"\1", value[1:-1])
        found.append((kind, value))
        at = match.end()
    return found


def _not(negated: bool, node: Node) -> Node:
    return Not(node) if negated else node


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
        raise FilterError(f"{name} takes numbers, and `{text[:100]}` is none")
    return value
