"""Within the cell: what lies at its top, and which of its folders may import which."""

import ast
from collections.abc import Iterator
from pathlib import Path

from contract_tests.habits.test_sizes import FILES, ROOT, names, parsed

CELL = ROOT / "cell"
# They start the cell and join its parts, so they may import all of it.
JOINING = {"__init__", "__main__", "agent", "boundary", "handlers", "main"}
# Every folder may use these, so they import no folder but what is said here.
COMMON = {
    "database": set(),
    "layout": {"runtime"},  # whether other users reach a folder
    "sealing": set(),
    "settings": set(),
    "specification": set(),
    "timestamps": set(),
}
FOLDERS = {
    "access": set(),
    "backups": {"runtime"},
    "certificates": {"runtime"},
    "runtime": set(),
    "engines": {"runtime"},
    "instances": {"access", "backups", "certificates", "engines", "runtime"},
    "console": {"access", "instances", "runtime"},
    "migrations": {"access", "engines", "instances", "runtime"},
}
MAY_IMPORT: dict[str, set[str]] = {**COMMON, **FOLDERS}


def test_a_module_of_the_cell_is_in_the_folder_of_what_it_owns() -> None:
    """At the top is only what starts the cell, joins it, or is common to all folders."""
    top = {path.relative_to(CELL).parts[0] for path in FILES if CELL in path.parents}
    assert {each.removesuffix(".py") for each in top} == JOINING | MAY_IMPORT.keys()


def test_a_folder_of_the_cell_imports_only_those_it_may() -> None:
    wrong = []
    for path in FILES:
        if CELL not in path.parents:
            continue
        part = path.relative_to(CELL).parts[0].removesuffix(".py")
        if part not in JOINING:
            allowed = {part} | COMMON.keys() | MAY_IMPORT[part]
            wrong += [f"{names(path)} imports cell.{each}" for each in {*_parts(path)} - allowed]
    assert not wrong


def _parts(path: Path) -> Iterator[str]:
    """What is imported of the cell, for types too: `instances` of `cell.instances.records`."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in modules if name.startswith("cell."))
