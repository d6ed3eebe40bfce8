"""Holds every event that a test has published to its schema under the document's webhooks."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from openapi_schema_validator import OAS31Validator
from sqlalchemy import event

from specserver import Document
from storage.events import egress
from storage.events.egress import EgressReport
from storage.events.events import Event

_DOCUMENT: Final = Path(__file__).resolve().parents[1] / "openapi.yaml"


class Published:
    """What the document says of each kind of event; `check` raises AssertionError."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self.kinds = frozenset(document["webhooks"])
        self.seen: set[str] = set()

    def check(self, kind: str, data: dict[str, Any]) -> None:
        """Both ways: what the schema asks for is there, and what is there is described."""
        assert kind in self.kinds, f"the document's webhooks do not describe the event {kind}"
        schema = self._data_schema(kind)
        whole = {**schema, "components": self._document["components"]}
        faults = [fault.message for fault in OAS31Validator(whole).iter_errors(data)]
        assert not faults, f"the data of {kind} is not as its schema says: {faults}"
        unknown = set(data) - set(self._members(schema))
        assert not unknown, f"the data of {kind} has members that no schema describes: {unknown}"
        self.seen.add(kind)

    def _data_schema(self, kind: str) -> dict[str, Any]:
        content = self._document["webhooks"][kind]["post"]["requestBody"]["content"]
        data: dict[str, Any] = self._followed(content["application/json"]["schema"])["properties"]
        found: dict[str, Any] = data["data"]
        return found

    def _members(self, schema: dict[str, Any]) -> Iterator[str]:
        schema = self._followed(schema)
        yield from schema.get("properties", ())
        for part in schema.get("allOf", ()):
            yield from self._members(part)

    def _followed(self, schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            found: Any = self._document
            for name in schema["$ref"].removeprefix("#/").split("/"):
                found = found[name]
            schema = found
        return schema


@cache
def _document() -> dict[str, Any]:
    """Read once for all tests of a process."""
    read: dict[str, Any] = Document.load(_DOCUMENT, checked=True).raw
    return read


@contextmanager
def checked() -> Iterator[Published]:
    """Within the block no process of ours writes an event that the document does not describe."""
    published = Published(_document())

    def check(_made: Event, _given: Any, values: dict[str, Any]) -> None:
        published.check(values["type"], values["data"])

    def check_report(_made: EgressReport, _given: Any, values: dict[str, Any]) -> None:
        published.check(egress.KIND, values["data"])

    event.listen(Event, "init", check)
    event.listen(EgressReport, "init", check_report)
    try:
        yield published
    finally:
        event.remove(Event, "init", check)
        event.remove(EgressReport, "init", check_report)
