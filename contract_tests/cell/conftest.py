"""Fixtures of the cell's tests: one cell for all that only look, and new ones for the others."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract_tests.cell.rig import VALKEY, Rig, running

_shared: list[Rig] = []


@pytest.fixture(scope="session")
def shared_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A running cell that is never stopped; for tests with instances of their own."""
    with running(tmp_path_factory.mktemp("shared") / "cell") as made:
        _shared.append(made)
        yield made
        _shared.remove(made)


@pytest.fixture(scope="session")
def light_rig(shared_rig: Rig) -> Rig:
    """The same cell, whose instances have the engine that takes least, where any would do."""
    return replace(shared_rig, usual=VALKEY)


@pytest.fixture(scope="session")
def sql_rig(shared_rig: Rig) -> Rig:
    """The same cell, whose instances have the engine with a console that takes least to start."""
    engines = shared_rig.get("/v1/cell").json()["engines"]
    versions = {each["engine"]: each["versions"][0] for each in engines}
    named = "mariadb" if "mariadb" in versions else "duckdb"
    return replace(shared_rig, usual={"engine": named, "engine_version": versions[named]})


@pytest.fixture(autouse=True, scope="module")
def _no_instance_outlives_its_file() -> Iterator[None]:
    """Dozens of engines that nobody asks any more would take CPU, memory and disk to the end."""
    yield
    for rig in _shared:
        rig.erase_all()


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """A new cell, started; with settings where given."""
    numbers = itertools.count()
    with ExitStack() as stack:

        def make(**settings: Any) -> Rig:
            home = tmp_path / f"cell{next(numbers)}"
            return stack.enter_context(running(home, bare=True, **settings))

        yield make


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()
