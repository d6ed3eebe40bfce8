"""A small API on each kind of database: one of each for all tests, emptied for each of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract_tests.boundary.small_api import MakeSmallApi, SmallApi
from contract_tests.databases import DIALECTS, Databases

EmptyDatabase = Callable[[str], str]


@pytest.fixture(scope="session")
def empty_database(databases: Databases) -> EmptyDatabase:
    """The URL of the database of a dialect, with nothing in it.

    It is one for all tests: a new one for each would fill the disk.
    """
    rooms: dict[str, str] = {}

    def emptied(dialect: str) -> str:
        if dialect not in rooms:
            rooms[dialect] = databases.migrated(dialect)
        databases.empty_tables(rooms[dialect])
        return rooms[dialect]

    return emptied


@pytest.fixture(params=DIALECTS)
def database_url(request: pytest.FixtureRequest, empty_database: EmptyDatabase) -> str:
    """An empty database at the newest revision."""
    return empty_database(str(request.param))


@pytest.fixture
def make_api(database_url: str) -> Iterator[MakeSmallApi]:
    """Several small APIs on one database are its replicas."""
    made: list[SmallApi] = []

    def make(**options: Any) -> SmallApi:
        made.append(SmallApi(database_url, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def api(make_api: MakeSmallApi) -> SmallApi:
    return make_api()
