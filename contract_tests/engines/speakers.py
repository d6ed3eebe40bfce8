"""How the contract suite speaks to each engine: a client that writes rows and reads them."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

import httpx
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


class Search:
    """The table is an index, and a row a document."""

    def make(self, site: Site, login: Login) -> None:
        self._do(site, login, "DELETE", "/indexes/numbers", None)
        self._do(site, login, "POST", "/indexes", {"uid": "numbers", "primaryKey": "n"})

    def write(self, site: Site, login: Login, numbers: Sequence[int]) -> None:
        documents = [{"n": number} for number in numbers]
        self._do(site, login, "POST", "/indexes/numbers/documents", documents)

    def read(self, site: Site, login: Login) -> list[int]:
        with self._client(site, login) as http:
            answer = http.get("/indexes/numbers/documents", params={"limit": 10_000})
        assert answer.status_code == 200, answer.text
        return sorted(each["n"] for each in answer.json()["results"])

    def _do(self, site: Site, login: Login, method: str, path: str, body: Any) -> None:
        """A task, to its end: to delete what is not there fails, and does no harm."""
        with self._client(site, login) as http:
            answer = http.request(method, path, json=body)
            assert answer.status_code == 202, answer.text
            task, wait_s = answer.json(), 0.02
            while task["status"] in {"enqueued", "processing"}:
                time.sleep(wait_s)
                wait_s *= 1.3
                task = http.get(f"/tasks/{answer.json()['taskUid']}").json()
        assert method == "DELETE" or task["status"] == "succeeded", task

    @staticmethod
    def _client(site: Site, login: Login) -> AbstractContextManager[httpx.Client]:
        return engine(str(site.socket), {"Authorization": f"Bearer {login.password}"})


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
    "meilisearch": Search(),
    "mysql": MySQLFamily(),
    "postgres": PostgreSQL(),
    "redis": Resp(),
    "timescaledb": PostgreSQL(),
    "valkey": Resp(),
}
# Beside the newest one that a machine has.
OLDER_VERSIONS = (("postgres", "16"), ("postgres", "15"))
