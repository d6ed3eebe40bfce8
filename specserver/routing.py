"""Owns the path tree: from a path to its route, at a cost free of how many routes there are."""

import re
from collections.abc import Iterable
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

T = TypeVar("T")

_NAME = re.compile(r"\{([^{}]*)\}")


class RouteClashError(ValueError):
    """Two templates match exactly the same paths."""


class _Node(Generic[T]):
    __slots__ = ("patterns", "route", "static", "wild")

    def __init__(self) -> None:
        self.static: dict[str, _Node[T]] = {}
        # Segments such as `{name}.json`, tried in document order before a whole-segment name.
        self.patterns: list[tuple[re.Pattern[str], _Node[T]]] = []
        self.wild: _Node[T] | None = None
        self.route: tuple[T, tuple[str, ...]] | None = None


class PathTree(Generic[T]):
    """Templates such as `/orgs/{org_id}/keys`; literal segments win over names, as OpenAPI says."""

    def __init__(self, routes: Iterable[tuple[str, T]] = ()) -> None:
        self._root: _Node[T] = _Node()
        self._exact: dict[str, T] = {}
        for template, route in routes:
            self.add(template, route)

    def add(self, template: str, route: T) -> None:
        if not template.startswith("/"):
            raise ValueError(f"path {template!r} does not start with a slash")
        names: list[str] = []
        node = self._root
        for segment in template[1:].split("/"):
            node = self._step(node, segment, names)
        if len(set(names)) != len(names):
            raise ValueError(f"path {template!r} names a parameter twice")
        if node.route is not None:
            raise RouteClashError(f"path {template!r} matches the same paths as another")
        node.route = (route, tuple(names))
        if not names:
            self._exact[template] = route

    @staticmethod
    def _step(node: _Node[T], segment: str, names: list[str]) -> _Node[T]:
        found = _NAME.findall(segment)
        names.extend(found)
        if not found:
            return node.static.setdefault(segment, _Node())
        if segment == "{" + found[0] + "}":
            node.wild = node.wild or _Node()
            return node.wild
        literals = [re.escape(text) for text in _NAME.split(segment)[::2]]
        pattern = re.compile("(.+?)".join(literals), re.DOTALL)
        for known, child in node.patterns:
            if known.pattern == pattern.pattern:
                return child
        child = _Node[T]()
        node.patterns.append((pattern, child))
        return child

    def find(self, path: str) -> tuple[T, dict[str, str]] | None:
        """The route of a path whose percent-escapes are already decoded."""
        exact = self._exact.get(path)
        if exact is not None:
            return exact, {}
        return self._search(path[1:].split("/"))

    def find_raw(self, raw_path: str) -> tuple[T, dict[str, str]] | None:
        """The route of a path as sent; an escaped slash (`%2F`) stays inside its segment."""
        try:
            segments = [
                unquote(part, errors="strict") if "%" in part else part
                for part in raw_path[1:].split("/")
            ]
        except UnicodeDecodeError:
            return None
        return self._search(segments)

    def _search(self, segments: list[str]) -> tuple[T, dict[str, str]] | None:
        values: list[str] = []
        found = _descend(self._root, segments, 0, values)
        if found is None:
            return None
        route, names = found
        return route, dict(zip(names, values, strict=True))


def _descend(node: _Node[Any], segments: list[str], at: int, values: list[str]) -> Any:
    if at == len(segments):
        return node.route
    segment = segments[at]
    child = node.static.get(segment)
    if child is not None:
        found = _descend(child, segments, at + 1, values)
        if found is not None:
            return found
    if not segment:
        return None
    kept = len(values)
    for pattern, branch in node.patterns:
        match = pattern.fullmatch(segment)
        if match:
            values.extend(match.groups())
            found = _descend(branch, segments, at + 1, values)
            if found is not None:
                return found
            del values[kept:]
    if node.wild is not None:
        values.append(segment)
        found = _descend(node.wild, segments, at + 1, values)
        if found is not None:
            return found
        del values[kept:]
    return None
