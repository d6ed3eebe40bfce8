"""The folders that tests make: each is gone as soon as the fixture that asked for it has ended.

Pytest keeps them to the end of the run and for two more. A run makes some 25 GB, most of it the
files that engines begin with, and no machine need have that to spare.
"""

import os
import shutil
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from cell.layout import OUTSIDE_NAME
from tools.spread import spread

# Set to look at what a failed test has left.
KEPT: Final = "CONTRACT_TESTS_KEEP_FOLDERS"
# The links of a cell's home to what it has elsewhere; see cell/layout.py.
_LINKS: Final = frozenset({"outside", "sockets"})
# Of the fixtures that are being made, the innermost last.
_made_by: Final[list[list[Path]]] = []


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    made: list[Path] = []
    # The first added is the last to run: whatever works in the folders has ended by then.
    fixturedef.addfinalizer(partial(_remove, made))
    _made_by.append(made)
    try:
        return (yield)
    finally:
        _made_by.pop()


@pytest.fixture(scope="session")
def tmp_path_factory(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[pytest.TempPathFactory]:
    """Pytest's own, which remembers for which fixture it made a folder."""
    make = tmp_path_factory.mktemp
    spread(tmp_path_factory.getbasetemp())

    def mktemp(basename: str, numbered: bool = True) -> Path:
        folder = make(basename, numbered)
        if _made_by:
            _made_by[-1].append(folder)
        return folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tmp_path_factory, "mktemp", mktemp)
        yield tmp_path_factory


def _remove(folders: list[Path]) -> None:
    if KEPT in os.environ:
        return
    for folder in folders:
        for elsewhere in _elsewhere(folder):
            shutil.rmtree(elsewhere, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def _elsewhere(folder: Path) -> list[Path]:
    """What cells that were killed have left outside their homes, which are below the folder."""
    links = (
        Path(where, name)
        for where, names, _ in os.walk(folder)
        for name in _LINKS.intersection(names)
    )
    return [each.readlink() for each in links if each.is_symlink() and _is_a_cells(each.readlink())]


def _is_a_cells(target: Path) -> bool:
    """Tests plant links as well, to places that nobody wants to lose."""
    return target.parent.name == OUTSIDE_NAME or target.name.startswith("cell-")
