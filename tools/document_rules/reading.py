"""A document as the rules read it: operations, and schemas with their place."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specserver import Document

Json = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """Something that breaks a rule: where, and what to do about it."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class Operation:
    """One operation; `document` has its references followed."""

    def __init__(self, path: str, method: str, document: Json) -> None:
        self.path = path
        self.method = method
        self.document = document
        self.id: str = document.get("operationId", f"{method} {path}")

    @property
    def responses(self) -> dict[str, Json]:
        return {str(status): one for status, one in self.document.get("responses", {}).items()}

    @property
    def successes(self) -> dict[str, Json]:
        return {status: one for status, one in self.responses.items() if status.startswith("2")}

    @property
    def failures(self) -> dict[str, Json]:
        return {status: one for status, one in self.responses.items() if status[0] in "45"}

    def parameters(self, place: str) -> list[Json]:
        return [one for one in self.document.get("parameters", ()) if one["in"] == place]

    def request_contents(self) -> Iterator[tuple[str, Json]]:
        yield from (self.document.get("requestBody") or {}).get("content", {}).items()

    def fault(self, message: str) -> Fault:
        return Fault(self.id, message)


class Text:
    """The document: its files, as `written`, completed (`raw`), and with references followed."""

    def __init__(self, path: Path) -> None:
        self.files = {
            one: one.read_text(encoding="utf-8").splitlines()
            for one in (path, *sorted((path.parent / path.stem).glob("*.yaml")))
        }
        document = Document.load(path)
        self.written: Json = document.written
        self.raw: Json = document.raw
        self.spec: Json = document.spec
        self.schemas = document.schemas
        self.operations = [Operation(*one) for one in document.operations()]

    @property
    def has_policy(self) -> bool:
        """The control plane's document carries policy; cells and instance services have none."""
        return any("x-authorize" in one.document for one in self.operations)


def objects(schema: Any, place: str = "") -> Iterator[tuple[str, Json]]:
    """Every object schema with members of its own, however deep, with the way to it."""
    for where, inner in schemas(schema, place):
        if "properties" in inner:
            yield where or "the body", inner


def schemas(schema: Any, place: str = "") -> Iterator[tuple[str, Json]]:
    """A schema and all within it, with the way to each."""
    if not isinstance(schema, dict):
        return
    yield place, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{place}/{name}")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for inner in schema.get(keyword, ()):
            yield from schemas(inner, place)
    for keyword in ("items", "additionalProperties"):
        yield from schemas(schema.get(keyword), f"{place}/{keyword}")
    if isinstance(schema.get("propertyNames"), dict):
        # A name is a text, whether or not its schema says so.
        yield from schemas({"type": "string", **schema["propertyNames"]}, f"{place}/propertyNames")


def examples(content: Json) -> list[Any]:
    given = [one["value"] for one in content.get("examples", {}).values() if "value" in one]
    return [content["example"], *given] if "example" in content else given
