"""A real MariaDB behind the gateway, reached by real clients that verify the certificate."""

import concurrent.futures
import hashlib
import ssl
import struct
from pathlib import Path

import pymysql
import pytest

from contract_tests.gateway.authorities import Authority
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.mysql_clients import (
    command_line,
    connect,
    connect_unnamed,
    mysql_instance,
    rows,
)
from contract_tests.gateway.rig import GatewayRig, until
from contract_tests.gateway.servers import MariaDb

MEGABYTE = 1_000_000
COM_STMT_PREPARE, COM_STMT_EXECUTE = 0x16, 0x17


@pytest.fixture(scope="module")
def host(protocols_gateway: GatewayRig, mariadb: MariaDb) -> str:
    return mysql_instance(protocols_gateway, mariadb, "maria")


def test_pymysql_logs_in_verified(protocols_gateway: GatewayRig, host: str) -> None:
    with connect(protocols_gateway, host, database="shop") as connection:
        found = rows(connection, "SELECT CURRENT_USER(), DATABASE()")
    assert found == [("app@localhost", "shop")]


def test_the_command_line_logs_in_verified(protocols_gateway: GatewayRig, host: str) -> None:
    user = f"app@{host.partition('.')[0]}"
    ran = command_line(protocols_gateway, host, "--execute=SELECT DATABASE()", "shop", user=user)
    assert (ran.stdout, ran.stderr) == ("shop\n", "")


def test_a_wrong_password_gets_the_servers_own_error(
    protocols_gateway: GatewayRig, host: str
) -> None:
    with pytest.raises(pymysql.err.OperationalError) as refused:
        connect(protocols_gateway, host, password="wrong")
    text = "Access denied for user 'app'@'localhost' (using password: YES)"
    assert refused.value.args == (1045, text)
    with pytest.raises(pymysql.err.OperationalError, match="using password: NO"):
        connect(protocols_gateway, host, password="")


def test_a_database_that_is_not_there_gets_the_servers_own_error(
    protocols_gateway: GatewayRig, host: str
) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="Unknown database 'nowhere'"):
        connect(protocols_gateway, host, database="nowhere")


def test_two_instances_are_told_apart(
    protocols_gateway: GatewayRig, mariadb: MariaDb, host: str
) -> None:
    nowhere = protocols_gateway.add_instance("other-maria", protocol="mysql", connections_max=0)
    with pytest.raises(pymysql.err.OperationalError, match="Too many connections"):
        connect(protocols_gateway, nowhere)
    connect(protocols_gateway, host).close()


def test_another_name_than_the_certificates_is_not_believed(
    protocols_gateway: GatewayRig, host: str
) -> None:
    with pytest.raises(pymysql.err.OperationalError, match=r"verify failed|UNRECOG"):
        connect(protocols_gateway, "db.example.com")
    context = ssl.create_default_context()  # trusts the public authorities only
    with pytest.raises(pymysql.err.OperationalError, match="certificate verify failed"):
        connect(protocols_gateway, host, ssl=context)


@pytest.mark.parametrize("password", ["the password of app", "the former one"])
def test_both_passwords_of_a_rotation_work(
    protocols_gateway: GatewayRig, mariadb: MariaDb, host: str, password: str
) -> None:
    """The server asks anew for the second one, which PyMySQL would not answer twice."""
    mariadb.run(
        "CREATE USER IF NOT EXISTS rotating@localhost IDENTIFIED VIA"
        " mysql_native_password USING PASSWORD('the password of app')"
        " OR mysql_native_password USING PASSWORD('the former one')"
    )
    with connect(protocols_gateway, host, "rotating", password) as connection:
        assert rows(connection, "SELECT 1") == [(1,)]
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        connect(protocols_gateway, host, "rotating", "neither")


def test_another_plugin_of_an_account_is_spoken(
    protocols_gateway: GatewayRig, mariadb: MariaDb, host: str
) -> None:
    mariadb.run(
        "INSTALL SONAME 'auth_ed25519'",
        "CREATE USER modern@localhost IDENTIFIED VIA ed25519 USING PASSWORD('the password of app')",
    )
    user = f"modern@{host.partition('.')[0]}"
    ran = command_line(protocols_gateway, host, "--execute=SELECT CURRENT_USER()", user=user)
    assert (ran.stdout, ran.stderr) == ("modern@localhost\n", "")


