"""Compare the API's document with the last released one: what programs rely on must stay.

usage: python -m tools.released [--record]     exit status 1: something would break

With --record, at a release, the document is recorded as it is now.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from specserver import Document
from tools import usage
from tools.schema_changes import Shapes, changes

ROOT: Final = Path(__file__).resolve().parents[1]
RECORD: Final = ROOT / "tools" / "released_document.json"
_METHODS: Final = ("get", "put", "post", "patch", "delete")
# What no program depends on, or what a validator holds it to by itself: texts, limits, our own.
_KEPT: Final = frozenset(
    {
        *("paths", "webhooks", "components", "schemas", "parameters", "responses", "headers"),
        *("operationId", "requestBody", "content", "schema", "name", "in", "required", "$ref"),
        *("type", "properties", "items", "enum", "const", "allOf", "oneOf", "anyOf", *_METHODS),
        "additionalProperties",
    }
)
_NAMED: Final = frozenset(
    {"paths", "webhooks", "schemas", "properties", "content", "responses", "headers", "parameters"}
)
_ADVICE: Final = (
    "keep what there was and add beside it: a new member, a new operation, a new version of an"
    " event (instance.ready.v2). Where a break is meant, say so in CHANGELOG.md under Breaking, and"
    " record the document anew: python -m tools.released --record"
)


def reduced(node: Any, *, named: bool = False) -> Any:
    """Of a document, only what programs depend on."""
    if isinstance(node, list):
        return [reduced(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: reduced(value, named=key in _NAMED and not named)
        for key, value in node.items()
        if named or key in _KEPT
    }


def current() -> dict[str, Any]:
    document: dict[str, Any] = reduced(Document.load(ROOT / "openapi.yaml", checked=True).raw)
    return document


def broken(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A sentence for each thing that a program could rely on and that is no longer so."""
    shapes = Shapes(before), Shapes(now)
    return [*_operations(before, now, shapes), *_events(before, now, shapes)]


def _operations(
    before: Mapping[str, Any], now: Mapping[str, Any], shapes: tuple[Shapes, Shapes]
) -> Iterator[str]:
    for path, item in before["paths"].items():
        for method in _METHODS:
            if method not in item:
                continue
            name, found = f"{method.upper()} {path}", now["paths"].get(path, {}).get(method)
            if found is None:
                yield f"{name} was removed"
                continue
            if found["operationId"] != item[method]["operationId"]:
                yield f"{name} is now {found['operationId']}: clients and commands have its name"
            yield from _parameters(name, item[method], found, shapes)
            yield from _body(name, item[method], found, shapes)
            yield from _answers(name, item[method], found, shapes)


def _parameters(
    name: str, before: Mapping[str, Any], now: Mapping[str, Any], shapes: tuple[Shapes, Shapes]
) -> Iterator[str]:
    old, new = (
        {(one["in"], one["name"]): one for one in map(shape.at, each.get("parameters", ()))}
        for shape, each in zip(shapes, (before, now), strict=True)
    )
    for place, one in old.items():
        where = f"{name}: the parameter {place[1]}"
        if place not in new:
            yield f"{where} was removed, and is refused where it is sent"
            continue
        if new[place].get("required") and not one.get("required"):
            yield f"{where} is now required"
        yield from changes(shapes, one["schema"], new[place]["schema"], where, sent=False)
    for place in new.keys() - old.keys():
        if new[place].get("required"):
            yield f"{name}: the new parameter {place[1]} is required"


def _body(
    name: str, before: Mapping[str, Any], now: Mapping[str, Any], shapes: tuple[Shapes, Shapes]
) -> Iterator[str]:
    old, new = (
        shape.at(each.get("requestBody") or {})
        for shape, each in zip(shapes, (before, now), strict=True)
    )
    if new.get("required") and not old.get("required"):
        yield f"{name}: a body is now required"
    yield from _contents(f"{name}: the body", old, new, shapes, sent=False)


def _answers(
    name: str, before: Mapping[str, Any], now: Mapping[str, Any], shapes: tuple[Shapes, Shapes]
) -> Iterator[str]:
    for status, answer in before["responses"].items():
        if not status.startswith("2"):
            continue
        if status not in now["responses"]:
            yield f"{name}: the response {status} was removed"
            continue
        old, new = shapes[0].at(answer), shapes[1].at(now["responses"][status])
        yield from _contents(f"{name}: the response {status}", old, new, shapes, sent=True)


def _events(
    before: Mapping[str, Any], now: Mapping[str, Any], shapes: tuple[Shapes, Shapes]
) -> Iterator[str]:
    for kind, item in before["webhooks"].items():
        if kind not in now["webhooks"]:
            yield f"the event {kind} was removed"
            continue
        old, new = (each["post"]["requestBody"] for each in (item, now["webhooks"][kind]))
        yield from _contents(f"the event {kind}", old, new, shapes, sent=True)


def _contents(
    where: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    shapes: tuple[Shapes, Shapes],
    *,
    sent: bool,
) -> Iterator[str]:
    for media, content in old.get("content", {}).items():
        found = new.get("content", {}).get(media)
        if found is None:
            yield f"{where} is no longer {media}"
        else:
            pair = content.get("schema", {}), found.get("schema", {})
            yield from changes(shapes, *pair, where, sent=sent)


def _as_text(document: Mapping[str, Any]) -> str:
    """A line for each path, event and schema, so that a release shows what it changed."""
    parts = {
        "paths": document["paths"],
        "webhooks": document["webhooks"],
        **{f"components/{kind}": each for kind, each in document["components"].items() if each},
    }
    lines = (
        f'"{kind}": {{\n'
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(all_.items()))
        + "\n}"
        for kind, all_ in parts.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = {"components": {}}
    for kind, each in json.loads(RECORD.read_text()).items():
        place, _, name = kind.partition("/")
        if name:
            found[place][name] = each
        else:
            found[place] = each
    return found


def main(words: Iterable[str]) -> int:
    given = list(words)
    if usage.is_asked(given, __doc__):
        return 0
    if given == ["--record"]:
        RECORD.write_text(_as_text(current()))
        return 0
    faults = broken(recorded(), current())
    if faults:
        print("\n".join([*faults, f"Programs that use the released API would break: {_ADVICE}"]))
        return 1
    print("the document keeps what was released")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
