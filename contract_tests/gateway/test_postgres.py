"""PostgreSQL's own clients through the gateway, to a real server, with everything verified."""

import asyncio
import hashlib
import json
import os
import random
import socket
import ssl
import struct
import subprocess
from typing import Any

import asyncpg
import psycopg
import pytest

from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.postgres_clients import (
    ALPN,
    GSSENC_REQUEST,
    PASSWORD,
    SSL_REQUEST,
    Postgres,
    add_postgres,
    asked_for_tls,
    connect,
    dial,
    label,
    libpq_environment,
    read_error,
    startup,
)
from contract_tests.gateway.rig import WAIT_S, GatewayRig, until
from contract_tests.gateway.test_wake import Cell


@pytest.mark.parametrize("negotiation", ["postgres", "direct"])
def test_psycopg_is_led_to_its_instance(
    pg_gateway: GatewayRig, postgres: Postgres, negotiation: str
) -> None:
    host = add_postgres(pg_gateway, f"psycopg-{negotiation}", postgres)
    with connect(pg_gateway, host, sslnegotiation=negotiation) as connection:
        assert connection.execute("SELECT current_user, 6 * 7").fetchall() == [("app", 42)]
        assert connection.pgconn.ssl_in_use
        found = connection.execute("SELECT pg_backend_pid()").fetchall()
        assert found == [(connection.info.backend_pid,)]


