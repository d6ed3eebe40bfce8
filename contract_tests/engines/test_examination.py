"""Holds promise 50 for drivers: data that is examined is read to the end, and damage is found."""

import contextlib
from pathlib import Path

import psycopg
import pytest

from cell.engines.driver import ChecksFiles, EngineError
from cell.runtime.process import LaunchError
from contract_tests.engines.conftest import SUBJECTS, Subject
from contract_tests.engines.speakers import DuckDB, PostgreSQL

ENGINES = [each for each in SUBJECTS if each.id not in {"mysql", "timescaledb"}]
# What may be evaluated where data is only looked at, if it is looked at carelessly.
CODE = """
CREATE FUNCTION code(n integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql
    AS $$ BEGIN RETURN n; END $$;
CREATE DOMAIN checked AS integer CHECK (code(VALUE) > 0);
CREATE SCHEMA "an ""other"" schema";
CREATE TABLE "an ""other"" schema"."some 'table'" (
    n integer CHECK (code(n) > 0), d checked DEFAULT code(1),
    g integer GENERATED ALWAYS AS (code(n)) STORED
);
INSERT INTO "an ""other"" schema"."some 'table'" VALUES (1), (2), (3);
CREATE TABLE watched (n integer PRIMARY KEY);
INSERT INTO watched SELECT generate_series(1, 1000);
CREATE INDEX ON watched (code(n));
CREATE INDEX ON watched ((code(1)));
CREATE INDEX ON watched (n) WHERE code(2) > 1;
CREATE STATISTICS counted ON (code(n)), (code(3)) FROM watched;
CREATE TABLE parted (n integer) PARTITION BY RANGE (code(n));
CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (1000);
INSERT INTO parted VALUES (5);
ALTER TABLE watched ENABLE ROW LEVEL SECURITY;
ALTER TABLE watched FORCE ROW LEVEL SECURITY;
CREATE POLICY nobody ON watched USING (code(n) < 0);
CREATE VIEW seen AS SELECT code(n) FROM watched;
CREATE MATERIALIZED VIEW kept AS SELECT code(n) FROM part;
CREATE UNLOGGED TABLE unlogged AS SELECT 1 AS n;
CREATE OR REPLACE FUNCTION code(n integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'code of the owner ran as %', current_user; END $$;
ALTER DATABASE app SET row_security = on;
ALTER DATABASE app SET search_path = "an ""other"" schema", public;
ALTER DATABASE app SET default_transaction_read_only = on;
ALTER DATABASE app SET statement_timeout = 1;
"""


@pytest.mark.parametrize("subject", ENGINES, indirect=True)
def test_what_is_there_is_counted(running: Subject) -> None:
    running.speaker.make(running.site, running.login)
    running.speaker.write(running.site, running.login, range(100))
    first = running.run(running.driver.examine(running.site, running.login))
    again = running.run(running.driver.examine(running.site, running.login))
    assert first == again
    assert len(first.digest) == 64
    if running.driver.protocol != "resp":
        running.speaker.write(running.site, running.login, [100])
        later = running.run(running.driver.examine(running.site, running.login))
        assert later.digest != first.digest


@pytest.mark.parametrize("subject", ["postgres"], indirect=True)
def test_no_code_of_the_owner_runs(running: Subject) -> None:
    before = running.run(running.driver.examine(running.site, running.login))
    with PostgreSQL._connection(running.site, running.login) as connection:
        connection.execute(CODE.encode())
    # A statement that lifts the limit may itself be too late for it.
    unlimited = PostgreSQL._connection(running.site, running.login, "-c statement_timeout=0")
    ran = pytest.raises(psycopg.errors.RaiseException, match="code of the owner ran as app")
    with unlimited as connection, ran:
        connection.execute("SELECT count(*) FROM watched WHERE code(1) = 1")
    found = running.run(running.driver.examine(running.site, running.login))
    assert found.digest != before.digest
    assert "code of the owner ran" not in running.site.log.read_text().partition("ran as app")[2]


@pytest.mark.nightly
@pytest.mark.parametrize("subject", ["duckdb"], indirect=True)
def test_tables_of_any_name_and_type_are_read(running: Subject) -> None:
    odd = '"odd ""name"""'
    for sql in (
        f"CREATE TABLE {odd} (t VARCHAR, n INTEGER GENERATED ALWAYS AS (CAST(t AS INTEGER)))",
        f"INSERT INTO {odd} VALUES ('1')",
        f"CREATE VIEW broken AS SELECT error(t) FROM {odd}",
        "CREATE TABLE nested AS SELECT {'a': [1, 2], 'b': MAP {'x': 1}} AS s, 'b'::BLOB AS b",
    ):
        DuckDB._ask(running.site, running.login, sql)
    first = running.run(running.driver.examine(running.site, running.login))
    DuckDB._ask(running.site, running.login, "INSERT INTO nested SELECT * FROM nested")
    assert running.run(running.driver.examine(running.site, running.login)) != first


