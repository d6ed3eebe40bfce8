"""A house on each kind of database, and the oracle they share."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from contract_tests import published
from contract_tests.api.harness import House
from contract_tests.api.oracle import Oracle
from contract_tests.databases import DIALECTS, Databases


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """The log would tell of thousands of refusals that tests provoke; other rooms read theirs."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True, scope="module")
def _events_are_described() -> Iterator[None]:
    with published.checked():
        yield


MakeHouse = Callable[..., House]


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return Oracle()


@pytest.fixture(scope="session")
def houses(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory, oracle: Oracle
) -> Iterator[Callable[[str], House]]:
    """The one on a kind of database, which stays until the end of the process."""
    made: dict[str, House] = {}

    def on(dialect: str) -> House:
        if dialect not in made:
            url = databases.migrated(dialect)
            made[dialect] = House(url, tmp_path_factory.mktemp("house"), oracle=oracle)
            # Or whatever looks up a domain that an earlier test left would wait for an answer.
            made[dialect].names.start()
        return made[dialect]

    yield on
    for each in made.values():
        each.close()


@pytest.fixture(scope="session", params=DIALECTS)
def house(request: pytest.FixtureRequest, houses: Callable[[str], House]) -> House:
    """One for all tests of a process: each makes tenants of its own in it."""
    return houses(str(request.param))


@pytest.fixture
def make_house(database_url: str, tmp_path: Path, oracle: Oracle) -> Iterator[MakeHouse]:
    """Several houses on one new database are its replicas."""
    made: list[House] = []

    def make(**options: Any) -> House:
        made.append(House(database_url, tmp_path, oracle=oracle, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
