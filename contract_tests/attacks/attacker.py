"""An owner who attacks, as a process of its own: whatever its statement does, it can be ended.

It reads a line of JSON for each attack and answers one: what it was told, and whether it was
refused. Each attack has a connection of its own, over the gateway.
"""

import contextlib
import json
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from typing import Any

import redis

from contract_tests.attacks.http_requests import Requests
from contract_tests.attacks.statements import words
from contract_tests.end_to_end.engine_clients import (
    LOOPBACK,
    REFUSALS,
    WAIT_S,
    Place,
    connect,
)

Ask = Callable[[str], Any]


@contextlib.contextmanager
def asking(engine: str, place: Place) -> Iterator[Ask]:
    with connect(engine, place) as session:
        yield SPEAKERS[engine](session, place)


def _sql(session: Any, _: Place) -> Ask:
    cursor = session._connection.cursor()

    def ask(statement: str) -> Any:
        cursor.execute(statement)
        return [str(row) for row in cursor.fetchmany(1000)] if cursor.description else []

    return ask


def _duckdb(session: Any, place: Place) -> Ask:
    def ask(statement: str) -> Any:
        url = f"https://{place.host}:{place.port}/query"
        answer = session._connection.post(url, json={"sql": statement}, auth=place.login)
        if answer.status_code != 200:
            raise OSError(answer.text)
        return answer.text[:100_000]

    return ask


def _search(_: Any, place: Place) -> Ask:
    trust = ssl.create_default_context(cafile=place.ca_file)

    def opened() -> socket.socket:
        plain = socket.create_connection((LOOPBACK, place.port), WAIT_S)
        return trust.wrap_socket(plain, server_hostname=place.host)

    return Requests(opened, place.login[1], place.host).ask


def _resp(session: Any, _: Place) -> Ask:
    client: redis.Redis = session._client

    def ask(statement: str) -> Any:
        connection = client.connection_pool.get_connection()
        connection.send_command(*words(statement))  # type: ignore[no-untyped-call]
        return str(connection.read_response())[:100_000]  # type: ignore[no-untyped-call]

    return ask


SPEAKERS: dict[str, Callable[[Any, Place], Ask]] = {
    "duckdb": _duckdb,
    "mariadb": _sql,
    "meilisearch": _search,
    "mysql": _sql,
    "postgres": _sql,
    "redis": _resp,
    "timescaledb": _sql,
    "valkey": _resp,
}


def attack(engine: str, place: Place, steps: list[str]) -> dict[str, Any]:
    told: list[Any] = []
    try:
        with asking(engine, place) as ask:
            # What was told before a refusal counts too.
            told.extend(ask(step) for step in steps)
    except REFUSALS as error:
        return {"told": told, "refused": f"{type(error).__name__}: {error}"}
    return {"told": told, "refused": None}


if __name__ == "__main__":
    for line in sys.stdin:
        given = json.loads(line)
        found = attack(
            given["engine"], Place(given["credential"], given["ca_file"]), given["steps"]
        )
        sys.stdout.write(json.dumps(found, default=str) + "\n")
        sys.stdout.flush()
