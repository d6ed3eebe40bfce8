"""A desk on each kind of database: one database of each for all tests, emptied for each test."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import delete

from contract_tests.boundary.desk import Desk, MakeDesk
from contract_tests.databases import DIALECTS, Databases
from storage.database import Database
from storage.records import Record


@pytest.fixture(scope="session")
def rooms(databases: Databases) -> dict[str, str]:
    """The URLs by dialect, filled as they are asked for."""
    return {}


@pytest.fixture(params=DIALECTS)
def database_url(
    request: pytest.FixtureRequest, databases: Databases, rooms: dict[str, str]
) -> str:
    """An empty database at the newest revision. A new one for each test would fill the disk."""
    dialect = str(request.param)
    if dialect not in rooms:
        rooms[dialect] = databases.migrated(dialect)
    database = Database(rooms[dialect])
    with database.write() as db:
        for table in reversed(Record.metadata.sorted_tables):
            db.execute(delete(table))
    database.dispose()
    return rooms[dialect]


@pytest.fixture
def make_desk(database_url: str) -> Iterator[MakeDesk]:
    """Several desks on one database are its replicas."""
    made: list[Desk] = []

    def make(**options: Any) -> Desk:
        made.append(Desk(database_url, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    return make_desk()
