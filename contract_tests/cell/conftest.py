"""Fixtures of the cell's tests: one cell for all that only look, and new ones for the others."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract_tests.cell.rig import Rig


@pytest.fixture(scope="session")
def shared_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A running cell that is never stopped; for tests with instances of their own."""
    made = Rig(tmp_path_factory.mktemp("shared") / "cell")
    try:
        made.start()
        yield made
    finally:
        made.destroy()


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """A new cell, started; with settings where given."""
    made: list[Rig] = []

    def make(**settings: Any) -> Rig:
        rig = Rig(tmp_path / f"cell{len(made)}", settings=settings)
        made.append(rig)
        rig.start()
        return rig

    yield make
    for rig in made:
        rig.destroy()


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()
