"""Each engine's own client, over the gateway, with the certificate verified."""

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import httpx
import psycopg
import pymysql
import redis

from clients.client import transport_for_localhost
from contract_tests.service_process import until

LOOPBACK = "127.0.0.1"
WAIT_S = 60.0
REFUSALS = (psycopg.Error, pymysql.Error, redis.RedisError, httpx.HTTPError, OSError)
"""What a client raises that is not let in, or whose connection ends."""


@dataclass(frozen=True)
class Place:
    """What a reveal answered, and the authorities to trust."""

    credential: dict[str, Any]
    ca_file: str

    @property
    def host(self) -> str:
        return str(self.credential["host"])

    @property
    def port(self) -> int:
        return int(self.credential["port"])

    @property
    def login(self) -> tuple[str, str]:
        return self.credential["username"], self.credential["password"]


class Session(Protocol):
    """One connection; rows are numbers in one table (or list), which `make` creates."""

    def make(self) -> None: ...
    def write(self, numbers: Sequence[int]) -> None: ...
    def read(self) -> list[int]: ...


class Sql:
    """What databases with a cursor have in common."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def make(self) -> None:
        self._run("CREATE TABLE numbers (n INTEGER)")

    def write(self, numbers: Sequence[int]) -> None:
        values = ", ".join(f"({int(number)})" for number in numbers)
        self._run(f"INSERT INTO numbers VALUES {values}")

    def read(self) -> list[int]:
        return [row[0] for row in self._run("SELECT n FROM numbers ORDER BY n")]

    def _run(self, sql: str) -> Sequence[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall()) if sql.startswith("SELECT") else ()


class DuckDB(Sql):
    def __init__(self, http: httpx.Client, place: Place) -> None:
        super().__init__(http)
        self._place = place

    def _run(self, sql: str) -> Sequence[Any]:
        url = f"https://{self._place.host}:{self._place.port}/query"
        answer = self._connection.post(url, json={"sql": sql}, auth=self._place.login)
        answer.raise_for_status()
        return list(answer.json()["rows"])


class Search:
    """The table is an index, and a row a document; a write is a task, which is waited for."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def make(self) -> None:
        self._task("/indexes", {"uid": "numbers", "primaryKey": "n"})

    def write(self, numbers: Sequence[int]) -> None:
        self._task("/indexes/numbers/documents", [{"n": number} for number in numbers])

    def read(self) -> list[int]:
        found = self._http.get("/indexes/numbers/documents?limit=10000").raise_for_status()
        return sorted(each["n"] for each in found.json()["results"])

    def _task(self, path: str, body: Any) -> None:
        uid = self._http.post(path, json=body).raise_for_status().json()["taskUid"]

        def status() -> str:
            return str(self._http.get(f"/tasks/{uid}").raise_for_status().json()["status"])

        until(lambda: status() not in {"enqueued", "processing"}, "the task is done")
        assert status() == "succeeded"


class Resp:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def make(self) -> None:
        self._client.delete("numbers")

    def write(self, numbers: Sequence[int]) -> None:
        self._client.rpush("numbers", *numbers)

    def read(self) -> list[int]:
        return sorted(map(int, cast("list[bytes]", self._client.lrange("numbers", 0, -1))))


class LocalConnection(redis.connection.SSLConnection):
    """To this machine, whatever resolves here; the host is still what is verified."""

    def _connect(self) -> Any:
        plain = socket.create_connection((LOOPBACK, self.port), WAIT_S)
        return self._wrap_socket_with_ssl(plain)  # type: ignore[no-untyped-call]  # redis-py's


@contextlib.contextmanager
def connect(engine: str, place: Place) -> Iterator[Session]:
    """Raises one of REFUSALS where the client is not let in."""
    opened = {
        "duckdb": _duckdb,
        "postgres": _postgres,
        "mariadb": _mysql,
        "meilisearch": _search,
        "mysql": _mysql,
        "redis": _resp,
        "valkey": _resp,
    }[engine]
    with opened(place) as session:
        yield session


@contextlib.contextmanager
def _duckdb(place: Place) -> Iterator[Session]:
    transport = transport_for_localhost(place.ca_file)
    with httpx.Client(transport=transport, timeout=WAIT_S) as http:
        yield DuckDB(http, place)


@contextlib.contextmanager
def _search(place: Place) -> Iterator[Session]:
    with httpx.Client(
        transport=transport_for_localhost(place.ca_file),
        base_url=f"https://{place.host}:{place.port}",
        headers={"Authorization": f"Bearer {place.login[1]}"},
        timeout=WAIT_S,
    ) as http:
        yield Search(http)


@contextlib.contextmanager
def _postgres(place: Place) -> Iterator[Session]:
    user, password = place.login
    with psycopg.connect(
        host=place.host,
        hostaddr=LOOPBACK,
        port=place.port,
        user=user,
        password=password,
        dbname="app",
        sslmode="verify-full",
        sslrootcert=place.ca_file,
        connect_timeout=int(WAIT_S),
        autocommit=True,
    ) as connection:
        yield Sql(connection)


@contextlib.contextmanager
def _mysql(place: Place) -> Iterator[Session]:
    user, password = place.login
    connection = pymysql.connect(
        host=place.host,
        user=user,
        password=password,
        database="app",
        ssl={"ca": place.ca_file},
        autocommit=True,
        read_timeout=int(WAIT_S),
        defer_connect=True,
    )
    connection.connect(socket.create_connection((LOOPBACK, place.port), WAIT_S))
    with connection:
        yield Sql(connection)


@contextlib.contextmanager
def _resp(place: Place) -> Iterator[Session]:
    user, password = place.login
    pool = redis.ConnectionPool(
        connection_class=LocalConnection,
        host=place.host,
        port=place.port,
        username=user,
        password=password,
        ssl_ca_certs=place.ca_file,
        ssl_check_hostname=True,
        socket_timeout=WAIT_S,
        retry=None,
    )
    with redis.Redis(connection_pool=pool) as client:
        client.ping()
        yield Resp(client)
