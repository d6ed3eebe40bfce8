"""Who attacks from inside each engine, with all the power there is: its administrator."""

import base64
import shlex
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pymysql
import redis

from cell.engines.mysql import administrator as mysql_administrator
from cell.engines.resp import administrator as resp_administrator
from contract_tests.attacks.http_requests import RefusedError, Requests
from contract_tests.attacks.statements import said
from contract_tests.isolation.surroundings import PROBE, Surroundings

Ask = Callable[[str], Any]
REFUSALS = (
    *(psycopg.Error, pymysql.err.MySQLError, redis.exceptions.RedisError),
    RefusedError,
)


def duckdb(around: Surroundings, instance_id: str) -> list[Any]:
    """There is nobody above the tenant; whoever may change settings is compiled in."""
    password = around.rig.reveal(instance_id)["password"]

    def ask(sql: str) -> str:
        return around.rig.query(instance_id, password, sql).text

    return _every(around, said("duckdb"), ask)


def postgres(around: Surroundings, instance_id: str) -> list[Any]:
    """A superuser may run programs, which are the probe's way in."""
    with psycopg.connect(
        host=str(around.socket(instance_id).parent),
        user="menagerie",
        password=around.secret(instance_id, "postgres"),
        dbname="postgres",
        autocommit=True,
    ) as connection:
        connection.execute("CREATE TABLE stolen (line text)")

        def ask(sql: str) -> Any:
            done = connection.execute(sql.encode())
            return done.fetchall() if done.description else None

        answers = _every(around, said("postgres", "administrator"), ask)
        program = base64.b64encode(PROBE.encode()).decode()
        words = shlex.join([sys.executable, "-I", "-S", "-", *around.words()])
        line = f"echo {program} | base64 -d | {words}".replace("'", "''")
        ask(f"COPY stolen FROM PROGRAM '{line}'")
        found = connection.execute("SELECT line FROM stolen").fetchall()
    lines = [line for (line,) in found]
    assert [line for line in lines if line.startswith("GOT")] == ["GOT own 1"]
    assert len(lines) > 10
    return [*answers, *lines]


def mysql(around: Surroundings, instance_id: str) -> list[Any]:
    ours = mysql_administrator.login(around.host, around.site(instance_id))
    with (
        pymysql.connect(
            unix_socket=str(around.socket(instance_id)),
            user=ours.username,
            password=ours.password,
            database="app",
            autocommit=True,
            ssl_disabled=True,
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE TABLE stolen (line text)")

        def ask(sql: str) -> Any:
            cursor.execute(sql)
            return cursor.fetchall()

        answers = _every(around, said("mariadb", "administrator"), ask)
        return [*answers, ask("SELECT line FROM stolen")]


def resp(around: Surroundings, instance_id: str) -> list[Any]:
    """The administrator has few rights, and the one to give itself all."""
    with redis.Redis(
        unix_socket_path=str(around.socket(instance_id)),
        username="menagerie",
        password=resp_administrator.login(around.host, around.site(instance_id)).password,
        decode_responses=True,
    ) as client:
        client.execute_command("ACL", "SETUSER", "menagerie", "~*", "&*", "+@all")
        client.set("key", "value")
        lines, scripts = said("redis", "administrator"), said("redis", "administrator's script")
        answers = _every(around, lines, lambda line: client.execute_command(*line.split()))
        return [*answers, *_every(around, scripts, lambda script: client.eval(script, 0))]


def search(around: Surroundings, instance_id: str) -> list[Any]:
    """Nobody is above the bearer of the master key, who is the owner."""

    def opened() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(str(around.socket(instance_id)))
        return made

    requests = Requests(opened, around.rig.reveal(instance_id)["password"])
    return _every(around, said("meilisearch"), requests.ask)


def _every(around: Surroundings, statements: Sequence[str], ask: Ask) -> list[Any]:
    """What each was answered, or refused with."""
    answers: list[Any] = []
    for statement in statements:
        try:
            answers.append(ask(around.place(statement)))
        except REFUSALS as error:
            answers.append(str(error))
    return answers


ATTACKERS: dict[str, Callable[[Surroundings, str], list[Any]]] = {
    "duckdb": duckdb,
    "postgres": postgres,
    "timescaledb": postgres,
    "mariadb": mysql,
    "meilisearch": search,
    "mysql": mysql,
    "redis": resp,
    "valkey": resp,
}
