"""CSV and Parquet files become the data of a DuckDB or a MariaDB."""

from pathlib import Path

import pytest

from contract_tests.cell.migrations.migration_calls import begin, status_is
from contract_tests.cell.migrations.table_archives import (
    EVERY_KIND,
    FILES,
    PARQUET,
    ROWS,
    packed,
    parquet,
)
from contract_tests.cell.migrations.test_files import made, query
from contract_tests.cell.migrations.test_mysql_dumps import rows
from contract_tests.cell.migrations.test_table_files import sent
from contract_tests.cell.rig import Rig


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_files_become_tables_of_a_duckdb(migrating: Rig, tmp_path: Path) -> None:
    duckdb_id = made(migrating, "duckdb")
    content = packed({"shop/every.csv": EVERY_KIND, "made.parquet": parquet(tmp_path)})
    seen = status_is(migrating, duckdb_id, sent(migrating, duckdb_id, content), "completed")
    compared = seen["verification"]
    assert (compared["tables_compared"], compared["rows_compared"]) == (2, 2 * ROWS)
    types = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'every'"
    assert [tuple(each) for each in query(migrating, duckdb_id, types)] == [
        ("id", "BIGINT"),
        ("n ame", "VARCHAR"),
        ("price", "DECIMAL(18,2)"),
        ("big", "DECIMAL(38,0)"),
        ("measured", "DOUBLE"),
        ("is_ok", "BOOLEAN"),
        ("day", "DATE"),
        ("at", "TIMESTAMP"),
        ("at_zone", "TIMESTAMP WITH TIME ZONE"),
        ("clock", "TIME"),
        ("uu", "UUID"),
        ("js", "JSON"),
        ("bin", "BLOB"),
        ("zip", "VARCHAR"),
        ("note", "VARCHAR"),
        ("mixed", "VARCHAR"),
        ("nothing", "VARCHAR"),
    ]
    native = "SELECT list[1], struct.b, map['k'], t FROM made WHERE i = 5"
    assert query(migrating, duckdb_id, native) == [[5, 'x"y', 5, "x5\t\n\\."]]
    again = status_is(
        migrating, duckdb_id, sent(migrating, duckdb_id, b"a,b\n1,2\n", "t"), "failed"
    )
    assert "has data already" in again["reason"]
    migrating.action(duckdb_id, "erase")


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_files_become_tables_of_a_mariadb(migrating: Rig, tmp_path: Path) -> None:
    mariadb_id = made(migrating, "mariadb")
    content = packed({"every.csv": EVERY_KIND, "shop/made.parquet": parquet(tmp_path)})
    refused = status_is(migrating, mariadb_id, sent(migrating, mariadb_id, content), "failed")
    assert refused["reason"] == "a number is infinite, or NaN"
    assert rows(migrating, mariadb_id, "SHOW TABLES") == []
    numbers = "SELECT * REPLACE (i / 3 AS d) FROM ({}) AS t"
    content = packed(
        {"every.csv": EVERY_KIND, "shop/made.parquet": parquet(tmp_path, numbers.format(PARQUET))}
    )
    seen = status_is(migrating, mariadb_id, sent(migrating, mariadb_id, content), "completed")
    compared = seen["verification"]
    assert (compared["tables_compared"], compared["rows_compared"]) == (2, 2 * ROWS)
    found = rows(migrating, mariadb_id, "SELECT * FROM every ORDER BY id LIMIT 1")
    assert found[0][1] == 'a "q" \\ 0\nñ'
    text = "SELECT t, HEX(bin), JSON_VALUE(struct, '$.b') FROM shop.made WHERE i = 5"
    assert rows(migrating, mariadb_id, text) == [("x5\t\n\\.", "616200", 'x"y')]
    migrating.action(mariadb_id, "erase")


def test_redis_takes_no_files(migrating: Rig) -> None:
    answer = begin(migrating, made(migrating, "valkey"), FILES)
    assert answer.status_code == 409
    assert "takes no files" in answer.json()["detail"]
