"""Members of a request's body that nobody may see again: those that the document has writeOnly."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_WITHIN: Final = ("allOf", "anyOf", "oneOf")


def names_of(operation: Mapping[str, Any]) -> frozenset[str]:
    """The names, at any depth of the body. References of the operation have been followed."""
    content = operation.get("requestBody", {}).get("content", {})
    return frozenset(name for one in content.values() for name in _names(one.get("schema", {})))


def _names(schema: Mapping[str, Any]) -> Iterator[str]:
    for name, member in schema.get("properties", {}).items():
        if member.get("writeOnly"):
            yield name
        yield from _names(member)
    for keyword in _WITHIN:
        for part in schema.get(keyword, ()):
            yield from _names(part)
    if isinstance(schema.get("items"), Mapping):
        yield from _names(schema["items"])


def found(secret: frozenset[str], value: Any) -> set[str]:
    """Which of these names the value has as members, at any depth."""
    if isinstance(value, Mapping):
        below = (found(secret, member) for member in value.values())
        return set(secret & value.keys()).union(*below)
    if isinstance(value, list | tuple):
        return set().union(*(found(secret, item) for item in value))
    return set()


def without(secret: frozenset[str], value: Any) -> Any:
    """The value without members of these names."""
    if isinstance(value, Mapping):
        kept = {name: member for name, member in value.items() if name not in secret}
        return {name: without(secret, member) for name, member in kept.items()}
    if isinstance(value, list | tuple):
        return [without(secret, item) for item in value]
    return value
