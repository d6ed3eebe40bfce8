"""Gateways for tests: one that a module shares, and makers of special ones."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract_tests.gateway.door import Door, has_ipv6
from contract_tests.gateway.mysql_clients import PASSWORD
from contract_tests.gateway.postgres_clients import Postgres
from contract_tests.gateway.servers import MariaDb, Resp, run_mariadb, run_redis
from gateway import ports

MakeDoor = Callable[..., Door]


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    """Instances are added by the tests under names of their own."""
    listen = "127.0.0.1,::1" if has_ipv6() else "127.0.0.1"
    made = Door(listen=listen)
    yield made
    made.close()


@pytest.fixture(scope="module")
def hasty_door() -> Iterator[Door]:
    """For clients that do not get through the handshake; an honest one need not, when it stalls."""
    made = Door(handshake_timeout_s=1.0)
    yield made
    made.close()


@pytest.fixture
def make_door() -> Iterator[MakeDoor]:
    made: list[Door] = []

    def make(**options: Any) -> Door:
        made.append(Door(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def fronts_door() -> Iterator[Door]:
    """Speaks every protocol, each on a port of its own."""
    made = Door(ports=dict.fromkeys(ports.DEFAULT, 0))
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    made = Postgres()
    yield made
    made.close()


@pytest.fixture(scope="session")
def pg_door() -> Iterator[Door]:
    made = Door(ports={"https": 0, "postgres": 0})
    yield made
    made.close()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    for server in run_mariadb():
        server.run(
            "CREATE DATABASE shop",
            f"CREATE USER app@localhost IDENTIFIED BY '{PASSWORD}'",
            "GRANT ALL ON *.* TO app@localhost",
        )
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Resp]:
    yield from run_redis()