@pytest.mark.nightly
@pytest.mark.parametrize("subject", ["postgres"], indirect=True)
def test_extensions_in_use_are_told(running: Subject) -> None:
    with PostgreSQL._connection(running.site, running.login) as connection:
        connection.execute("CREATE EXTENSION hstore")
        connection.execute("CREATE EXTENSION citext")
        connection.execute("CREATE TABLE used AS SELECT 'a=>1'::hstore AS h, 'X'::citext AS c")
    found = running.run(running.driver.examine(running.site, running.login))
    assert found.extensions == ("citext", "hstore")


@pytest.mark.parametrize("subject", ["postgres"], indirect=True)
def test_a_page_that_was_changed_is_found(running: Subject) -> None:
    driver = running.driver
    assert isinstance(driver, ChecksFiles)
    running.speaker.make(running.site, running.login)
    running.speaker.write(running.site, running.login, range(10_000))
    with PostgreSQL._connection(running.site, running.login) as connection:
        row = connection.execute("SELECT pg_relation_filepath('numbers_pkey')").fetchone()
    assert row is not None
    running.stop()
    running.run(driver.check_files(running.site))
    flip(running.site.data.outside / row[0])
    with pytest.raises(EngineError, match="checksums"):
        running.run(driver.check_files(running.site))


# Where a file of their own has the rows; whether it is found at the start or later is the engine's.
FILES = [("duckdb", "database.duckdb"), ("mariadb", "*/app/numbers.ibd")]
FILES += [("meilisearch", "data.db")]
FILES += [("redis", "appendonlydir/*.incr.aof"), ("valkey", "appendonlydir/*.incr.aof")]


@pytest.mark.parametrize(("subject", "file"), FILES, indirect=["subject"])
def test_damaged_rows_are_found(running: Subject, file: str) -> None:
    running.speaker.make(running.site, running.login)
    running.speaker.write(running.site, running.login, range(20_000))
    running.stop()
    (path,) = running.site.data.outside.glob(file)
    for place in (0.3, 0.5, 0.7):
        flip(path, place)
    # An engine may also end before its start is over.
    with pytest.raises((EngineError, LaunchError, AssertionError)):
        start_and_examine(running)
    with contextlib.suppress(AssertionError):
        running.stop()


def start_and_examine(running: Subject) -> None:
    running.start()
    running.run(running.driver.examine(running.site, running.login))


def flip(path: Path, place: float = 0.5) -> None:
    with path.open("r+b") as file:
        file.seek(int(path.stat().st_size * place))
        content = file.read(64)
        file.seek(-len(content), 1)
        file.write(bytes(each ^ 0x55 for each in content))


@pytest.mark.nightly
@pytest.mark.parametrize("subject", ["postgres"], indirect=True)
def test_data_of_every_encoding_is_read_and_no_database_that_is_half_dropped(
    running: Subject,
) -> None:
    def connect(database: str) -> psycopg.Connection[tuple[str, ...]]:
        return psycopg.connect(
            host=str(running.site.run),
            dbname=database,
            user=running.login.username,
            password=running.login.password,
            autocommit=True,
        )

    with connect("app") as connection:
        for encoding in ("SQL_ASCII", "WIN1252"):
            made = f"CREATE DATABASE {encoding} ENCODING '{encoding}' LOCALE 'C'"
            connection.execute(f"{made} TEMPLATE template0".encode())
        connection.execute("CREATE DATABASE half")
        connection.execute("SET statement_timeout = '1ms'")
        with contextlib.suppress(psycopg.errors.QueryCanceled):
            connection.execute("DROP DATABASE half")
    for encoding in ("sql_ascii", "win1252"):
        with connect(encoding) as connection:
            connection.execute("CREATE TABLE t (x text)")
            # Of neither is there one in UTF-8.
            octet = "convert_from('\\x81'::bytea, getdatabaseencoding()::name)"
            connection.execute(f"INSERT INTO t VALUES ({octet})".encode())
    found = running.run(running.driver.examine(running.site, running.login))
    assert len(found.digest) == 64
