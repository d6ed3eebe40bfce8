"""How the contract suite speaks to each engine: a client that writes rows and reads them."""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import psycopg
import pymysql
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cell.engines.driver import Login
from cell.layout import Site
from contract_tests.cell.rig import engine

# By itself the library asks again where a password is refused or a server is gone, after seconds
# that chance tells: in vain, and what is a write might be done twice.
ONCE = Retry(NoBackoff(), 0)


class Speaker(Protocol):
    """Rows are numbers in one table (collection, key…), which `make` creates anew."""

    def make(self, site: Site, login: Login) -> None: ...
    def write(self, site: Site, login: Login, numbers: Sequence[int]) -> None: ...
    def read(self, site: Site, login: Login) -> list[int]: ...


class DuckDB:
    def make(self, site: Site, login: Login) -> None:
        self._ask(site, login, "CREATE OR REPLACE TABLE numbers (n INTEGER)")

    def write(self, site: Site, login: Login, numbers: Sequence[int]) -> None:
        values = ", ".join(f"({number})" for number in numbers)
        self._ask(site, login, f"INSERT INTO numbers VALUES {values}")

    def read(self, site: Site, login: Login) -> list[int]:
        return [row[0] for row in self._ask(site, login, "FROM numbers ORDER BY n")]

    @staticmethod
    def _ask(site: Site, login: Login, sql: str) -> list[list[int]]:
        with engine(str(site.socket)) as http:
            answer = http.post("/query", json={"sql": sql}, auth=(login.username, login.password))
        assert answer.status_code == 200, answer.text
        return list(answer.json()["rows"])


class Resp:
    """Redis and Valkey; the table is a list, as large as it is long."""

    def make(self, site: Site, login: Login) -> None:
        with self._client(site, login) as client:
            client.delete("numbers")

    def write(self, site: Site, login: Login, numbers: Sequence[int]) -> None:
        with self._client(site, login) as client:
            client.rpush("numbers", *numbers)

    def read(self, site: Site, login: Login) -> list[int]:
        with self._client(site, login) as client:
            found = cast("list[bytes]", client.lrange("numbers", 0, -1))
        return sorted(map(int, found))

    @staticmethod
    def _client(site: Site, login: Login) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=str(site.socket),
            username=login.username,
            password=login.password,
            retry=ONCE,
        )


class MySQLFamily:
    def make(self, site: Site, login: Login) -> None:
        self._ask(site, login, "DROP TABLE IF EXISTS numbers")
        self._ask(site, login, "CREATE TABLE numbers (n INTEGER PRIMARY KEY)")

    def write(self, site: Site, login: Login, numbers: Sequence[int]) -> None:
        values = ", ".join(f"({number})" for number in numbers)
        self._ask(site, login, f"INSERT INTO numbers VALUES {values}")

    def read(self, site: Site, login: Login) -> list[int]:
        return [row[0] for row in self._ask(site, login, "SELECT n FROM numbers ORDER BY n")]

    @staticmethod
    def _ask(site: Site, login: Login, sql: str) -> Sequence[Sequence[Any]]:
        with (
            pymysql.connect(
                unix_socket=str(site.socket),
                user=login.username,
                password=login.password,
                database="app",
                autocommit=True,
                ssl_disabled=True,
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
            return list(cursor.fetchall())


class PostgreSQL:
    def make(self, site: Site, login: Login) -> None:
        with self._connection(site, login) as connection:
            connection.execute("DROP TABLE IF EXISTS numbers")
            connection.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")

    def write(self, site: Site, login: Login, numbers: Sequence[int]) -> None:
        with self._connection(site, login) as connection:
            statement = "INSERT INTO numbers SELECT unnest(%s::INTEGER[])"
            connection.execute(statement, [list(numbers)])

    def read(self, site: Site, login: Login) -> list[int]:
        with self._connection(site, login) as connection:
            return [n for (n,) in connection.execute("SELECT n FROM numbers ORDER BY n")]

    @staticmethod
    def _connection(
        site: Site, login: Login, options: str = ""
    ) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            host=str(site.run),
            user=login.username,
            password=login.password,
            dbname="app",
            options=options,
        )


# A further engine joins by its line here.
SPEAKERS: dict[str, Speaker] = {
    "duckdb": DuckDB(),
    "mariadb": MySQLFamily(),
    "mysql": MySQLFamily(),
    "postgres": PostgreSQL(),
    "redis": Resp(),
    "timescaledb": PostgreSQL(),
    "valkey": Resp(),
}
# Beside the newest one that a machine has.
OLDER_VERSIONS = (("postgres", "16"), ("postgres", "15"))
