"""Reading JSON Schemas as a form: references followed, `allOf` merged, `null` told apart."""

from collections.abc import Mapping
from typing import Any, Final, Literal

Kind = Literal["enum", "integer", "number", "boolean", "string", "array", "json"]

REFERENCES_MAX: Final = 32
SCALARS: Final = ("integer", "number", "boolean", "string")


class DocumentError(Exception):
    """The OpenAPI document cannot be used: what is wrong with it."""


def follow(document: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
    """Answer the node a `$ref` leads to; members beside the `$ref` win, as 2020-12 has it."""
    answer = dict(node)
    for _ in range(REFERENCES_MAX):
        reference = answer.pop("$ref", None)
        if reference is None:
            return answer
        answer = {**_target(document, str(reference)), **answer}
    raise DocumentError(f"circular reference at {node.get('$ref')}")


def _target(document: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    if not reference.startswith("#/"):
        raise DocumentError(f"reference {reference} points outside the document")
    here: Any = document
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(here, Mapping) or name not in here:
            raise DocumentError(f"reference {reference} does not exist")
        here = here[name]
    if not isinstance(here, Mapping):
        raise DocumentError(f"reference {reference} does not point to an object")
    return here


def merge(document: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
    """Answer the schema with references, `allOf` and alternatives folded into one level.

    Alternatives (`anyOf`, `oneOf`) lend their properties; only what all of them require is
    required. `nullable` is set where null is allowed.
    """
    schema = follow(document, node)
    answer = {key: value for key, value in schema.items() if key not in {"allOf", "anyOf", "oneOf"}}
    for part in schema.get("allOf", ()):
        _add(answer, merge(document, part))
    alternatives = [
        merge(document, part) for key in ("anyOf", "oneOf") for part in schema.get(key, ())
    ]
    some = [part for part in alternatives if part.get("type") != "null"]
    if len(some) < len(alternatives):
        answer["nullable"] = True
    if len(some) == 1:
        _add(answer, some[0])
    elif some:
        _add_alternatives(answer, some)
    return _without_null(answer)


def _add(answer: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        if key == "properties":
            answer[key] = {**value, **answer.get(key, {})}
        elif key == "required":
            answer[key] = [*answer.get(key, ()), *value]
        else:
            answer.setdefault(key, value)


def _add_alternatives(answer: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    if all("properties" in part for part in parts):
        for part in parts:
            _add(answer, {"type": "object", "properties": part["properties"]})
        shared = set.intersection(*(set(part.get("required", ())) for part in parts))
        _add(answer, {"required": sorted(shared)})
    kinds = {str(part.get("type")) for part in parts}
    if len(kinds) == 1:
        answer.setdefault("type", kinds.pop())


def _without_null(answer: dict[str, Any]) -> dict[str, Any]:
    kinds = answer.get("type")
    if isinstance(kinds, list):
        rest = [kind for kind in kinds if kind != "null"]
        if len(rest) < len(kinds):
            answer["nullable"] = True
        answer["type"] = rest[0] if len(rest) == 1 else rest
    if None in answer.get("enum", ()):
        answer["enum"] = [value for value in answer["enum"] if value is not None]
        answer["nullable"] = True
    return answer


def kind(schema: Mapping[str, Any]) -> Kind:
    """Answer how a value of this merged schema is written on a command line."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values and all(isinstance(value, str) for value in values):
        return "enum"
    declared = schema.get("type")
    if declared in SCALARS:
        return declared  # type: ignore[no-any-return]  # one of SCALARS, each a Kind
    return "array" if declared == "array" else "json"


def choices(schema: Mapping[str, Any]) -> list[str]:
    """Answer the values of an enum; a `const` is an enum of one."""
    if "const" in schema:
        return [str(schema["const"])]
    return [str(value) for value in schema.get("enum", ())]


def example(schema: Mapping[str, Any]) -> Any:
    """Answer a value that shows what is meant: the document's example, its default, or a guess."""
    for key in ("example", "default", "const"):
        if schema.get(key) is not None:
            return schema[key]
    for key in ("examples", "enum"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    guesses = {"integer": schema.get("minimum", 1), "number": 1.0, "boolean": True, "array": []}
    return guesses.get(str(schema.get("type")), "{}" if schema.get("type") == "object" else "text")
