"""Owns the proof that no document asks the validator for more than it can do in time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specserver import Document

DOCUMENTS = [
    "openapi.yaml",
    "cell/openapi.yaml",
    "instance_services/queues/openapi.yaml",
    "instance_services/duckdb/openapi.yaml",
    "instance_services/search/openapi.yaml",
]

UNIONS = ("anyOf", "oneOf")


def large_unions(node: Any, root: Any, *, within: bool = False) -> Iterator[str]:
    """Where a form of a union can hold any number of values, by what holds them."""
    if isinstance(node, list):
        for each in node:
            yield from large_unions(each, root, within=within)
    if not isinstance(node, dict):
        return
    if "$ref" in node:
        target = root
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        yield from large_unions(target, root, within=within)
    if within and ("items" in node or isinstance(node.get("additionalProperties"), dict)):
        yield repr(node)
    for name, inner in node.items():
        if name not in {"example", "examples", "default", "enum", "const"}:
            yield from large_unions(inner, root, within=within or name in UNIONS)


@pytest.mark.parametrize("path", DOCUMENTS)
def test_no_union_of_a_body_holds_any_number_of_values(path: str) -> None:
    """The validator collects all that is wrong in each of its forms before it tells the first."""
    root = Document.load(Path(__file__).parents[2] / path, checked=True).raw
    bodies = [
        operation["requestBody"]
        for methods in root["paths"].values()
        for operation in methods.values()
        if isinstance(operation, dict) and "requestBody" in operation
    ]
    assert bodies
    assert list(large_unions(bodies, root)) == []
