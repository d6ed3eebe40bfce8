"""A former holder's trigger that sets passwords: nobody gets in by it through the gateway."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

import asyncpg
import psycopg
import pytest

from cell.engines.postgres import scram, sources
from contract_tests.cell.rig import running, until
from contract_tests.engines.gateway_process import GatewayProcess
from contract_tests.gateway.scram_client import ScramClient

NEWEST, OLDEST = "18", "15"
KNOWN = "known to the former holder"
TRIGGER = """
CREATE TABLE orders (n int);
CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF session_user <> 'app' THEN
        EXECUTE 'SET ROLE NONE';
        EXECUTE format('ALTER ROLE %I PASSWORD %L', session_user, (SELECT said FROM chosen));
        EXECUTE 'SET ROLE app';
    END IF;
    RETURN new;
END $$;
CREATE TABLE chosen AS SELECT 'known to the former holder' AS said;
CREATE TRIGGER mine BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION mine();
"""
Shown = dict[str, Any]


class PostgresGateway(GatewayProcess):
    def connect(self, shown: Shown, password: str = "") -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=shown["host"],
            hostaddr="127.0.0.1",
            port=self.port,
            user=shown["username"],
            password=password or shown["password"],
            dbname="app",
            sslmode="verify-full",
            sslrootcert=self.authority,
            autocommit=True,
        )

    def works(self, shown: Shown, password: str = "") -> bool:
        try:
            self.connect(shown, password).close()
        except psycopg.OperationalError:
            return False
        return True

    def tls(self, host: str) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), 30)
        plain.sendall(struct.pack("!II", 8, 80877103))
        assert plain.recv(1) == b"S"
        context = ssl.create_default_context(cafile=self.authority)
        return context.wrap_socket(plain, server_hostname=host)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresGateway]:
    if not {NEWEST, OLDEST} <= set(sources.best(sources.find())):
        pytest.skip("the wheel with PostgreSQL is not installed")
    # The cell itself looks rarely here, so that what is put back was told by the gateway.
    with running(tmp_path_factory.mktemp("logins") / "cell", health_every_s=3600) as rig:
        made = PostgresGateway(rig, "postgres")
        try:
            yield made
        finally:
            made.stop()


def attacked(gateway: PostgresGateway, version: str) -> tuple[str, Shown, Shown]:
    """The instance, and the credentials before and after its rotation."""
    instance_id = gateway.rig.make(engine="postgres", engine_version=version)
    former = gateway.rig.reveal(instance_id)
    with gateway.connect(former) as connection:
        connection.execute(TRIGGER)
    new = gateway.rig.rotate(instance_id)
    assert new["username"] == "app_2"
    return instance_id, former, new


@pytest.mark.nightly
@pytest.mark.parametrize("version", [NEWEST, pytest.param(OLDEST, marks=pytest.mark.nightly)])
def test_a_password_that_a_trigger_set_lets_nobody_in(
    gateway: PostgresGateway, version: str
) -> None:
    instance_id, former, new = attacked(gateway, version)
    for said in (KNOWN, "md5" + "0" * 32, scram.verifier(KNOWN)):
        with gateway.connect(former) as connection:
            connection.execute("UPDATE chosen SET said = %s", [said])
        with gateway.connect(new) as connection:
            connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(psycopg.OperationalError, match="was changed in the database"):
            gateway.connect(new, KNOWN)
        until(lambda: gateway.works(new), "the credential works again")
        assert not gateway.works(new, KNOWN)
        assert gateway.works(former)
    assert "the password of app_2 was changed" in log_of(gateway, instance_id)


# By day what is checked of a login: cell/instances/test_login_checks.py.
@pytest.mark.nightly
def test_a_credential_that_fails_is_put_right(gateway: PostgresGateway) -> None:
    """Also where salt and iterations are ours, which anybody who tries to log in is told."""
    _, former, new = attacked(gateway, NEWEST)
    for name, salted in ((new, True), (former, False)):
        with gateway.connect(name) as connection:
            told = ScramClient(name["username"], "x")
            with contextlib.closing(gateway.tls(name["host"])) as stream:
                told.begin(stream, {"database": "app"})
            salt = told.salt if salted else None
            connection.execute("SET ROLE NONE")
            said = scram.verifier(KNOWN, salt)
            connection.execute(f"ALTER ROLE {name['username']} PASSWORD '{said}'".encode())
        assert not gateway.works(name)
        until(partial(gateway.works, name), "the credential works again")


@pytest.mark.nightly
def test_a_statement_sent_with_the_proof_is_not_run(gateway: PostgresGateway) -> None:
    """With salt and iterations of ours, so that only the server's signature tells."""
    _, former, new = attacked(gateway, NEWEST)
    with contextlib.closing(gateway.tls(new["host"])) as stream:
        client = ScramClient(new["username"], KNOWN)
        client.begin(stream, {"database": "app"})
    with gateway.connect(new) as connection:
        connection.execute("SET ROLE NONE")
        said = scram.verifier(KNOWN, client.salt)
        connection.execute(f"ALTER ROLE app_2 PASSWORD '{said}'".encode())
    with contextlib.closing(gateway.tls(new["host"])) as stream:
        client = ScramClient(new["username"], KNOWN)
        client.begin(stream, {"database": "app"})
        statement = b"CREATE TABLE stolen (n int)\0"
        query = b"Q" + struct.pack("!I", 4 + len(statement)) + statement
        stream.sendall(client.proof() + query)
        heard = b""
        while chunk := stream.recv(10_000):
            heard += chunk
    assert heard[:1] == b"E"
    assert b"was changed in the database" in heard
    with gateway.connect(former) as connection:
        ended = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app_2'"
        until(lambda: connection.execute(ended).fetchone() == (0,), "its session has ended")
        found = connection.execute("SELECT to_regclass('stolen')").fetchone()
        assert found == (None,)


@pytest.mark.nightly
def test_what_owners_made_is_theirs_to_change(gateway: PostgresGateway) -> None:
    instance_id = gateway.rig.make(engine="postgres", engine_version=NEWEST)
    shown = gateway.rig.reveal(instance_id)
    with gateway.connect(shown) as connection:
        connection.execute("CREATE ROLE reporting LOGIN PASSWORD 'first'")
        connection.execute("ALTER ROLE reporting PASSWORD 'second'")
    assert gateway.works({**shown, "username": "reporting"}, "second")
    assert asyncio.run(by_asyncpg(gateway, shown)) == 42


async def by_asyncpg(gateway: PostgresGateway, shown: Shown) -> Any:
    connection = await asyncpg.connect(
        host="127.0.0.1",
        port=gateway.port,
        user=f"{shown['username']}",
        password=shown["password"],
        database="app",
        ssl=named(gateway, shown["host"]),
    )
    try:
        return await connection.fetchval("SELECT 40 + $1", 2)
    finally:
        await connection.close()


def named(gateway: PostgresGateway, host: str) -> ssl.SSLContext:
    """Names the host that a resolver would lead here."""

    class Named(ssl.SSLContext):
        def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
            return super().wrap_bio(*given, **{**named, "server_hostname": host})

    context = Named(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(gateway.authority)
    return context


def log_of(gateway: PostgresGateway, instance_id: str) -> str:
    return (gateway.rig.home / "instances" / instance_id / "log" / "engine.log").read_text()