def test_a_client_that_tells_tls_no_name_is_led_by_its_user_name(
    protocols_gateway: GatewayRig, host: str
) -> None:
    for name in (host.partition(".")[0], host, host.upper()):
        with connect_unnamed(protocols_gateway, f"app@{name}") as connection:
            assert rows(connection, "SELECT USER()") == [("app@localhost",)]


def test_the_name_is_stripped_where_tls_told_it_too(
    protocols_gateway: GatewayRig, host: str
) -> None:
    with connect(protocols_gateway, host, f"app@{host.partition('.')[0]}") as connection:
        assert rows(connection, "SELECT USER()") == [("app@localhost",)]


def test_a_user_name_with_an_at_sign_is_left_alone(
    protocols_gateway: GatewayRig, mariadb: MariaDb, host: str
) -> None:
    mariadb.run("CREATE USER 'joe@corp'@localhost IDENTIFIED BY 'the password of app'")
    for connection in (
        connect(protocols_gateway, host, "joe@corp"),
        connect_unnamed(protocols_gateway, f"joe@corp@{host.partition('.')[0]}"),
    ):
        with connection:
            assert rows(connection, "SELECT USER()") == [("joe@corp@localhost",)]


def test_attributes_of_the_client_reach_the_server(
    protocols_gateway: GatewayRig, host: str
) -> None:
    with connect(protocols_gateway, host, program_name="shop-web") as connection:
        found = rows(
            connection,
            "SELECT ATTR_VALUE FROM performance_schema.session_connect_attrs"
            " WHERE PROCESSLIST_ID = CONNECTION_ID() AND ATTR_NAME = 'program_name'",
        )
    assert found == [("shop-web",)]


def test_a_query_is_killed_by_another_connection(protocols_gateway: GatewayRig, host: str) -> None:
    with (
        concurrent.futures.ThreadPoolExecutor() as pool,
        connect(protocols_gateway, host) as victim,
        connect(protocols_gateway, host) as killer,
    ):
        # The number in the greeting is nobody's: no client kills another's query by it.
        assert victim.thread_id() == 0
        number = rows(victim, "SELECT CONNECTION_ID()")[0][0]
        slept = pool.submit(rows, victim, "SELECT SLEEP(100)")
        state = f"SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {number}"
        until(lambda: rows(killer, state) == [("User sleep",)], "it sleeps")
        rows(killer, f"KILL QUERY {number}")
        with pytest.raises(pymysql.err.OperationalError, match="interrupted"):
            slept.result(50)
        assert rows(victim, "SELECT 1") == [(1,)]


def test_greeted_as_mysql_clients_find_mariadb_all_the_same(
    make_gateway: MakeGateway, mariadb: MariaDb
) -> None:
    gateway = make_gateway(ports={"mysql": 0}, mysql_version="8.0.30")
    host = mysql_instance(gateway, mariadb, "as-mysql")
    with connect(gateway, host) as connection:
        assert connection.server_version == "8.0.30"
        assert "MariaDB" in rows(connection, "SELECT VERSION()")[0][0]
    user = f"app@{host.partition('.')[0]}"
    ran = command_line(gateway, host, "--execute=SELECT 1; SELECT 2", user=user)
    assert (ran.stdout, ran.stderr) == ("1\n2\n", "")


def test_client_certificates_are_asked_for_where_they_are_wanted(
    protocols_gateway: GatewayRig, mariadb: MariaDb, tmp_path: Path
) -> None:
    authority = Authority("clients", tmp_path)
    host = mysql_instance(protocols_gateway, mariadb, "mutual-my", client_ca_pem=authority.pem)
    context = protocols_gateway.context()
    with pytest.raises(pymysql.err.OperationalError, match=r"CERTIFICATE_REQUIRED|Lost"):
        connect(protocols_gateway, host, ssl=context)
    pair = authority.issue("app")
    context.load_cert_chain(pair.certificate, pair.key)
    with connect(protocols_gateway, host, ssl=context) as connection:
        assert rows(connection, "SELECT 1") == [(1,)]
    with pytest.raises(pymysql.err.OperationalError, match="SNI"):
        connect_unnamed(protocols_gateway, f"app@{host.partition('.')[0]}")


