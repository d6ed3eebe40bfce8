"""A cell that takes sources on loopback, and servers with data that it takes."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract_tests.cell.migrations import mariadb_server, source_server
from contract_tests.cell.migrations.mariadb_server import MariaDBDatabase, MariaDBServer
from contract_tests.cell.migrations.migration_calls import LOOPBACK, empty_again
from contract_tests.cell.migrations.source_server import SourceDatabase, SourceServer
from contract_tests.cell.migrations.test_files import made
from contract_tests.cell.rig import Rig, running

SOURCE, TARGET = "17", "18"
# Small, so that a test can fill it.
STORAGE_BYTES = 300 * 10**6


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServer]:
    with source_server.running(tmp_path_factory.mktemp("source") / "server", SOURCE) as made:
        yield made


@pytest.fixture
def shop(source: SourceServer) -> SourceDatabase:
    return source.new_database()


@pytest.fixture(scope="session")
def mariadb_source() -> Iterator[MariaDBServer]:
    with mariadb_server.running() as made:
        yield made


@pytest.fixture
def mariadb_shop(mariadb_source: MariaDBServer) -> Iterator[MariaDBDatabase]:
    database = mariadb_source.new_database()
    yield database
    mariadb_source.ask(f"DROP DATABASE IF EXISTS {database.name}")


@pytest.fixture(scope="session")
def migrating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    settings: dict[str, Any] = {
        "migration_networks": LOOPBACK,
        "migration_silence_s": 5.0,
        "migration_leave_s": 8.0,
    }
    with running(tmp_path_factory.mktemp("migrating") / "cell", **settings) as made:
        made.usual = {"engine": "postgres", "engine_version": TARGET}
        yield made


@pytest.fixture(scope="module", autouse=True)
def _no_instance_outlives_its_file(migrating: Rig) -> Iterator[None]:
    yield
    migrating.erase_all()


@pytest.fixture(scope="module")
def instance_id(migrating: Rig) -> str:
    return migrating.make()


@pytest.fixture
def mariadb_id(migrating: Rig) -> Iterator[str]:
    found = made(migrating, "mariadb")
    yield found
    migrating.action(found, "erase")


@pytest.fixture
def emptied(migrating: Rig, instance_id: str) -> Iterator[None]:
    """The instance of a file of tests is as a new one after each of them."""
    yield
    empty_again(migrating, instance_id)


@pytest.fixture(scope="session")
def files(source: SourceServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One database in each format of pg_dump."""
    shop = source.new_database()
    shop.ask(
        """
        CREATE EXTENSION hstore;
        COMMENT ON EXTENSION hstore IS 'mine';
        CREATE SCHEMA "sh.op";
        CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL);
        CREATE TABLE "sh.op"."Orders" (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            customer int REFERENCES customers, told text);
        CREATE VIEW named AS SELECT name FROM customers;
        INSERT INTO customers SELECT n, 'customer ' || n FROM generate_series(1, 1000) n;
        INSERT INTO "sh.op"."Orders" (customer, told)
            SELECT 1 + n % 1000, E'\\r\\n\\\\.' || n FROM generate_series(1, 5000) n;
        GRANT SELECT ON customers TO PUBLIC;
        SELECT lo_from_bytea(4242, 'a large object');
        """
    )
    folder = tmp_path_factory.mktemp("dumped") / "dump"
    shop.dump("-Fd", "-f", str(folder))
    return {
        "postgres_custom": shop.dump("-Fc"),
        "postgres_plain": shop.dump(),
        "postgres_directory": _packed(folder),
    }


def _packed(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, "dump")
    return packed.getvalue()
