"""Owns the document as OpenAPI 3.0, for readers that know no 3.1: the bundled Swagger UI is one.

What 3.0 cannot say is widened or left out, so the projection is for reading; the truth stays in
the 3.1 document.
"""

from typing import Any

_DATA = frozenset({"example", "examples", "default", "enum", "value", "const"})
_SCHEMA_MAPS = frozenset({"properties"})
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf"})
_SAME = frozenset(
    {
        *("title", "description", "default", "example", "enum", "format", "required"),
        *("multipleOf", "maximum", "minimum", "maxLength", "minLength", "pattern"),
        *("maxItems", "minItems", "uniqueItems", "maxProperties", "minProperties"),
        *("discriminator", "readOnly", "writeOnly", "xml", "externalDocs", "deprecated"),
    }
)
_TOP = ("info", "servers", "paths", "components", "security", "tags", "externalDocs")


def project(document: dict[str, Any]) -> dict[str, Any]:
    projected = {key: _part(document[key]) for key in _TOP if key in document}
    info = dict(projected["info"])
    info.pop("summary", None)
    if "license" in info:
        info["license"] = {k: v for k, v in info["license"].items() if k != "identifier"}
    components = {k: v for k, v in projected.get("components", {}).items() if k != "pathItems"}
    schemas = document.get("components", {}).get("schemas", {})
    components["schemas"] = {name: schema(inner) for name, inner in schemas.items()}
    return {
        "openapi": "3.0.3",
        **projected,
        "info": info,
        "paths": projected.get("paths", {}),
        "components": components,
    }


def _part(node: Any) -> Any:
    """Anything outside schemas."""
    if isinstance(node, list):
        return [_part(item) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        return {"$ref": node["$ref"]}
    return {
        key: value if key in _DATA or key.startswith("x-") else _member(key, value)
        for key, value in node.items()
    }


def _member(key: str, value: Any) -> Any:
    return schema(value) if key == "schema" else _part(value)


def schema(node: Any) -> dict[str, Any]:
    """A schema of 2020-12 as one of OpenAPI 3.0."""
    if isinstance(node, bool):
        return {} if node else {"not": {}}
    projected = {key: value for key, value in node.items() if key in _SAME or key.startswith("x-")}
    if not projected.get("required", True):
        # 3.0 wants at least one name where it is there at all.
        del projected["required"]
    for key in _SCHEMA_MAPS & node.keys():
        projected[key] = {name: schema(inner) for name, inner in node[key].items()}
    for key in _SCHEMA_LISTS & node.keys():
        projected[key] = [schema(inner) for inner in node[key] if inner != {"type": "null"}]
        if len(projected[key]) < len(node[key]):
            projected["nullable"] = True
    if "not" in node:
        projected["not"] = schema(node["not"])
    _type(node, projected)
    _values(node, projected)
    _members(node, projected)
    if "$ref" not in node:
        return projected
    reference = {"$ref": node["$ref"]}
    if not projected:
        return reference
    return projected | {"allOf": [reference, *projected.get("allOf", [])]}


def _type(node: dict[str, Any], projected: dict[str, Any]) -> None:
    types = node.get("type", [])
    types = [types] if isinstance(types, str) else list(types)
    if "null" in types:
        types.remove("null")
        projected["nullable"] = True
    if len(types) == 1:
        projected["type"] = types[0]
    elif types and "anyOf" not in projected:
        projected["anyOf"] = [
            {"type": kind} | ({"items": {}} if kind == "array" else {}) for kind in types
        ]
    if "array" in types and len(types) == 1:
        items = node.get("items", {})
        projected["items"] = {} if items is False else schema(items)


def _values(node: dict[str, Any], projected: dict[str, Any]) -> None:
    if "const" in node:
        projected["enum"] = [node["const"]]
    if node.get("examples") and "example" not in projected:
        projected["example"] = node["examples"][0]
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in node:
            projected[limit] = node[exclusive]
            projected[exclusive] = True
    if node.get("contentEncoding") == "base64":
        projected["format"] = "byte"


def _members(node: dict[str, Any], projected: dict[str, Any]) -> None:
    additional = node.get("additionalProperties")
    if additional is not None:
        projected["additionalProperties"] = (
            additional if isinstance(additional, bool) else schema(additional)
        )
    elif node.get("unevaluatedProperties") is False and not _SCHEMA_LISTS & node.keys():
        projected["additionalProperties"] = False
