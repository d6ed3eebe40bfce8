"""Whether what a cell answers is of the form, and within the bounds, that its document gives it.

A cell is trusted less than the control plane. Whatever uses an answer may count on its document.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

import structlog

from specserver import Document
from specserver.validation import Schema, Schemas

Answer = dict[str, Any]
_ROOMS: Final = Path(__file__).resolve().parents[2]
DOCUMENTS: Final = (
    _ROOMS / "cell" / "openapi.yaml",
    _ROOMS / "instance_services" / "queues" / "openapi.yaml",
)
"""Of a cell, and of what it serves beside its own operations."""
NEWER: Final = "x-newer"
"""Beside `required`: of those, what a cell of an earlier release does not say."""
CLOSED: Final = ("unevaluatedProperties", "additionalProperties")
"""Where they are false, members that are not described are refused; a newer cell may say more."""
FAULT_MAX: Final = 300
TOLD_MAX: Final = 5
"""Of observations that are left out, those that the log shows."""
TWICE: Final = "is told of twice"
_log = structlog.get_logger("cells")


class Observations(list[Answer]):
    """Of the instances of a cell, each once.

    Of those in `unread` it said what its document does not let it say: nothing is known of them.
    """

    def __init__(self, items: Iterable[Answer], unread: Iterable[str] = ()) -> None:
        super().__init__(items)
        self.unread = frozenset(unread)


def fault(operation: str, said: Answer) -> str | None:
    """Where and how it is not as the document says of this operation's success; None if it is.

    Other members and fewer, as of a cell of another release, are no fault.
    """
    schema = _schema(operation)
    if schema is None or schema.is_valid(said):
        return None
    first = schema.violations(said)[0]
    return f"{first['pointer']} {first['message']}"[:FAULT_MAX]


def observations(items: list[Any], cell_id: str) -> Observations | None:
    """Those that are as the document says; None if it cannot be told of whom an item is."""
    if not all(map(_names_instance, items)):
        return None
    counts = Counter(each["instance_id"] for each in items)
    if len(counts) == len(items) and _fits("instances.list", {"items": items}):
        return Observations(items)
    unread = {name for name, times in counts.items() if times > 1}
    unread |= {each["instance_id"] for each in items if not _fits("instances.get", each)}
    if not unread:
        # Each is right, and all together are too many.
        return None
    left_out = [each for each in items if each["instance_id"] in unread]
    told = {
        each["instance_id"]: fault("instances.get", each) or TWICE for each in left_out[:TOLD_MAX]
    }
    _log.warning("observations left out", cell_id=cell_id, count=len(unread), of=told)
    return Observations((each for each in items if each["instance_id"] not in unread), unread)


def _fits(operation: str, said: Answer) -> bool:
    schema = _schema(operation)
    return schema is None or schema.is_valid(said)


def _names_instance(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("instance_id"), str)


@cache
def _schema(operation: str) -> Schema | None:
    """None where success is answered without a body. Compiled once, when it is first needed."""
    schemas, schema = _described()[operation]
    return None if schema is None else schemas.of(_lenient(schema))


@cache
def _described() -> dict[str, tuple[Schemas, Any]]:
    """By operation, the schema of the answer with which it succeeds."""
    found: dict[str, tuple[Schemas, Any]] = {}
    for path in DOCUMENTS:
        document = Document.load(path, checked=True)
        schemas = document.schemas
        for _, _, operation in document.operations():
            found[operation["operationId"]] = (schemas, _of_success(operation["responses"]))
    return found


def _of_success(responses: dict[str, Any]) -> Any:
    """None where there is no JSON."""
    succeeded: Any = next((each for key, each in responses.items() if key.startswith("2")), {})
    return succeeded.get("content", {}).get("application/json", {}).get("schema")


def _lenient(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_lenient(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    open_ = {name: _lenient(each) for name, each in schema.items() if not _closes(name, each)}
    if isinstance(newer := schema.get(NEWER), list):
        open_["required"] = [each for each in schema["required"] if each not in newer]
    return open_


def _closes(name: str, value: Any) -> bool:
    return name in CLOSED and value is False
