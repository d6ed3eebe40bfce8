"""Gateways for tests: one that a module shares, and makers of special ones."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract_tests.gateway.mysql_clients import PASSWORD
from contract_tests.gateway.postgres_clients import Postgres
from contract_tests.gateway.rig import GatewayRig, has_ipv6
from contract_tests.gateway.servers import MariaDb, Resp, run_mariadb, run_redis
from gateway import ports

MakeGateway = Callable[..., GatewayRig]


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayRig]:
    """Instances are added by the tests under names of their own."""
    listen = "127.0.0.1,::1" if has_ipv6() else "127.0.0.1"
    made = GatewayRig(listen=listen)
    yield made
    made.close()


@pytest.fixture(scope="module")
def hasty_gateway() -> Iterator[GatewayRig]:
    """For clients that do not get through the handshake; an honest one need not, when it stalls."""
    made = GatewayRig(handshake_timeout_s=1.0)
    yield made
    made.close()


@pytest.fixture
def make_gateway() -> Iterator[MakeGateway]:
    made: list[GatewayRig] = []

    def make(**options: Any) -> GatewayRig:
        made.append(GatewayRig(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def protocols_gateway() -> Iterator[GatewayRig]:
    """Speaks every protocol, each on a port of its own."""
    made = GatewayRig(ports=dict.fromkeys(ports.DEFAULT, 0))
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    made = Postgres()
    yield made
    made.close()


@pytest.fixture(scope="session")
def pg_gateway() -> Iterator[GatewayRig]:
    made = GatewayRig(ports={"https": 0, "postgres": 0})
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