@pytest.mark.parametrize("version", ["3.0", "3.2"])
def test_both_protocol_versions_run(
    pg_gateway: GatewayRig, postgres: Postgres, version: str
) -> None:
    host = add_postgres(pg_gateway, f"version-{version[-1]}", postgres)
    with connect(pg_gateway, host, max_protocol_version=version) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_asyncpg_is_led_to_its_instance(
    pg_gateway: GatewayRig, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = add_postgres(pg_gateway, "asyncpg", postgres)
    lookup = socket.getaddrinfo

    def at_home(name: str, *rest: object, **further: object) -> object:
        return lookup("127.0.0.1" if name == host else name, *rest, **further)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", at_home)

    async def ask() -> object:
        connection = await asyncpg.connect(
            host=host,
            port=pg_gateway.ports["postgres"],
            user="app",
            password=PASSWORD,
            database="postgres",
            ssl=pg_gateway.context(),
        )
        try:
            with pytest.raises(TimeoutError):  # its driver sends a cancel request then
                await connection.fetchval("SELECT pg_sleep(600)", timeout=0.5)
            return await connection.fetchval("SELECT 40 + $1", 2)
        finally:
            await connection.close()

    assert asyncio.run(ask()) == 42


def test_psql_is_led_to_its_instance(pg_gateway: GatewayRig, postgres: Postgres) -> None:
    host = add_postgres(pg_gateway, "psql", postgres)
    asked = ["psql", "-X", "-Atc", "SELECT 'through psql'"]
    try:
        done = subprocess.run(
            asked,
            env=libpq_environment(pg_gateway, host),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except FileNotFoundError:
        pytest.skip("psql is not installed")
    assert (done.returncode, done.stdout) == (0, "through psql\n"), done.stderr


@pytest.mark.nightly
def test_much_data_arrives_whole_both_ways(pg_gateway: GatewayRig, postgres: Postgres) -> None:
    host = add_postgres(pg_gateway, "copy", postgres)
    sent = random.Random(5).randbytes(8_000_000).hex().encode()
    lines = b"".join(sent[at : at + 1_000] + b"\n" for at in range(0, len(sent), 1_000))
    with connect(pg_gateway, host) as connection:
        connection.execute("CREATE TEMPORARY TABLE t (n serial, line text)")
        with connection.cursor().copy("COPY t (line) FROM STDIN") as copy:
            copy.write(lines)
        with connection.cursor().copy("COPY (SELECT line FROM t ORDER BY n) TO STDOUT") as copy:
            back = hashlib.sha256(b"".join(copy))
    assert back.digest() == hashlib.sha256(lines).digest()


def test_a_wrong_password_is_the_servers_to_refuse(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    host = add_postgres(pg_gateway, "password", postgres)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        connect(pg_gateway, host, password="another").close()


def test_plaintext_is_refused_in_words(pg_gateway: GatewayRig, postgres: Postgres) -> None:
    host = add_postgres(pg_gateway, "plaintext", postgres)
    with pytest.raises(psycopg.OperationalError, match="requires TLS"):
        connect(pg_gateway, host, sslmode="disable").close()
    with dial(pg_gateway) as connection:
        connection.sendall(startup(user="app", database="postgres"))
        assert read_error(connection)["C"] == "28000"


def test_gss_encryption_is_declined_and_tls_follows(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    host = add_postgres(pg_gateway, "gss", postgres)
    with dial(pg_gateway) as plain:
        plain.sendall(GSSENC_REQUEST)
        assert plain.recv(1) == b"N"
        plain.sendall(SSL_REQUEST)
        assert plain.recv(1) == b"S"
        with pg_gateway.context().wrap_socket(plain, server_hostname=host) as connection:
            connection.sendall(startup(user="app", database="postgres"))
            assert connection.recv(1) == b"R"


def test_what_is_said_before_tls_is_never_taken_for_what_follows(pg_gateway: GatewayRig) -> None:
    with dial(pg_gateway) as connection:
        connection.sendall(SSL_REQUEST + startup(user="app", database="postgres"))
        assert connection.recv(1) == b"S"
        assert connection.recv(100) == b""


@pytest.mark.parametrize("alpn", [[], ["http/1.1"]])
def test_tls_at_once_needs_the_name_of_the_protocol(
    pg_gateway: GatewayRig, postgres: Postgres, alpn: list[str]
) -> None:
    host = add_postgres(pg_gateway, f"alpn-{len(alpn)}", postgres)
    context = pg_gateway.context()
    context.set_alpn_protocols(alpn)
    with dial(pg_gateway) as plain, pytest.raises(ssl.SSLError, match="no application protocol"):
        context.wrap_socket(plain, server_hostname=host)


def test_tls_at_once_agrees_on_the_protocol(pg_gateway: GatewayRig, postgres: Postgres) -> None:
    host = add_postgres(pg_gateway, "agreed", postgres)
    context = pg_gateway.context()
    context.set_alpn_protocols([ALPN])
    with dial(pg_gateway) as plain, context.wrap_socket(plain, server_hostname=host) as connection:
        assert connection.selected_alpn_protocol() == ALPN


def test_without_a_server_name_the_options_name_the_instance(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    host = add_postgres(pg_gateway, "unnamed", postgres)
    named = f"endpoint={label(host)} -c work_mem=77MB"
    unnamed = {"sslsni": "0", "sslmode": "verify-ca"}
    with connect(pg_gateway, host, **unnamed, options=named) as connection:
        assert connection.execute("SHOW work_mem").fetchall() == [("77MB",)]
    with connect(pg_gateway, host, **unnamed, options=f"endpoint={host}") as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    for given in ({}, {"options": "endpoint=another"}):
        with pytest.raises(psycopg.OperationalError, match=r"no such instance(.|\n)*endpoint="):
            connect(pg_gateway, host, **unnamed, **given).close()


def test_the_server_name_and_the_options_must_agree(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    one, other = (add_postgres(pg_gateway, f"agree-{each}", postgres) for each in "ab")
    with connect(pg_gateway, one, options=f"endpoint={label(one)}") as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    with pytest.raises(psycopg.OperationalError, match="differ"):
        connect(pg_gateway, one, options=f"endpoint={label(other)}").close()


def test_a_host_is_unknown_on_the_port_of_another_protocol(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    host = add_postgres(pg_gateway, "elsewhere", postgres)
    with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
        pg_gateway.connect(host)


def test_the_allow_list_holds_before_tls_and_for_named_instances(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    host = add_postgres(pg_gateway, "listed", postgres, allow_cidrs=["127.0.0.2/32"])
    with pytest.raises(psycopg.OperationalError):
        connect(pg_gateway, host).close()
    with asked_for_tls(pg_gateway, None) as connection:
        named = f"endpoint={label(host)}"
        connection.sendall(startup(user="app", database="postgres", options=named))
        assert not _said(connection)


def _said(connection: ssl.SSLSocket) -> bytes:
    try:
        return connection.recv(100)
    except OSError:  # it was cut, without a word
        return b""


def test_too_many_connections_in_the_protocols_words(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    host = add_postgres(pg_gateway, "full", postgres, connections_max=2)
    first, second = connect(pg_gateway, host), connect(pg_gateway, host)
    with first, second:
        with asked_for_tls(pg_gateway, host) as third:
            third.sendall(startup(user="app", database="postgres"))
            refused = read_error(third)
        assert (refused["S"], refused["C"]) == ("FATAL", "53300")
        assert "this size allows 2" in refused["M"]
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            connect(pg_gateway, host).close()
    until(lambda: _connects(pg_gateway, host), "room is given back")


def _connects(gateway: GatewayRig, host: str) -> bool:
    try:
        connect(gateway, host).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize(
    ("members", "sqlstate", "text"),
    [
        ({"state": "paused", "refusal": "the instance is paused"}, "57P03", "is paused"),
        ({"socket": "/nowhere"}, "57P03", "is not responding"),
    ],
)
def test_refusals_in_the_protocols_words(
    make_gateway: MakeGateway, members: dict[str, str], sqlstate: str, text: str
) -> None:
    gateway = make_gateway(ports={"https": 0, "postgres": 0}, backend_retry_s=0.2)
    given: dict[str, Any] = {"socket": "/nowhere", **members}
    host = gateway.add_instance("refused", backend=False, protocol="postgres", **given)
    with asked_for_tls(gateway, host) as connection:
        connection.sendall(startup(user="app", database="postgres"))
        refused = read_error(connection)
    assert refused["C"] == sqlstate
    assert text in refused["M"]


@pytest.mark.parametrize("role", ["menagerie", "app_0"])
def test_roles_of_the_cell_stay_inside(
    pg_gateway: GatewayRig, postgres: Postgres, role: str
) -> None:
    host = add_postgres(pg_gateway, "inside", postgres)
    with pytest.raises(psycopg.OperationalError, match=f'role "{role}" is reserved'):
        connect(pg_gateway, host, user=role).close()
    with asked_for_tls(pg_gateway, host) as connection:
        packet = startup(user="app", database="postgres")[8:-1] + b"user\0%b\0\0" % role.encode()
        connection.sendall(struct.pack("!II", 8 + len(packet), 3 << 16) + packet)
        assert read_error(connection)["C"] == "28000"


@pytest.mark.parametrize("value", ["true", "database", "1", "on"])
def test_replication_is_not_offered(pg_gateway: GatewayRig, postgres: Postgres, value: str) -> None:
    host = add_postgres(pg_gateway, f"replication-{value}", postgres)
    with pytest.raises(psycopg.OperationalError, match="replication"):
        connect(pg_gateway, host, replication=value).close()


@pytest.mark.parametrize(
    "packet",
    [
        struct.pack("!II", 10_001, 3 << 16),
        struct.pack("!II", 7, 3 << 16),
        struct.pack("!II", 9, 2 << 16) + b"\0",
        struct.pack("!II", 12, 3 << 16) + b"user",
        SSL_REQUEST,
    ],
)
def test_a_packet_that_is_no_startup_is_refused(
    pg_gateway: GatewayRig, postgres: Postgres, packet: bytes
) -> None:
    host = add_postgres(pg_gateway, f"malformed-{packet.hex()[:10]}", postgres)
    with asked_for_tls(pg_gateway, host) as connection:
        connection.sendall(packet)
        assert read_error(connection)["C"] == "08P01"


def test_a_connection_wakes_its_instance(make_gateway: MakeGateway, postgres: Postgres) -> None:
    gateway = make_gateway(ports={"https": 0, "postgres": 0})
    cell = Cell(gateway)
    cell.go.set()
    host = add_postgres(gateway, "sleeper", postgres, state="idle")
    with asked_for_tls(gateway, host):
        pass  # a mere probe wakes nothing
    assert cell.asked == []
    with connect(gateway, host) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert [path for _, path, _ in cell.asked] == ["/v1/wake/inst_sleeper"]


def test_sessions_are_counted_as_activity(pg_gateway: GatewayRig, postgres: Postgres) -> None:
    host = add_postgres(pg_gateway, "counted", postgres)

    def connections() -> list[int]:
        found = []
        for path in (pg_gateway.home / "activity").glob("*.json"):
            told = json.loads(path.read_bytes()).get("inst_counted", {})
            found.append(told.get("connections", 0))
        return found

    with connect(pg_gateway, host), connect(pg_gateway, host):
        until(lambda: sum(connections()) == 2, "both are counted")
    until(lambda: sum(connections()) == 0, "none is left")


def test_a_session_that_the_server_ends_is_told_so(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    host = add_postgres(pg_gateway, "ended", postgres)
    with connect(pg_gateway, host) as connection, postgres.administrator() as administrator:
        administrator.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
        with pytest.raises(psycopg.errors.AdminShutdown):
            connection.execute("SELECT 1")


def test_the_log_holds_neither_password_nor_query(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    gateway = make_gateway(ports={"https": 0, "postgres": 0})
    host = add_postgres(gateway, "quiet", postgres)
    with connect(gateway, host) as connection:
        connection.execute("SELECT 'canary in a query'")
    gateway.process.terminate()
    assert gateway.process.wait(WAIT_S) == 0
    text = (gateway.home / "gateway.log").read_text()
    assert "gateway.stopped" in text
    assert PASSWORD not in text
    assert "canary" not in text
    assert os.fspath(postgres.socket) not in text
