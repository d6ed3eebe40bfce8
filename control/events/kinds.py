"""The kinds of events that there are, as the API's document describes them under `webhooks`."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from specserver.document import References

OF_INSTANCES: Final = "instance_id"
SENT_TO: Final = ("streams", "webhooks", "siem")
"""Where an event is sent, where its kind does not say otherwise by `x-sent-to`."""


@dataclass(frozen=True)
class EventKind:
    """One kind: what it tells, and the JSON Schema of its `data`, which refers to nothing else."""

    name: str
    summary: str
    description: str
    data_schema: Mapping[str, Any]
    example: Mapping[str, Any]
    sent_to: tuple[str, ...]
    about_instance: bool
    """Whether the stream of an instance has it: where its data always says which instance, and
    where the kind says by `x-about-instance` that it is about one if there is one."""


@functools.lru_cache(maxsize=4)
def kinds_of(public_document: bytes) -> Mapping[str, EventKind]:
    """Those of the document that `/openapi.json` answers, by their names."""
    document = orjson.loads(public_document)
    followed = References(document)
    return {name: _kind(name, followed.follow(item)) for name, item in document["webhooks"].items()}


def sent(kinds: Mapping[str, EventKind], place: str) -> frozenset[str]:
    """The names of those that are sent there: to `streams`, `webhooks` or `siem`."""
    return frozenset(name for name, kind in kinds.items() if place in kind.sent_to)


def _kind(name: str, item: Mapping[str, Any]) -> EventKind:
    told = item["post"]
    content = told["requestBody"]["content"]["application/json"]
    data_schema = content["schema"]["properties"]["data"]
    instance = _members(data_schema).get(OF_INSTANCES, {})
    return EventKind(
        name=name,
        summary=told["summary"],
        description=told["description"].strip(),
        data_schema=data_schema,
        example=content["example"],
        sent_to=tuple(told.get("x-sent-to", SENT_TO)),
        about_instance=instance.get("type") == "string" or "x-about-instance" in told,
    )


def _members(schema: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(schema.get("properties", {}))
    for part in schema.get("allOf", ()):
        found.update(_members(part))
    return found
