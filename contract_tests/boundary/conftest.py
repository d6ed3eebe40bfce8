"""A desk on each kind of database."""

from collections.abc import Iterator
from typing import Any

import pytest

from contract_tests.boundary.desk import Desk, MakeDesk


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
