"""Logins whose verifiers the gateway knows, on a real server, by the clients that people have."""

import concurrent.futures
import contextlib
import random
import subprocess
import threading
from typing import Any

import psycopg
import pytest

from cell.engines.postgres import scram
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.postgres_clients import (
    Postgres,
    add_postgres,
    connect,
    libpq_environment,
)
from contract_tests.gateway.rig import GatewayRig, until
from contract_tests.gateway.test_wake import Cell

PASSWORD = "of the cell"


def known(postgres: Postgres, name: str, password: str, iterations: int = 4096) -> dict[str, str]:
    """A role with a verifier of ours, and what the route says of it."""
    verifier = scram.verifier(password, iterations=iterations)
    with postgres.administrator() as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{verifier}'".encode())
    return {name: scram.without_login(verifier)}


def test_what_libpq_and_the_server_agree_on_is_what_is_verified(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    """Of any password, salt and number of iterations; each of them brings new nonces."""
    chance = random.Random(7)
    logins: dict[str, str] = {}
    passwords: dict[str, str] = {}
    for number in range(12):
        name = f"known_{number}"
        passwords[name] = "".join(chance.choices("abc,=$ %+/\\x", k=1 + number * 3))
        logins |= known(postgres, name, passwords[name], chance.randint(1, 9_000))
    host = add_postgres(pg_gateway, "proofs", postgres, logins=logins)
    for name, password in passwords.items():
        with connect(pg_gateway, host, user=name, password=password) as connection:
            assert connection.execute("SELECT current_user").fetchone() == (name,)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            connect(pg_gateway, host, user=name, password=f"{password}x").close()
    # Nobody's role but those is looked at.
    with connect(pg_gateway, host) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("app",)


def test_psql_logs_in(pg_gateway: GatewayRig, postgres: Postgres) -> None:
    logins = known(postgres, "known_psql", PASSWORD)
    host = add_postgres(pg_gateway, "proof-psql", postgres, logins=logins)
    environment = libpq_environment(pg_gateway, host, PGUSER="known_psql", PGPASSWORD=PASSWORD)
    asked = ["psql", "-X", "-Atc", "SELECT current_user"]
    try:
        done = subprocess.run(
            asked, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
    except FileNotFoundError:
        pytest.skip("psql is not installed")
    assert (done.returncode, done.stdout) == (0, "known_psql\n"), done.stderr


@pytest.mark.parametrize("negotiation", ["postgres", "direct"])
def test_such_a_login_can_be_cancelled_and_replicates_nothing(
    pg_gateway: GatewayRig, postgres: Postgres, negotiation: str
) -> None:
    name = f"known_{negotiation}"
    host = add_postgres(
        pg_gateway, f"cancel-{negotiation}", postgres, logins=known(postgres, name, PASSWORD)
    )
    given = {"user": name, "password": PASSWORD, "sslnegotiation": negotiation}
    with connect(pg_gateway, host, **given) as connection:
        over = threading.Event()

        def cancel() -> None:
            while not over.wait(0.1):
                connection.cancel_safe()

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(cancel)
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute("SELECT pg_sleep(60)")
            over.set()
    with pytest.raises(psycopg.OperationalError, match="replication connections"):
        connect(pg_gateway, host, **given, replication="database").close()


@pytest.mark.parametrize("change", ["PASSWORD 'another'", "PASSWORD NULL", "PASSWORD 'md5{}'"])
def test_a_changed_password_is_refused_and_told(
    make_gateway: MakeGateway, postgres: Postgres, change: str
) -> None:
    gateway = make_gateway(ports={"https": 0, "postgres": 0})
    cell = Cell(gateway)
    cell.go.set()
    name = f"changed_{len(change)}"
    host = add_postgres(gateway, "changed", postgres, logins=known(postgres, name, PASSWORD))
    with postgres.administrator() as connection:
        connection.execute(f"ALTER ROLE {name} {change.format('0' * 32)}".encode())
    for password in ("another", PASSWORD):
        with pytest.raises(psycopg.OperationalError, match="was changed in the database"):
            connect(gateway, host, user=name, password=password).close()
    until(lambda: cell.asked, "the cell is told")
    assert {path for _, path, _ in cell.asked} == {"/v1/doubted-logins/inst_changed"}


def test_failing_logins_are_told_once_a_second(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    gateway = make_gateway(ports={"https": 0, "postgres": 0})
    cell = Cell(gateway)
    host = add_postgres(gateway, "failing", postgres, logins=known(postgres, "failing", PASSWORD))

    def fail() -> None:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            connect(gateway, host, user="failing", password="wrong").close()

    for _ in range(5):
        fail()
    until(lambda: cell.asked, "the cell is told")
    # It has not answered yet, and is told of what came meanwhile once more.
    assert len(cell.asked) == 1
    cell.go.set()
    until(lambda: len(cell.asked) == 2, "it is told again")
    for _ in range(3):
        fail()
    assert connected(gateway, host, user="failing", password=PASSWORD)


def connected(gateway: GatewayRig, host: str, **further: Any) -> bool:
    with connect(gateway, host, **further) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


def test_roles_that_the_owner_made_leave_places_for_his_own_login(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    """Else who knows the password of one keeps out the owner, who would end it."""
    logins = known(postgres, "known_reserved", PASSWORD)
    host = add_postgres(pg_gateway, "reserved", postgres, logins=logins, connections_max=5)
    with contextlib.ExitStack() as held:
        for _ in range(4):
            held.enter_context(connect(pg_gateway, host))
        with pytest.raises(psycopg.OperationalError, match="you created have 4 of the 5"):
            connect(pg_gateway, host).close()
        owner = {"user": "known_reserved", "password": PASSWORD}
        with connect(pg_gateway, host, **owner) as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("known_reserved",)
            with pytest.raises(psycopg.OperationalError, match="this size allows 5"):
                connect(pg_gateway, host, **owner).close()
    until(lambda: _all_can_connect(pg_gateway, host), "places are given back")


def _all_can_connect(gateway: GatewayRig, host: str) -> bool:
    with contextlib.ExitStack() as held:
        try:
            for _ in range(4):
                held.enter_context(connect(gateway, host))
        except psycopg.OperationalError:
            return False
    return True
