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
def oracle(pytestconfig: pytest.Config) -> Oracle:
    return Oracle(each="not nightly" not in pytestconfig.option.markexpr)


class Houses:
    """The one on each kind of database, which stays until the end of the process."""

    def __init__(self, databases: Databases, folder: Path, oracle: Oracle) -> None:
        self._databases, self._folder, self._oracle = databases, folder, oracle
        self._made: dict[str, House] = {}

    def on(self, dialect: str) -> House:
        if dialect not in self._made:
            url, folder = self._databases.migrated(dialect), self._folder / dialect
            folder.mkdir()
            made = self._made[dialect] = House(url, folder, oracle=self._oracle)
            # Or whatever looks up a domain that an earlier test left would wait for an answer.
            made.names.start()
        return self._made[dialect]

    def begin(self) -> None:
        """Clocks stand right, and nothing is left to do for which a test would move them on."""
        for each in self._made.values():
            each.set_clock_right()
            each.drop_work()

    def close(self) -> None:
        for each in self._made.values():
            each.close()


@pytest.fixture(scope="session")
def houses(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory, oracle: Oracle
) -> Iterator[Houses]:
    made = Houses(databases, tmp_path_factory.mktemp("houses"), oracle)
    yield made
    made.close()


@pytest.fixture(autouse=True, scope="module")
def _each_file_begins_in_the_present(houses: Houses) -> None:
    """Records are dated by the database itself, which knows nothing of clocks that tests move."""
    houses.begin()


@pytest.fixture(scope="session", params=DIALECTS)
def house(request: pytest.FixtureRequest, houses: Houses) -> House:
    """One for all tests of a process: each makes tenants of its own in it."""
    return houses.on(str(request.param))


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
