"""The areas of the API are those of the rooms: whoever changes one thing stays in one column."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract_tests.habits.test_imports import imported
from contract_tests.habits.test_sizes import FILES, ROOT, names, parsed
from specserver.written import load

DOCUMENTS = ROOT / "openapi"
AREAS = {path.stem for path in DOCUMENTS.glob("*.yaml")} - {"shared"}
# Those with a folder for each area; what belongs to none is beside the folders.
ROOMS = ["handlers", "storage", "control/workflows"]
ROOMS += ["contract_tests/api", "contract_tests/storage", "contract_tests/workflows"]


def nouns() -> dict[str, str]:
    """The noun of each operation, and its area."""
    return {
        noun: area
        for area in AREAS
        for noun in re.findall(
            r"operationId: (\w+)\.", (DOCUMENTS / f"{area}.yaml").read_text(), re.MULTILINE
        )
    }


def folders(room: str) -> set[str]:
    return {path.parent.name for path in (ROOT / room).glob("*/*.py")}


def test_the_document_names_the_areas() -> None:
    groups = {one["name"].lower() for one in load(ROOT / "openapi.yaml")["x-tagGroups"]}
    assert groups == AREAS


def test_the_guide_tells_each_area_with_its_tags() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text().partition("### Areas")[2]
    rows = re.findall(r"^\| (\w+) \| ([\w, -]+) \| \[", page, re.MULTILINE)
    groups = load(ROOT / "openapi.yaml")["x-tagGroups"]
    told = {area: tags.split(", ") for area, tags in rows}
    for one in groups:
        assert told.pop(one["name"].lower(), None) == one["tags"], (
            f"mend the table of areas in docs/architecture.md: {one['name']} has the tags"
            f" {', '.join(one['tags'])} in x-tagGroups of openapi.yaml"
        )
    assert not told, (
        "the table of areas in docs/architecture.md has areas that are not in openapi.yaml"
    )


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_the_areas_of_the_document(room: str) -> None:
    assert folders(room) - {"migrations"} <= AREAS


def test_a_handler_is_in_the_area_of_its_operations() -> None:
    found = {path.stem: path.parent.name for path in (ROOT / "handlers").rglob("*.py")}
    assert {noun: found.get(noun) for noun in nouns()} == nouns()


@pytest.mark.parametrize("room", ROOMS)
def test_what_has_an_area_is_not_outside_of_it(room: str) -> None:
    areas = nouns()
    misplaced = {
        names(path): areas[path.stem.removeprefix("test_")]
        for path in (ROOT / room).rglob("*.py")
        if areas.get(path.stem.removeprefix("test_"), path.parent.name) != path.parent.name
        # `sso/domains.py` is of the SSO domains: what the folder says is not said twice.
        and f"{path.parent.name}_{path.stem}" not in areas
    }
    assert not misplaced


def test_control_has_nothing_loose() -> None:
    """At its top are only what all of its rooms are given."""
    loose = {path.stem for path in (ROOT / "control").glob("*.py")}
    assert loose == {"__init__", "sealing", "services", "settings"}


def test_handlers_speak_no_sql() -> None:
    """Queries are functions of storage/, where tenancy, locks and indexes are looked after."""
    rooms = [path for path in FILES if Path(names(path)).parts[0] == "handlers"]
    assert rooms
    found = {names(path) for path in rooms for name in imported(path) if "sqlalchemy" in name}
    assert not found
    asked = {each for path in rooms for each in of_session(path)}
    assert asked == {"add", "delete", "flush", "refresh"}


def of_session(path: Path) -> Iterator[str]:
    """What is asked of a session there: it could be sent queries without any import."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).split(".")[-1] == "db":
            yield node.attr


def test_every_record_is_among_the_records() -> None:
    """What is not, nobody has loaded who asks for all: its tenancy, its schema, its conflicts."""
    defined = {
        node.name
        for path in (ROOT / "storage").rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and "__tablename__" in ast.unparse(node)
    }
    assert len(defined) > 20
    named = re.findall(r"import (.+)", (ROOT / "storage" / "records.py").read_text())
    missing = defined - {name for line in named for name in line.split(", ")}
    assert not missing, f"import {', '.join(sorted(missing))} in storage/records.py"
