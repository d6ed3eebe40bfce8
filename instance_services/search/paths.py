"""Owns the fields of documents: nested paths, their values, and which patterns name them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

EMPTY: Final = object()
"""The value of an empty object or array; beside its own, also that of an empty text."""


def fields(document: dict[str, Any]) -> dict[str, list[Any]]:
    """By path (`author.name`), each scalar value in order, `None` and EMPTY among them.

    Items of arrays are values of the array's path, and members of objects in it have its path
    before their own. A path that only leads to others has no values.
    """
    found: dict[str, list[Any]] = {}
    for name, value in document.items():
        _collect(name, value, found, inside=False)
    return found


def _collect(path: str, value: Any, found: dict[str, list[Any]], *, inside: bool) -> None:
    values = found.setdefault(path, [])
    if isinstance(value, dict):
        if not value and not inside:
            values.append(EMPTY)
        for name, member in value.items():
            _collect(f"{path}.{name}", member, found, inside=False)
    elif isinstance(value, list):
        if not value and not inside:
            values.append(EMPTY)
        for item in value:
            _collect(path, item, found, inside=True)
    elif value is not None or not inside:
        if value == "" and not inside:
            values.append(EMPTY)
        values.append(value)


def matches(pattern: str, path: str) -> bool:
    """Whether a setting's attribute names the path: itself, what is nested in it, or by `*`."""
    if pattern in ("*", path) or path.startswith(f"{pattern}."):
        return True
    if pattern.startswith("*"):
        return path.endswith(pattern[1:])
    return pattern.endswith("*") and path.startswith(pattern[:-1])


def rank(patterns: Iterable[str], path: str) -> int | None:
    """The place of the first pattern that names the path."""
    found = (number for number, pattern in enumerate(patterns) if matches(pattern, path))
    return next(found, None)


def selected(document: dict[str, Any], patterns: Iterable[str]) -> dict[str, Any]:
    """The document with nothing but what the patterns name."""
    wanted = list(patterns)
    if "*" in wanted:
        return document
    return {
        name: kept
        for name, value in document.items()
        if (kept := _kept(name, value, wanted)) is not EMPTY
    }


def _kept(path: str, value: Any, wanted: list[str]) -> Any:
    if any(matches(pattern, path) for pattern in wanted):
        return value
    if not any(pattern.startswith(f"{path}.") for pattern in wanted):
        return EMPTY
    if isinstance(value, dict):
        members = ((name, _kept(f"{path}.{name}", each, wanted)) for name, each in value.items())
        return {name: kept for name, kept in members if kept is not EMPTY} or EMPTY
    if isinstance(value, list):
        items = (_kept(path, each, wanted) for each in value if isinstance(each, dict))
        return [kept for kept in items if kept is not EMPTY] or EMPTY
    return EMPTY


def texts(value: Any) -> Iterator[str]:
    """What of a field's values is searched, as text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, int | float):
        yield str(value)
