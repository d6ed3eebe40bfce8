"""A region for all tests of a module that leave it whole, and new ones for the others."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract_tests.cell.certificates.pebble import needed
from contract_tests.cell.certificates.region import Region

MakeRegion = Callable[..., Region]


@pytest.fixture(scope="module")
def region(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Region]:
    needed()
    made = Region(tmp_path_factory.mktemp("region"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def make_region(tmp_path: Path) -> Iterator[MakeRegion]:
    """Not started yet."""
    needed()
    made: list[Region] = []

    def make(**settings: Any) -> Region:
        directory = tmp_path / f"region{len(made)}"
        directory.mkdir()
        made.append(Region(directory, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
