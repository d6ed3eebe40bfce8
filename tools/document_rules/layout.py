"""Where things are: an operation in the file of its area, and every file in the root."""

from collections.abc import Iterator
from pathlib import Path

from specserver.written import load
from tools.document_rules.reading import Fault, Json, Text

GROUPS = "x-tagGroups"


def check(text: Text) -> Iterator[Fault]:
    """Rules of a document in several files: its root, and one for each area."""
    root, *areas = text.files
    written = load(root)
    yield from _tags(written)
    for area in areas:
        yield from _area(area, written)


def area_of(root: Json, tag: str) -> str | None:
    """The area that a tag is of: a file's name."""
    groups = root.get(GROUPS, ())
    return next((one["name"].lower() for one in groups if tag in one["tags"]), None)


def _area(area: Path, root: Json) -> Iterator[Fault]:
    place = f"{area.parent.name}/{area.name}"
    for kind in ("paths", "webhooks"):
        for name, item in load(area).get(kind, {}).items():
            reference = f"{place}#/{kind}/{name.replace('~', '~0').replace('/', '~1')}"
            if root[kind].get(name, {}).get("$ref") != reference:
                yield Fault(place, f"write {name} in {kind} of the root: $ref: '{reference}'")
            if kind == "paths":
                yield from _operations(area, item, root)


def _operations(area: Path, item: Json, root: Json) -> Iterator[Fault]:
    for operation in item.values():
        for tag in operation.get("tags", ()) if isinstance(operation, dict) else ():
            meant = area_of(root, tag)
            if meant != area.stem:
                place = operation.get("operationId", area.name)
                yield Fault(place, f"its tag {tag} is of {meant}, and not of {area.stem}")


def _tags(root: Json) -> Iterator[Fault]:
    grouped = [tag for group in root.get(GROUPS, ()) for tag in group["tags"]]
    for tag in (one["name"] for one in root.get("tags", ())):
        if grouped.count(tag) != 1:
            yield Fault("tags", f"{tag} is in {grouped.count(tag)} groups of {GROUPS}, not in one")
    for path, item in root["paths"].items():
        if "$ref" not in item:
            yield Fault(path, "describe it in the file of its area")
