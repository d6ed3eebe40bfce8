"""Tenants who write until they cannot, and the sizes that they fill."""

import os
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import redis

from cell.engines import find
from cell.runtime.host import Host
from contract_tests.cell.rig import SMALL, Rig
from contract_tests.engines.speakers import ONCE

TINY = {**SMALL, "name": "tiny", "storage_bytes": 60 * 10**6}
# An empty MariaDB needs 40 MB of it, and one that was filled keeps more.
MODEST = {**TINY, "storage_bytes": 160 * 10**6}
MB = 10**6
# Far past the ceiling of the tiny size, where nobody stops them.
ROUNDS, ROUND_BYTES = 250, 4 * MB
WRITABLE = b"SET default_transaction_read_only = off"
FILL = "INSERT INTO filled SELECT repeat('x', 2000) FROM generate_series(1, 2000)"
SHOW = "SHOW default_transaction_read_only"
LOAD = "INSERT INTO filled SELECT repeat('x', 2000) FROM generate_series(1, 400000)"
SEQUENCES = "INSERT INTO filled SELECT REPEAT('x', 2000) FROM seq_1_to_2000"
# The server keeps these where no folder shows them: the files have no name.
SORT = "SELECT seq FROM seq_1_to_1000000 ORDER BY REPEAT(REVERSE(seq), 200)"


class Tenant:
    """Writes until it cannot; `count` is how many of its writes are there."""

    def __init__(self, rig: Rig, instance_id: str) -> None:
        route = rig.route(instance_id)
        assert route is not None
        self.socket, self.password = route["socket"], rig.reveal(instance_id)["password"]

    def fill(self) -> int:
        raise NotImplementedError

    def count(self) -> int:
        raise NotImplementedError


class Postgres(Tenant):
    """Asks to write, whatever the default is."""

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(Path(self.socket).parent),
            user="app",
            password=self.password,
            dbname="app",
            autocommit=True,
        )

    def fill(self) -> int:
        written = 0
        try:
            with self.connect() as connection:
                connection.execute(WRITABLE)
                connection.execute("CREATE TABLE IF NOT EXISTS filled (x TEXT STORAGE PLAIN)")
                while written < ROUNDS:
                    connection.execute(FILL)
                    written += 1
        except psycopg.OperationalError:
            pass
        return written

    def count(self) -> int:
        with self.connect() as connection:
            found = connection.execute("SELECT count(*) / 2000 FROM filled").fetchone()
            return int(found[0]) if found else 0


SERVER_GONE, CONNECTION_LOST = 2006, 2013


class MariaDB(Tenant):
    def connect(self) -> Any:
        return pymysql.connect(
            unix_socket=self.socket,
            user="app",
            password=self.password,
            database="app",
            autocommit=True,
            ssl_disabled=True,
        )

    def fill(self) -> int:
        written = 0
        try:
            with self.connect() as connection, connection.cursor() as cursor:
                cursor.execute("CREATE TABLE IF NOT EXISTS filled (x TEXT)")
                while written < ROUNDS:
                    cursor.execute(SEQUENCES)
                    written += 1
        except pymysql.err.MySQLError:
            pass
        return written

    def count(self) -> int:
        return int(self.ask("SELECT COUNT(*) DIV 2000 FROM filled")[0][0])

    def ask(self, statement: str) -> Any:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def does(self, statement: str) -> bool:
        """False where the session ended before it was done."""
        try:
            self.ask(statement)
        except pymysql.err.OperationalError as error:
            if error.args[0] not in {SERVER_GONE, CONNECTION_LOST}:
                raise
            return False
        return True

    def refuses(self, statement: str) -> bool:
        try:
            self.ask(statement)
        except pymysql.err.OperationalError as error:
            return "denied" in str(error)
        return False


class Resp(Tenant):
    def client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=self.socket, username="app", password=self.password, retry=ONCE
        )

    def fill(self) -> int:
        written = 0
        with self.client() as client:
            try:
                for written in range(ROUNDS):
                    client.set(f"key-{written}", os.urandom(ROUND_BYTES))
            except redis.exceptions.RedisError:
                return written
        return ROUNDS

    def count(self) -> int:
        with self.client() as client:
            return int(str(client.dbsize()))


TENANTS: dict[str, type[Tenant]] = {
    "mariadb": MariaDB,
    "postgres": Postgres,
    "redis": Resp,
    "valkey": Resp,
}


def order(rig: Rig, host: Host, engine: str, **changes: Any) -> str:
    driver = find(host).drivers.get(engine)
    if driver is None:
        pytest.skip(f"no driver found {engine} on this machine")
    return rig.make(engine=engine, engine_version=driver.versions()[0], **changes)
