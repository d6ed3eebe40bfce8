"""A MySQL or MariaDB that lies, never ends or wants more than it may get: nothing is changed."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pymysql import _auth

from cell.migrations.conduit import Conduit
from cell.migrations.errors import MigrationError
from cell.migrations.mysql import session
from cell.migrations.mysql.grants import Grants
from cell.migrations.source_uri import SourceUri, Tls
from contract_tests.by_day import one_in
from contract_tests.cell.migrations import lying_proxy, mariadb_server
from contract_tests.cell.migrations.lying_proxy import Answer, lying, packet
from contract_tests.cell.migrations.mariadb_server import PASSWORD, MariaDBDatabase
from contract_tests.cell.migrations.migration_calls import status_is
from contract_tests.cell.migrations.source_server import write_certificates
from contract_tests.cell.migrations.test_files import made
from contract_tests.cell.migrations.test_mariadb_sources import migrate, unchanged
from contract_tests.cell.rig import Rig
from gateway.protocols import mysql_wire as wire

SMALL = {
    "name": "small",
    "vcpu": 0.5,
    "memory_bytes": 2**29,
    "storage_bytes": 60 * 10**6,
    "connections_max": 20,
}
PREFLIGHT, ROWS, DIGEST = b"SELECT VERSION(), @@version", b"SELECT /*!40001", b"CONV(LEFT(MD5"
CASES: dict[str, tuple[bytes, Answer, str]] = {
    "a file, before": (PREFLIGHT, lying_proxy.wants_a_file, "asked for a file"),
    "a file, in the dump": (ROWS, lying_proxy.wants_a_file, "asked for a file|Load data local"),
    "nonsense": (PREFLIGHT, lying_proxy.talks_nonsense, "cannot be read"),
    "nonsense in the dump": (ROWS, lying_proxy.talks_nonsense, "nothing came of"),
    "silence": (PREFLIGHT, lying_proxy.is_silent, "did not answer within 5 s"),
    "silence in the dump": (ROWS, lying_proxy.is_silent, "nothing came of the source for 5 s"),
    "it hangs up": (PREFLIGHT, lying_proxy.hangs_up, "ended the connection"),
    "it hangs up in the dump": (ROWS, lying_proxy.hangs_up, "ended the connection"),
    "names without end": (
        b"SHOW GRANTS",
        lying_proxy.never_ends(1, b"x"),
        "more than|did not answer",
    ),
    "rows without end": (ROWS, lying_proxy.never_ends(1, b"9" * 200), "more than"),
    "other columns": (PREFLIGHT, lying_proxy.says(b"10.11"), "cannot be read"),
    "no text": (PREFLIGHT, lying_proxy.says(b"\xff\xfe", b"", b"0"), "cannot be read"),
    "other rows": (DIGEST, lying_proxy.says(b"7", b"1"), "differs from the source in 1 tables"),
    "other values": (DIGEST, lying_proxy.says(b"3", b"1"), "differs from the source in 1 tables"),
    "a huge number": (DIGEST, lying_proxy.says(b"9" * 90, b"1"), "cannot be read"),
    "an error": (DIGEST, lying_proxy.refuses(1412, b"\x1b[31mno"), "refused a question"),
    "changed meanwhile": (ROWS, lying_proxy.refuses(1412, b"Table definition"), "ALTER TABLE"),
}


@pytest.fixture(scope="module")
def lasting_id(migrating: Rig) -> str:
    return made(migrating, "mariadb", size=SMALL)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", one_in(6, list(CASES)))
def test_a_hostile_source_changes_nothing(
    migrating: Rig, lasting_id: str, mariadb_shop: MariaDBDatabase, name: str
) -> None:
    trigger, answer, told = CASES[name]
    mariadb_shop.ask("CREATE TABLE t (n INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    with lying(mariadb_shop.server.port, trigger, answer) as proxy:
        uri = mariadb_shop.as_user(mariadb_server.PLAIN)
        uri = uri.replace(str(mariadb_shop.server.port), str(proxy.port))
        migration_id = migrate(migrating, lasting_id, mariadb_shop, uri=uri, tls="off", ca_pem=None)
        seen = status_is(migrating, lasting_id, migration_id, "failed")
    assert any(each in seen["reason"] for each in told.split("|")), seen["reason"]
    assert "\x1b" not in str(seen)
    assert PASSWORD not in str(seen)
    if answer is lying_proxy.wants_a_file:
        assert b"root:" not in proxy.after
        assert len(proxy.after) < 100, bytes(proxy.after)
    unchanged(migrating, lasting_id)


# What is asked at the login.

LOCAL_FILES = 1 << 7
SCRAMBLE = bytes(range(40, 60))
NATIVE = b"mysql_native_password"


def greeting(
    capabilities: int = 0xFFFF_FFFF & ~wire.LONG_PASSWORD, version: str = "8.0.36"
) -> bytes:
    return wire.build_greeting(wire.Greeting(version, capabilities, SCRAMBLE, NATIVE))


@contextlib.asynccontextmanager
async def asking(*questions: bytes, first: bytes | None = None) -> AsyncIterator[Any]:
    """A server that greets and asks; `heard` is what it was sent."""
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(packet(greeting(), 0) if first is None else first)
        number = 1
        for question in questions:
            head = await reader.readexactly(4)
            heard.extend(await reader.readexactly(int.from_bytes(head[:3], "little")))
            writer.write(packet(question, head[3] + 1))
            number = head[3] + 2
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while block := await reader.read(4096):
                heard.extend(block)
        assert number
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield SimpleNamespace(port=server.sockets[0].getsockname()[1], heard=heard)


def refusal(*questions: bytes, tls: Tls = "off", first: bytes | None = None) -> tuple[str, bytes]:
    """Why nobody logs in, and all that the server was sent."""

    async def tried() -> tuple[str, bytes]:
        async with asking(*questions, first=first) as server:
            source = SourceUri("127.0.0.1", server.port, "u", PASSWORD, "d", tls, None, "mysql")
            with pytest.raises(MigrationError) as found:
                async with session.opened(Conduit(source, ("127.0.0.0/8",)), 2.0):
                    pass
            await asyncio.sleep(0.05)
            return str(found.value), bytes(server.heard)

    return asyncio.run(tried())


@pytest.mark.parametrize(
    "plugin", [b"mysql_clear_password", b"sha256_password", b"dialog", b"auth_gssapi_client", b""]
)
def test_no_plugin_gets_the_password_in_clear(plugin: bytes) -> None:
    told, heard = refusal(b"\xfe" + plugin + b"\0" + SCRAMBLE + b"\0")
    assert "in clear" in told or "is not supported" in told
    assert PASSWORD.encode() not in heard


def test_the_newest_plugin_of_mysql_gets_it_no_more() -> None:
    asked = b"\xfecaching_sha2_password\0" + SCRAMBLE + b"\0"
    told, heard = refusal(asked, b"\x01\x04")
    assert "in clear (caching_sha2_password)" in told
    assert PASSWORD.encode() not in heard


@pytest.mark.parametrize(
    ("questions", "told"),
    [
        ([b"\xfe"], "is not supported"),
        ([b"\x01\x04"], "not understood"),
        ([b"\xfb/etc/passwd"], "not understood"),
        ([b""], "not understood"),
        ([b"\xff\x15\x04#28000\x1b[2JAccess denied"], "refused the login"),
        ([b"\xfe" + NATIVE + b"\0" + SCRAMBLE + b"\0"] * 11, "too many things"),
    ],
)
def test_what_a_server_says_at_a_login_is_told(questions: list[bytes], told: str) -> None:
    said, _ = refusal(*questions)
    assert told in said
    assert said.isprintable()


@contextlib.contextmanager
def secured(plugin: bytes, answers: list[bytes], folder: Path) -> Iterator[Any]:
    """A server with TLS that asks for that plugin, answers, and lets in at last."""
    heard: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")

    def read(connected: socket.socket) -> int:
        head = connected.recv(4)
        heard.append(connected.recv(int.from_bytes(head[:3], "little")))
        return head[3] + 1

    def serve() -> None:
        connected, _ = listening.accept()
        connected.sendall(packet(greeting(), 0))
        read(connected)
        with context.wrap_socket(connected, server_side=True) as tls:
            asked = b"\xfe" + plugin + b"\0" + SCRAMBLE + b"\0"
            tls.sendall(packet(asked, read(tls)))
            number = read(tls)
            for answer in answers:
                tls.sendall(packet(answer, number))
                number = number + 1 if answer == b"\x01\x03" else read(tls)
            tls.sendall(packet(b"\0\0\0\2\0\0\0", number))
            read(tls)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield SimpleNamespace(port=listening.getsockname()[1], heard=heard)
        thread.join()


PROOF = _auth.scramble_caching_sha2(PASSWORD.encode(), SCRAMBLE)
IN_CLEAR = PASSWORD.encode() + b"\0"


@pytest.mark.parametrize(
    ("plugin", "answers", "expected"),
    [
        (b"caching_sha2_password", [b"\x01\x03"], [PROOF]),
        (b"caching_sha2_password", [b"\x01\x04"], [PROOF, IN_CLEAR]),
        (b"mysql_clear_password", [], [IN_CLEAR]),
        (
            b"mysql_native_password",
            [],
            [_auth.scramble_native_password(PASSWORD.encode(), SCRAMBLE)],
        ),
    ],
)
def test_where_tls_is_verified_it_logs_in(
    plugin: bytes, answers: list[bytes], expected: list[bytes], tmp_path: Path
) -> None:
    """The proofs are those of another client."""
    ca_pem = write_certificates(tmp_path)

    async def tried(port: int) -> None:
        source = SourceUri("127.0.0.1", port, "u", PASSWORD, "d", "verify", ca_pem, "mysql")
        async with session.opened(Conduit(source, ("127.0.0.0/8",)), 2.0):
            pass

    ended = pytest.raises(MigrationError, match="ended the connection")
    with secured(plugin, answers, tmp_path) as server, ended:
        asyncio.run(tried(server.port))
    request, login, *said, query = server.heard
    assert len(request) == wire.SSL_REQUEST_BYTES
    parsed = wire.parse_response(login)
    assert (parsed.username, parsed.database) == (b"u", None)
    assert not parsed.capabilities & LOCAL_FILES
    assert said == expected
    assert query == b"\x03SET NAMES utf8mb4"


FIRST = {
    "a web server": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no MySQL or MariaDB"),
    "an old protocol": (packet(b"\x09" + b"x" * 60, 0), "no MySQL or MariaDB"),
    "a short greeting": (packet(greeting()[:30], 0), "no MySQL or MariaDB"),
    "a huge greeting": (b"\xff\xff\xff\0", "no MySQL or MariaDB"),
    "two packets": (packet(greeting(), 0) + packet(b"\0" * 7, 1), "no MySQL or MariaDB"),
    "a refusal": (packet(b"\xff\x10\x04Too many connections", 0), "Too many connections"),
    "an old server": (packet(greeting(wire.PROTOCOL_41 | wire.SECURE_CONNECTION), 0), "older than"),
}


@pytest.mark.parametrize("name", FIRST)
def test_what_is_no_server_is_told(name: str) -> None:
    first, told = FIRST[name]
    said, heard = refusal(first=first)
    assert told in said
    assert heard == b""


def test_a_server_without_tls_gets_nothing() -> None:
    """Whoever sits in between could say so in its place."""
    said, heard = refusal(first=packet(greeting(0xFFFF_FFFF & ~wire.SSL), 0), tls="verify")
    assert "does not offer TLS" in said
    assert heard == b""


def test_what_comes_before_tls_is_not_taken_for_what_comes_after() -> None:
    said, heard = refusal(first=packet(greeting(), 0) + packet(b"\0\0\0\2\0", 2), tls="verify")
    assert "no MySQL or MariaDB" in said
    assert heard == b""


GRANTS = [
    "GRANT USAGE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD 'x ON `a`.* TO '",
    r"GRANT SELECT, TRIGGER ON `shop\_1`.* TO `u`@`%`",
    "GRANT SELECT ON `many%`.* TO `u`@`%`",
    "GRANT SELECT (`ON `), INSERT ON `a``b`.`t` TO `u`@`%`",
    "GRANT EVENT, SHOW VIEW ON `a``b`.`v` TO `u`@`%` WITH GRANT OPTION",
    "GRANT ALL PRIVILEGES ON `own`.* TO `u`@`%`",
    "GRANT PROXY ON ''@'%' TO `u`@`%`",
    "GRANT EXECUTE ON PROCEDURE `shop_1`.`p` TO `u`@`%`",
]


@pytest.mark.parametrize(
    ("right", "database", "table", "has"),
    [
        ("SELECT", "shop_1", None, True),
        ("SELECT", "shop_1", "t", True),
        ("TRIGGER", "shop_1", None, True),
        ("EVENT", "shop_1", None, False),
        ("SELECT", "shopx1", None, False),
        ("SELECT", "many_more", None, True),
        ("SELECT", "a`b", "t", False),
        ("INSERT", "a`b", "t", True),
        ("INSERT", "a`b", None, False),
        ("SHOW VIEW", "a`b", "v", True),
        ("EVENT", "own", None, True),
        ("EXECUTE", "shop_1", None, False),
        ("SELECT", "a", None, False),
    ],
)
def test_rights_are_read_from_grants(
    right: str, database: str, table: str | None, has: bool
) -> None:
    assert Grants(GRANTS).has(right, database, table) is has


def test_a_right_on_everything_is_one_on_each() -> None:
    assert Grants(["GRANT SELECT, EVENT ON *.* TO `u`@`%`"]).has("EVENT", "any")
    assert not Grants([]).has("SELECT", "any")
