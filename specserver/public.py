"""Owns the document as strangers may read it: without the x- fields that are our own business."""

from collections.abc import Iterable
from typing import Any

# Below these keys the names are the author's, and the values are data: nothing is an extension.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas", "schemas"})
_NAMED_IN_DOCUMENT = frozenset(
    {"paths", "responses", "headers", "parameters", "examples", "webhooks"}
)
_DATA = frozenset({"example", "default", "const", "enum", "value"})


def public(document: dict[str, Any], extensions: Iterable[str]) -> dict[str, Any]:
    """A copy with only these x- fields, given with their `x-`."""
    return dict(_filtered(document, frozenset(extensions)))


def _filtered(node: Any, kept: frozenset[str]) -> Any:
    if isinstance(node, list):
        return [_filtered(item, kept) for item in node]
    if not isinstance(node, dict):
        return node
    filtered = {}
    for key, value in node.items():
        if key.startswith("x-"):
            if key in kept:
                filtered[key] = value
        elif key in _DATA:
            filtered[key] = value
        elif key in _NAMED or (key in _NAMED_IN_DOCUMENT and isinstance(value, dict)):
            filtered[key] = {name: _filtered(inner, kept) for name, inner in value.items()}
        else:
            filtered[key] = _filtered(value, kept)
    return filtered
