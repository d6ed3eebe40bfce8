"""Owns the path tree: from a path to its route, at a cost free of how many routes there are."""

import re
import sys
from collections.abc import Iterable
from typing import Generic, TypeVar
from urllib.parse import unquote

T = TypeVar("T")

_NAME = re.compile(r"\{([^{}]*)\}")


class RouteClashError(ValueError):
    """Two templates match exactly the same paths."""


class _Node(Generic[T]):
    __slots__ = ("names", "patterns", "route", "static", "tail", "wild")

    def __init__(self) -> None:
        self.static: dict[str, _Node[T]] = {}
        # Segments such as `{name}.json`, tried in document order before a whole-segment name.
        self.patterns: list[tuple[re.Pattern[str], _Node[T]]] = []
        self.wild: _Node[T] | None = None
        # The literal segments that must follow up to `route`, where nothing else can.
        self.tail: list[str] = []
        self.route: T | None = None
        self.names: tuple[str, ...] = ()

    def children(self) -> "list[_Node[T]]":
        wild = [self.wild] if self.wild else []
        return [*self.static.values(), *(child for _, child in self.patterns), *wild]

    def compact(self) -> None:
        """Takes a way without forks into its first node, so that fewer nodes are visited."""
        children = self.children()
        for child in children:
            child.compact()
        if self.route is None and len(children) == len(self.static) == 1:
            ((segment, child),) = self.static.items()
            if not child.children():
                self.tail = [segment, *child.tail]
                self.route, self.names = child.route, child.names
                self.static = {}

    def descend(self, segments: list[str], at: int, values: list[str]) -> "_Node[T] | None":
        """The node of the route that the segments from `at` on lead to; fills `values`."""
        if self.tail:
            return self if segments[at:] == self.tail else None
        if at == len(segments):
            return None if self.route is None else self
        segment = segments[at]
        child = self.static.get(segment)
        found = child.descend(segments, at + 1, values) if child else None
        if found is None and segment:
            found = self._descend_by_name(segments, at, values)
        return found

    def _descend_by_name(
        self, segments: list[str], at: int, values: list[str]
    ) -> "_Node[T] | None":
        kept = len(values)
        for pattern, child in self.patterns:
            match = pattern.fullmatch(segments[at])
            if match:
                values.extend(match.groups())
                found = child.descend(segments, at + 1, values)
                if found is not None:
                    return found
                del values[kept:]
        if self.wild is None:
            return None
        values.append(segments[at])
        found = self.wild.descend(segments, at + 1, values)
        if found is None:
            del values[kept:]
        return found


class PathTree(Generic[T]):
    """Templates such as `/orgs/{org_id}/keys`; literal segments win over names, as OpenAPI says."""

    def __init__(self, routes: Iterable[tuple[str, T]] = ()) -> None:
        self._root: _Node[T] = _Node()
        self._exact: dict[str, T] = {}
        for template, route in routes:
            self._add(template, route)
        self._root.compact()

    def _add(self, template: str, route: T) -> None:
        if not template.startswith("/"):
            raise ValueError(f"path {template!r} does not start with a slash")
        names: list[str] = []
        node = self._root
        for segment in template[1:].split("/"):
            node = self._step(node, sys.intern(segment), names)
        if len(set(names)) != len(names):
            raise ValueError(f"path {template!r} names a parameter twice")
        if node.route is not None:
            raise RouteClashError(f"path {template!r} matches the same paths as another")
        node.route, node.names = route, tuple(names)
        if not names:
            self._exact[template] = route

    @staticmethod
    def _step(node: _Node[T], segment: str, names: list[str]) -> _Node[T]:
        found = _NAME.findall(segment)
        names.extend(sys.intern(name) for name in found)
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
        return self._search(path)

    def find_raw(self, raw_path: str) -> tuple[T, dict[str, str]] | None:
        """The route of a path as sent; an escaped slash (`%2F`) stays inside its segment."""
        try:
            return self._search(raw_path, escaped=True)
        except UnicodeDecodeError:
            return None

    def _search(self, path: str, *, escaped: bool = False) -> tuple[T, dict[str, str]] | None:
        if path[:1] != "/":
            return None
        segments = path[1:].split("/")
        if escaped:
            segments = [unquote(part, errors="strict") for part in segments]
        values: list[str] = []
        node = self._root.descend(segments, 0, values)
        if node is None or node.route is None:
            return None
        return node.route, dict(zip(node.names, values, strict=True))
