"""Members that nobody may see again: writeOnly in a request, x-secret in an answer."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_WITHIN: Final = ("allOf", "anyOf", "oneOf")


def names_of(operation: Mapping[str, Any]) -> frozenset[str]:
    """The names in a request's body, at any depth; of an operation with its references followed."""
    return frozenset(_names(operation.get("requestBody", {}), "writeOnly"))


def answered_by(operation: Mapping[str, Any]) -> frozenset[str]:
    """The names of what an answer shows once: a token, or a URL that is one."""
    answers = operation.get("responses", {}).items()
    # Problems are 15 of 16 answers of a document, and none of them shows a secret.
    told = [one for status, one in answers if not status.startswith(("4", "5"))]
    return frozenset(name for one in told for name in _names(one, "x-secret"))


def _names(message: Mapping[str, Any], mark: str) -> Iterator[str]:
    for content in message.get("content", {}).values():
        yield from _marked(content.get("schema", {}), mark)


def _marked(schema: Mapping[str, Any], mark: str) -> Iterator[str]:
    for name, member in schema.get("properties", {}).items():
        if member.get(mark):
            yield name
        yield from _marked(member, mark)
    for keyword in _WITHIN:
        for part in schema.get(keyword, ()):
            yield from _marked(part, mark)
    if isinstance(schema.get("items"), Mapping):
        yield from _marked(schema["items"], mark)


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