# Slow for what it adds by day.
@pytest.mark.nightly
def test_a_result_of_100_megabytes_is_exact(protocols_gateway: GatewayRig, host: str) -> None:
    seen = hashlib.sha256()
    with (
        connect(protocols_gateway, host, database="shop") as connection,
        connection.cursor(pymysql.cursors.SSCursor) as cursor,
    ):
        cursor.execute(
            "SELECT seq, REPEAT(CHAR(65 + seq MOD 26 USING ascii), 1000000)"
            " FROM seq_1_to_100 ORDER BY seq"
        )
        for number, text in cursor:
            seen.update(f"{number}{text}".encode())
    expected = hashlib.sha256()
    for number in range(1, 101):
        expected.update(f"{number}{chr(65 + number % 26) * MEGABYTE}".encode())
    assert seen.digest() == expected.digest()


@pytest.mark.nightly
def test_a_statement_of_several_packets_is_exact(protocols_gateway: GatewayRig, host: str) -> None:
    """Beyond 16 MiB the protocol cuts a message into packets."""
    value = "".join(chr(65 + number % 57) for number in range(1_000)) * 17_000
    with connect(
        protocols_gateway, host, database="shop", max_allowed_packet=64 * 2**20
    ) as connection:
        rows(connection, "CREATE TEMPORARY TABLE big (value LONGTEXT)")
        rows(connection, "INSERT INTO big VALUES (%s)", value)
        found = rows(connection, "SELECT MD5(value), value FROM big")
    md5 = hashlib.md5(value.encode()).hexdigest()
    assert found == [(md5, value)]


@pytest.mark.nightly
def test_a_file_of_the_client_is_loaded(
    protocols_gateway: GatewayRig, host: str, tmp_path: Path
) -> None:
    lines = 300_000
    path = tmp_path / "lines.tsv"
    path.write_text("".join(f"{number}\tline {number}\n" for number in range(lines)))
    with connect(protocols_gateway, host, database="shop", local_infile=True) as connection:
        rows(connection, "CREATE TEMPORARY TABLE loaded (number INT, line VARCHAR(40))")
        rows(connection, "LOAD DATA LOCAL INFILE %s INTO TABLE loaded", str(path))
        found = rows(connection, "SELECT COUNT(*), SUM(number), MAX(line) FROM loaded")
    assert found == [(lines, lines * (lines - 1) // 2, "line 99999")]


def test_compression_begins_after_the_login(protocols_gateway: GatewayRig, host: str) -> None:
    user = f"app@{host.partition('.')[0]}"
    statement = "SHOW STATUS LIKE 'Compression'; SELECT REPEAT('ab', 3000000)"
    ran = command_line(protocols_gateway, host, "--compress", f"--execute={statement}", user=user)
    assert ran.stdout == "Compression\tON\n" + "ab" * 3_000_000 + "\n"


def test_prepared_statements_work(protocols_gateway: GatewayRig, host: str) -> None:
    """The binary protocol, which has the shapes that capabilities decide about."""
    with connect(protocols_gateway, host) as connection:
        connection._execute_command(COM_STMT_PREPARE, "SELECT ? + 1")
        prepared = connection._read_packet()
        number = struct.unpack_from("<I", prepared.get_all_data(), 1)[0]
        for _ in range(2):  # the parameter and the column, each with its end
            connection._read_packet()
            assert connection._read_packet().is_eof_packet()
        execute = struct.pack("<IBIBBHq", number, 0, 1, 0, 1, 8, 41)
        connection._execute_command(COM_STMT_EXECUTE, execute)
        packets = [connection._read_packet() for _ in range(4)]
        assert packets[0].get_all_data() == b"\x01"
        assert packets[3].get_all_data() == b"\x00\x00" + struct.pack("<q", 42)
