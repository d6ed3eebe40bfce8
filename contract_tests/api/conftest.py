"""A house on each kind of database, and the oracle they share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract_tests.api.harness import House
from contract_tests.api.oracle import Oracle

MakeHouse = Callable[[], House]


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return Oracle()


@pytest.fixture
def make_house(database_url: str, tmp_path: Path, oracle: Oracle) -> Iterator[MakeHouse]:
    """Several houses on one database are its replicas."""
    made: list[House] = []

    def make() -> House:
        made.append(House(database_url, tmp_path, oracle=oracle))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def house(make_house: MakeHouse) -> House:
    return make_house()
