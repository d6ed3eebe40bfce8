"""Running servers whose data is copied: everything comes over equal, or nothing stays."""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract_tests.by_day import one_in
from contract_tests.cell.migrations.conftest import SOURCE
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    ask,
    begun,
    connect,
    path_of,
    refused,
    send,
    status_is,
    token,
    unchanged,
)
from contract_tests.cell.migrations.source_server import PASSWORD, SourceDatabase
from contract_tests.cell.rig import Rig

pytestmark = pytest.mark.usefixtures("emptied")

# Every kind of object that an owner can make, and values at their limits.
SCHEMA = Path(__file__).with_name("every_type.sql")


def schema_of(rig: Rig, instance_id: str, binaries: Path) -> list[str]:
    route, credential = rig.route(instance_id), rig.reveal(instance_id)
    assert route is not None
    environment = {
        "PGHOST": str(Path(route["socket"]).parent),
        "PGUSER": credential["username"],
        "PGPASSWORD": credential["password"],
        "PGDATABASE": "app",
    }
    words = [str(binaries / "pg_dump"), *PLAIN]
    done = subprocess.run(words, env=environment, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    return lines_of(done.stdout)


PLAIN = ("--schema-only", "--no-owner", "--no-acl")


def lines_of(dump: bytes) -> list[str]:
    lines = dump.decode().splitlines()
    left_out = ("\\restrict", "\\unrestrict", "-- Dumped", "SET ")
    return [each for each in lines if not each.startswith(left_out)]


@pytest.mark.nightly
def test_every_kind_of_object_comes_over_equal(migrating: Rig, shop: SourceDatabase) -> None:
    """Of the same version, so that one pg_dump reads both; the others go to a newer one."""
    instance_id = migrating.make(engine_version=SOURCE)
    shop.ask(SCHEMA.read_text())
    migration_id = begun(migrating, instance_id, CONNECTION)
    connect(migrating, instance_id, migration_id, shop)
    seen = status_is(migrating, instance_id, migration_id, "completed")
    expected = lines_of(shop.dump(*PLAIN))
    assert schema_of(migrating, instance_id, shop.server.source.binaries) == expected
    assert seen["verification"]["differences"] == []
    assert seen["verification"]["tables_compared"] == seen["progress"]["tables_total"]
    assert seen["verification"]["rows_compared"] == seen["progress"]["rows_done"] > 1000
    assert PASSWORD not in str(seen)
    counted = "SELECT count(*), (SELECT count FROM totals), nextval('tickets') FROM measurements"
    assert ask(migrating, instance_id, counted) == [(1000, 1000, 1042)]
    owners = "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 2200"
    assert ask(migrating, instance_id, owners) == [("app",)]
    assert shop.left() == []
    assert not (migrating.home / "instances" / instance_id / "migration").exists()


@pytest.mark.nightly
def test_the_uri_is_sealed_and_gone_with_the_migration(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    def secret_is_there() -> bool:
        files = migrating.home.glob("cell.db*")
        return any(PASSWORD.encode() in path.read_bytes() for path in files)

    migration_id = begun(migrating, instance_id, CONNECTION)
    connect(migrating, instance_id, migration_id, shop)
    assert not secret_is_there()
    status_is(migrating, instance_id, migration_id, "completed")
    assert not secret_is_there()
    assert PASSWORD not in migrating.log_path.read_text()


def test_tls_is_verified_unless_it_is_said_otherwise(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    seen = refused(migrating, instance_id, shop, ca_pem=None)
    assert "certificate of the source is not valid" in seen["reason"]
    other_name = shop.uri.replace("localhost", "127.0.0.2")
    seen = refused(migrating, instance_id, shop, uri=other_name)
    assert "source cannot be reached" in seen["reason"] or "certificate" in seen["reason"]
    # The server lets nobody in without TLS.
    seen = refused(migrating, instance_id, shop, tls="off")
    assert "no encryption" in seen["reason"]
    wrong = shop.uri.replace("owner:", "owner:x")
    assert (
        "password authentication failed"
        in refused(migrating, instance_id, shop, uri=wrong)["reason"]
    )
    migration_id = begun(migrating, instance_id, CONNECTION, dry_run=True)
    connect(migrating, instance_id, migration_id, shop, ca_pem=None, tls="require")
    assert status_is(migrating, instance_id, migration_id, "completed")["preflight"]
    unchanged(migrating, instance_id)


def test_what_a_uri_may_not_say_is_refused_without_repeating_it(
    migrating: Rig, instance_id: str
) -> None:
    migration_id = begun(migrating, instance_id, CONNECTION)
    url = token(migrating, instance_id, migration_id)
    for uri in (
        "postgresql://u:sEcReT@one,two/name",
        "postgresql://u:sEcReT@host:99999/name",
        "postgresql://u:sEcReT@host/name?host=/tmp",
        "postgresql://u:sEcReT@host/name?hostaddr=10.0.0.1",
        "postgresql://u:sEcReT@host/name?service=x&passfile=/etc/passwd",
        "postgresql://:sEcReT@host/name",
        "postgresql:///name?password=sEcReT",
        "postgresql://u:sEcReT%0a@host/name",
        "mysql://u:sEcReT@host/name",
    ):
        answer = send(migrating, url, {"uri": uri})
        assert answer.status_code == 422, uri
        assert "sEcReT" not in answer.text
    assert send(migrating, url, {"uri": "postgresql://u@h/d", "ca_pem": "x"}).status_code == 422
    migrating.act("DELETE", path_of(instance_id, migration_id))
    status_is(migrating, instance_id, migration_id, "cancelled")


def test_preflight_names_what_would_go_wrong(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    ask(migrating, instance_id, "CREATE TABLE mine (n int)")
    shop.ask(
        """
        CREATE TABLE keyless (n int);
        CREATE UNLOGGED TABLE carts (n int PRIMARY KEY);
        CREATE TABLE guarded (n int PRIMARY KEY);
        ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
        CREATE POLICY theirs ON guarded TO pg_monitor, owner USING (true);
        SELECT lo_create(0);
        GRANT SELECT ON guarded TO PUBLIC;
        """
    )
    shop.ask("CREATE EXTENSION pageinspect; CREATE EXTENSION pgcrypto", "super")
    shop.ask("CREATE TABLE raw (n int DEFAULT length(get_raw_page('keyless', 0)))")
    migration_id = begun(migrating, instance_id, CONNECTION, "copy_and_sync")
    connect(migrating, instance_id, migration_id, shop)
    seen = status_is(migrating, instance_id, migration_id, "failed")
    found = {(e["severity"], e["code"], e["object"]) for e in seen["preflight"]["findings"]}
    assert found >= {
        ("blocking", "target_not_empty", None),
        ("blocking", "tables_without_primary_key", "public.keyless"),
        ("warning", "unlogged_tables", "public.carts"),
        ("blocking", "large_objects_not_synced", None),
        ("blocking", "missing_extension", "pageinspect"),
        ("warning", "missing_extension", "pgcrypto"),
        ("blocking", "missing_role", "owner"),
        ("info", "grants", None),
    }
    ranks = ["blocking", "warning", "info"]
    told = [ranks.index(each["severity"]) for each in seen["preflight"]["findings"]]
    assert told == sorted(told)
    assert ask(migrating, instance_id, "SELECT count(*) FROM mine") == [(0,)]
    assert shop.left() == []


@pytest.mark.parametrize(
    "host", one_in(4, ["0xa.1", "[::ffff:10.0.0.1]", "10.0.0.1", "169.254.169.254"])
)
def test_addresses_within_are_not_connected_to(
    migrating: Rig, instance_id: str, shop: SourceDatabase, host: str
) -> None:
    uri = f"postgresql://u:p@{host}:5432/name"
    seen = refused(migrating, instance_id, shop, uri=uri)
    assert "an address that this cell does not connect to" in seen["reason"]


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on loopback that is no PostgreSQL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ending = threading.Event()

        def serve() -> None:
            while not ending.is_set():
                with contextlib.suppress(OSError):
                    connected, _ = listening.accept()
                    with connected:
                        answer(connected)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        ending.set()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def says(text: bytes) -> Callable[[socket.socket], None]:
    def answer(connected: socket.socket) -> None:
        connected.recv(1024)
        connected.sendall(text)

    return answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    one_in(
        2,
        [
            (says(b"HTTP/1.0 400 Bad Request\r\n\r\n"), "no PostgreSQL"),
            (says(b"R\x7f\xff\xff\xff"), "no PostgreSQL"),
            (says(b"R\x00\x00\x00\x08\x00\x00\x00\x00Z\x7f\xff\xff\xff"), "message"),
            (says(b""), "closed"),
        ],
        several=True,
    ),
)
def test_a_source_that_sends_garbage_ends_cleanly(
    migrating: Rig,
    instance_id: str,
    shop: SourceDatabase,
    answer: Callable[[socket.socket], None],
    reason: str,
) -> None:
    with answering(answer) as port:
        uri = f"postgresql://u:p@127.0.0.1:{port}/name"
        seen = refused(migrating, instance_id, shop, uri=uri, tls="off")
    assert reason in seen["reason"], seen


def test_a_source_without_tls_is_not_told_the_password(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    heard: list[bytes] = []

    def listen(connected: socket.socket) -> None:
        heard.append(connected.recv(1024))
        connected.sendall(b"N")
        connected.settimeout(1)
        with contextlib.suppress(TimeoutError):
            heard.append(connected.recv(1024))

    with answering(listen) as port:
        uri = f"postgresql://u:sEcReT@127.0.0.1:{port}/name"
        seen = refused(migrating, instance_id, shop, uri=uri)
    assert "does not offer TLS" in seen["reason"]
    assert set(heard) == {b"\x00\x00\x00\x08\x04\xd2\x16/", b""}


@pytest.mark.nightly
def test_code_of_the_source_keeps_no_other_migration_from_the_instance(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    """It can change the password of who runs it, which is nobody's but the cell's."""
    shop.ask(
        """
        CREATE FUNCTION seize() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
            IF session_user = 'app_0' THEN
                SET ROLE app_0; ALTER ROLE app_0 PASSWORD 'known'; SET ROLE app;
            END IF;
            RETURN true;
        END $$;
        CREATE TABLE seized (n int CHECK (seize()));
        INSERT INTO seized VALUES (1);
        """
    )
    seen = refused(migrating, instance_id, shop)
    assert "password authentication failed" in seen["reason"]
    shop.ask("DROP FUNCTION seize() CASCADE")
    migration_id = begun(migrating, instance_id, CONNECTION)
    connect(migrating, instance_id, migration_id, shop)
    status_is(migrating, instance_id, migration_id, "completed")
    assert ask(migrating, instance_id, "SELECT n FROM seized") == [(1,)]
