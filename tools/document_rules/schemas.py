"""What schemas owe: closed requests, required members, lists as pages, shared forms."""

import json
import re
from collections.abc import Iterator
from typing import Any

from specserver.validation import ALLOWED
from tools.document_rules.reading import Fault, Json, Operation, Text, objects, schemas

# SERVICE says of two that they answer an array; the other has the form of GitHub's program.
_ARRAYS = frozenset({"engines.list", "leak_reports.create", "orgs.list"})
# What bounds a text, or tells that nothing does.
_FORMS = frozenset({"pattern", "enum", "const", "format", "x-free-text"})
_PAGE = {"items", "next_cursor"}


def check(text: Text) -> Iterator[Fault]:
    for operation in text.operations:
        yield from _patterns(operation)
        for _, content in operation.request_contents():
            yield from _closed(operation, content.get("schema", {}))
        for status, response in operation.successes.items():
            for content in response.get("content", {}).values():
                yield from _required(operation, status, content.get("schema", {}))


def check_shared(text: Text) -> Iterator[Fault]:
    """Rules of the control plane's document alone."""
    for operation in text.operations:
        yield from _pages(operation)
        yield from _free_texts(operation)
    for name, schema in text.spec["components"]["schemas"].items():
        for place, inner in objects(schema, name):
            yield from _forms(place, inner)
    yield from _unused(text)


def _closed(operation: Operation, schema: Any) -> Iterator[Fault]:
    for place, inner in objects(schema):
        if inner.get("unevaluatedProperties") is not False:
            yield operation.fault(f"{place} of its request is open: unevaluatedProperties: false")
        if "required" not in inner:
            yield operation.fault(f"spell out what is required in {place} of its request")


def _patterns(operation: Operation) -> Iterator[Fault]:
    """An error says what is allowed, and a regular expression tells few people that."""
    for place, schema in _sent(operation):
        if "pattern" in schema and ALLOWED not in schema:
            yield operation.fault(f"{place} has a pattern: say in {ALLOWED} what it allows")


def _free_texts(operation: Operation) -> Iterator[Fault]:
    """A name that may be any text can hold what nobody sees."""
    for place, schema in _sent(operation):
        if not _FORMS & schema.keys():
            yield operation.fault(f"{place} is any text: make it a DisplayName, or say x-free-text")


def _sent(operation: Operation) -> Iterator[tuple[str, Json]]:
    sent = [("the body", content.get("schema")) for _, content in operation.request_contents()]
    given = operation.document.get("parameters", ())
    sent += [(f"the parameter {one['name']}", one.get("schema")) for one in given]
    for what, schema in sent:
        yield from _strings(schema, what)


def _strings(schema: Any, place: str) -> Iterator[tuple[str, Json]]:
    """Every schema of a string, however deep, with the way to it."""
    for where, inner in schemas(schema, place):
        kinds = inner.get("type", [])
        if "string" in ([kinds] if isinstance(kinds, str) else kinds):
            yield where, inner


def _required(operation: Operation, status: str, schema: Any) -> Iterator[Fault]:
    for place, inner in objects(schema):
        if "required" not in inner:
            yield operation.fault(f"spell out what is required in {place} of its {status}")
        unknown = set(inner.get("required", ())) - _members(inner)
        if unknown:
            named = ", ".join(sorted(unknown))
            yield operation.fault(f"{place} of its {status} requires {named}, which it has not")


def _members(schema: Json) -> set[str]:
    found = set(schema.get("properties", {}))
    for part in schema.get("allOf", ()):
        found |= _members(part)
    return found


def _pages(operation: Operation) -> Iterator[Fault]:
    asked = {one["name"] for one in operation.parameters("query")} & {"limit", "cursor"}
    if len(asked) == 1:
        yield operation.fault("a page is asked for with limit and cursor, both")
    for response in operation.successes.values():
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        if schema.get("type") == "array" and operation.id not in _ARRAYS:
            yield operation.fault("a list is a page: {items, next_cursor}")
        members = set(schema.get("properties", {}))
        if "items" in members and not members & set(schema["required"]) >= _PAGE:
            yield operation.fault("a page has items and next_cursor, both required")
        if asked and not members >= _PAGE:
            yield operation.fault("it takes limit and cursor, so it answers a page")


def _forms(place: str, schema: Json) -> Iterator[Fault]:
    for name, member in schema["properties"].items():
        for alternative in _alternatives(member):
            wrong = _wrong_form(name, alternative)
            if wrong:
                yield Fault(f"{place}/{name}", wrong)


def _alternatives(schema: Json) -> list[Json]:
    branches = schema.get("oneOf") or schema.get("anyOf") or [schema]
    return [one for one in branches if one.get("type") != "null"]


def _wrong_form(name: str, schema: Json) -> str | None:
    kinds = schema.get("type", [])
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    if name.endswith(("_at", "_after", "_until")) and schema.get("format") != "date-time":
        return "a moment is a Timestamp"
    if name.endswith("_bytes") and "integer" not in kinds:
        return "a size is in whole Bytes"
    if "usd" in name and (not re.search(r"usd_cents(_|$)", name) or "integer" not in kinds):
        return "money is UsdCents, and its name says so"
    # A number is an id that a customer's database gave, and not one of ours.
    ours = re.fullmatch(r"(.+_)?id", name) and "integer" not in kinds
    if ours and not ({"pattern", "enum"} & schema.keys()):
        # The last is what an identity provider calls something, in whatever form.
        return (
            None if name in ("request_id", "external_id") else "an id has the pattern of its kind"
        )
    return None


def _unused(text: Text) -> Iterator[Fault]:
    used = set(re.findall(r'"#/components/([^"]+)"', json.dumps(text.written)))
    for kind in ("schemas", "responses", "parameters", "headers", "examples"):
        for name in text.raw["components"].get(kind, {}):
            if f"{kind}/{name}" not in used:
                yield Fault(f"components/{kind}/{name}", "is used nowhere")
